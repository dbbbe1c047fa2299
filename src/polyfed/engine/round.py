"""The round, written once, for every algorithm.

It runs inside one `shard_map` over the devices. Each device takes its share of the cohort, a chunk of clients at a
time, and keeps only the sum of their uploads; one `psum` adds the devices up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

from polyfed import randomness, trees
from polyfed.algorithms.base import Algorithm, Server, State, Total, Upload
from polyfed.engine import store
from polyfed.engine.devices import AXIS, Layout
from polyfed.engine.participation import Sampling
from polyfed.objective import Examples, Objective
from polyfed.problem import Problem
from polyfed.randomness import Purpose
from polyfed.trees import Tree

ONE_EXCHANGE = 1 << 16
"""The most numbers that are copied into one vector to save exchanges between devices."""


class Shard(NamedTuple):
    """Examples of one split and which rows are whose: `starts` and `sizes` have one entry per client."""

    examples: Examples
    starts: jax.Array
    sizes: jax.Array


class Data(NamedTuple):
    """What the compiled programs read, the same on every device but for `blocks`."""

    train: Shard
    client_ids: jax.Array
    seed: jax.Array
    blocks: Examples | None = None
    """The training rows again, as (clients, rows, ...), padded, each client's on the device that owns it; or None."""
    validation: Shard | None = None


class Wide(NamedTuple):
    """A sum of bits that may exceed 32 bits: high * 2^16 + low."""

    high: jax.Array
    low: jax.Array

    @classmethod
    def zero(cls) -> Wide:
        return cls(jnp.zeros((), jnp.uint32), jnp.zeros((), jnp.uint32))

    def plus(self, numbers: jax.Array) -> Wide:
        """Add an array of whole numbers below 2^32."""
        numbers = numbers.astype(jnp.uint32)
        low = self.low + jnp.sum(numbers & 0xFFFF, dtype=jnp.uint32)
        return Wide(self.high + jnp.sum(numbers >> 16, dtype=jnp.uint32) + (low >> 16), low & 0xFFFF)

    def __int__(self) -> int:
        return (int(self.high) << 16) + int(self.low)


class Tally(NamedTuple):
    """What happened in a stretch of rounds: on one device, until `everywhere` adds the devices up."""

    participants: jax.Array
    """uploads that travelled"""
    newcomers: jax.Array
    """participants that had not taken part in the round before"""
    iterations: jax.Array
    """local iterations: of each round, those of the client that did most"""
    bits: Wide
    """bits of compressed uploads; others are counted from their shapes"""
    empty: jax.Array
    """rounds in which clients took part, but no upload was finite"""
    shares: jax.Array
    """per client: its share of the server's average, summed over the rounds"""

    @classmethod
    def zero(cls, population: int) -> Tally:
        zero = jnp.zeros((), jnp.int32)
        return cls(zero, zero, zero, Wide.zero(), zero, jnp.zeros(population, jnp.result_type(float)))

    def everywhere(self) -> Tally:
        """The devices' tallies as one. `iterations` and `empty` are the same on all of them."""
        summed = (self.participants, self.newcomers, self.bits, self.shares)
        participants, newcomers, bits, shares = lax.psum(summed, AXIS)
        return Tally(participants, newcomers, self.iterations, bits, self.empty, shares)


class Carry(NamedTuple):
    """All that a round reads and writes. During a stretch of rounds each device counts for itself."""

    server: Server
    clients: State
    excluded: jax.Array
    """per client: how often its update was not finite"""
    tally: Tally


class Contribution(NamedTuple):
    """A client's upload as the sum takes it."""

    values: Tree
    weight: jax.Array
    steps: jax.Array
    bits: jax.Array
    silent: jax.Array
    emphasis: jax.Array


@dataclass(frozen=True)
class Round:
    """The round of a problem under a layout, a sampling of clients and a chunk size."""

    problem: Problem
    layout: Layout
    sampling: Sampling
    chunk: int
    longest: int

    @property
    def slots(self) -> int:
        """The clients that one device takes in a round."""
        return -(-self.sampling.capacity // self.layout.devices)

    def stretch(self, method: Algorithm, carry: Carry, data: Data, first: jax.Array, count: jax.Array) -> Carry:
        """Run `count` rounds from round `first` on, inside the devices' `shard_map`."""
        begun = carry._replace(excluded=jnp.zeros_like(carry.excluded), tally=Tally.zero(self.layout.population))
        ended = lax.fori_loop(first, first + count, lambda number, c: self(method, c, data, number), begun)
        return ended._replace(excluded=carry.excluded + lax.psum(ended.excluded, AXIS), tally=ended.tally.everywhere())

    def __call__(self, method: Algorithm, carry: Carry, data: Data, number: jax.Array) -> Carry:
        """Run round `number`."""
        clients, taken, all_clients, all_taken = self._cohort(data, number)
        broadcast = method.broadcast(carry.server)
        shared = randomness.purpose_key(data.seed, Purpose.LOCAL, number)
        states = carry.clients if self.sampling.full else store.take(carry.clients, all_clients, all_taken)

        def work(client: jax.Array, state: State, block: Examples | None) -> tuple[Contribution, State]:
            f = self.objective(data, client, number, block)
            upload, state = method.local(broadcast, state, f, randomness.client_key(shared, data.client_ids[client]))
            return contribution(upload), state

        total, states, good = self._sum(work, clients, taken, states, data.blocks)
        whole, steps, emphasis = self._everywhere(total, good)
        server = trees.where(whole.count > 0, method.update(carry.server, whole), carry.server)
        newcomers = jnp.zeros((), jnp.int32)
        if method.absorb is not None:
            newcomers = self._newcomers(data, number, clients, taken & ~total.silent)
            states = self._absorb(method, method.broadcast(server), data, number, clients, good, states)
        tally = carry.tally
        return Carry(
            server,
            states if self.sampling.full else store.put(carry.clients, all_clients, all_taken, states),
            self._count(carry.excluded, clients, (taken & ~good).astype(jnp.int32)),
            Tally(
                tally.participants + jnp.sum(taken & ~total.silent, dtype=jnp.int32),
                tally.newcomers + newcomers,
                tally.iterations + steps,
                tally.bits.plus(total.bits),
                tally.empty + ((whole.count == 0) & jnp.any(all_taken)),
                self._count(tally.shares, clients, keep(good, total.emphasis) / jnp.where(emphasis > 0, emphasis, 1)),
            ),
        )

    def objective(
        self, data: Data, client: jax.Array, number: jax.Array | int, block: Examples | None = None
    ) -> Objective:
        """The client's objective in a round."""
        shared = randomness.purpose_key(data.seed, Purpose.SERVER, number)
        start, size = data.train.starts[client], data.train.sizes[client]
        number = jnp.asarray(number, jnp.int32)
        held, validation = data.validation, None
        if held is not None:
            longest = int(np.max(self.problem.federation.validation.sizes))
            place = (held.starts[client], held.sizes[client], longest, client, number, shared)
            validation = Objective(self.problem, held.examples, *place)
        place = (start, size, self.longest, client, number, shared)
        return Objective(self.problem, data.train.examples, *place, block, validation)

    def prepare(self, method: Algorithm, clients: State, data: Data) -> State:
        """What every client does alone before the first round."""
        assert method.prepare is not None
        shared = randomness.purpose_key(data.seed, Purpose.PREPARE)

        def one(client: jax.Array, given: tuple[State, Examples | None]) -> State:
            assert method.prepare is not None
            state, block = given
            f = self.objective(data, client, 0, block)
            new = method.prepare(state, f, randomness.client_key(shared, data.client_ids[client]))
            return trees.where(trees.finite(new), new, state)

        return over_clients(one, self.layout, min(self.chunk, self.layout.rows), (clients, data.blocks))

    def _cohort(self, data: Data, number: jax.Array) -> tuple[jax.Array, ...]:
        """This device's clients and which of its slots are taken; then the same of all devices."""
        device = lax.axis_index(AXIS)
        devices = self.layout.devices
        if self.sampling.full:
            everyone = jnp.arange(devices * self.slots).reshape(devices, self.slots)
            taken = everyone < self.layout.population
            everyone = jnp.minimum(everyone, self.layout.population - 1)
        else:
            # Slots are dealt out to the devices in turn, so that a small cohort is spread evenly.
            slots = jnp.arange(self.slots) * devices + jnp.arange(devices)[:, None]
            everyone, taken, _ = self.sampling.cohort(data.seed, number, slots)
        return everyone[device], taken[device], everyone, taken

    def _newcomers(self, data: Data, number: jax.Array, clients: jax.Array, taken: jax.Array) -> jax.Array:
        """How many of these took no part in the round before, and so do not hold the current broadcast."""
        if self.sampling.full:
            return jnp.where(number == 0, jnp.sum(taken, dtype=jnp.int32), 0)
        before, there, _ = self.sampling.cohort(data.seed, number - 1, jnp.arange(self.sampling.capacity))
        ordered = jnp.sort(jnp.where(there & (number > 0), before, -1))
        again = ordered[jnp.searchsorted(ordered, clients).clip(0, ordered.size - 1)] == clients
        return jnp.sum(taken & ~again, dtype=jnp.int32)

    def _everywhere(self, total: Contribution, good: jax.Array) -> tuple[Total, jax.Array, jax.Array]:
        """All devices' uploads added up, the most steps that any client took, and the sum of their emphases.

        Devices wait for each other in every exchange, so a small model's numbers all travel in one.
        """
        real = total.weight.dtype
        mine = jnp.arange(self.layout.devices) == lax.axis_index(AXIS)
        numbers = (
            total.weight,
            jnp.sum(good, dtype=real),
            jnp.where(mine, total.steps.astype(real), 0),
            jnp.sum(keep(good, total.emphasis)),
        )
        leaves = jax.tree.leaves(total.values)
        if trees.count(total.values) <= ONE_EXCHANGE and all(leaf.dtype == real for leaf in leaves):
            flat, unravel = ravel_pytree((total.values, numbers))
            values, (weight, count, steps, emphasis) = unravel(lax.psum(flat, AXIS))
        else:
            values, (weight, count, steps, emphasis) = lax.psum((total.values, numbers), AXIS)
        population = jnp.asarray(self.layout.population, jnp.int32)
        return Total(values, weight, count.astype(jnp.int32), population), jnp.max(steps).astype(jnp.int32), emphasis

    def _sum(
        self,
        work: Callable[..., tuple[Contribution, State]],
        clients: jax.Array,
        taken: jax.Array,
        states: State,
        blocks: Examples | None,
    ) -> tuple[Contribution, State, jax.Array]:
        """Run `work` on this device's clients, chunk by chunk, and keep the sum of what they send."""
        one, _ = jax.eval_shape(work, clients[0], *jax.tree.map(lambda leaf: leaf[0], (states, blocks)))
        zero: Contribution = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), one)
        zero = zero._replace(
            bits=jnp.zeros(self.slots, jnp.uint32),
            silent=jnp.zeros(self.slots, bool),
            emphasis=jnp.zeros(self.slots, zero.emphasis.dtype),
        )

        def body(
            index: jax.Array, carry: tuple[Contribution, State, jax.Array]
        ) -> tuple[Contribution, State, jax.Array]:
            total, states, good = carry
            first, fresh = self._piece(index)
            mine = lax.dynamic_slice_in_dim(taken, first, self.chunk) & fresh
            old = slice_tree(states, first, self.chunk)
            rows = slice_tree(blocks, first, self.chunk)
            sent, new = jax.vmap(work)(lax.dynamic_slice_in_dim(clients, first, self.chunk), old, rows)
            fine = mine & jax.vmap(trees.finite)((sent.values, sent.weight, new))
            seen = lax.dynamic_slice_in_dim(good, first, self.chunk) | fine
            return (
                Contribution(
                    jax.tree.map(lambda t, leaf: t + jnp.sum(keep(fine, leaf), axis=0), total.values, sent.values),
                    total.weight + jnp.sum(keep(fine, sent.weight)),
                    jnp.maximum(total.steps, jnp.max(keep(mine, sent.steps))),
                    self._fill(total.bits, mine, sent.bits, first),
                    self._fill(total.silent, mine, sent.silent, first),
                    self._fill(total.emphasis, mine, sent.emphasis, first),
                ),
                update_tree(states, jax.tree.map(lambda n, o: select(fine, n, o), new, old), first),
                lax.dynamic_update_slice_in_dim(good, seen, first, 0),
            )

        return lax.fori_loop(0, self._pieces(taken), body, (zero, states, jnp.zeros(self.slots, bool)))

    def _absorb(
        self,
        method: Algorithm,
        broadcast: Tree,
        data: Data,
        number: jax.Array,
        clients: jax.Array,
        good: jax.Array,
        states: State,
    ) -> State:
        """Hand the new server's broadcast to the participants whose update was accepted."""

        def hand(client: jax.Array, state: State) -> State:
            assert method.absorb is not None
            return method.absorb(state, broadcast, self.objective(data, client, number))

        def body(index: jax.Array, states: State) -> State:
            first, fresh = self._piece(index)
            mine = lax.dynamic_slice_in_dim(good, first, self.chunk) & fresh
            old = slice_tree(states, first, self.chunk)
            new = jax.vmap(hand)(lax.dynamic_slice_in_dim(clients, first, self.chunk), old)
            fine = mine & jax.vmap(trees.finite)(new)
            return update_tree(states, jax.tree.map(lambda n, o: select(fine, n, o), new, old), first)

        return lax.fori_loop(0, self._pieces(good), body, states)

    def _count(self, counts: jax.Array, clients: jax.Array, new: jax.Array) -> jax.Array:
        """This device's count for every client, with the new ones of its slots added."""
        if not self.sampling.full:
            return counts.at[clients].add(new)
        place = jnp.arange(self.layout.population) - clients[0]
        mine = (place >= 0) & (place < self.slots)
        return counts + keep(mine, new[jnp.where(mine, place, 0)])

    def _fill(self, values: jax.Array, mine: jax.Array, new: jax.Array, first: jax.Array) -> jax.Array:
        """The slots' values with those of one chunk put in."""
        old = lax.dynamic_slice_in_dim(values, first, self.chunk)
        return lax.dynamic_update_slice_in_dim(values, jnp.where(mine, new, old), first, 0)

    def _pieces(self, taken: jax.Array) -> jax.Array | int:
        """How many chunks have work: all, unless the cohort's size is drawn."""
        if self.sampling.probability is None:
            return -(-self.slots // self.chunk)
        last = jnp.max(jnp.where(taken, jnp.arange(self.slots) + 1, 0))
        return (last + self.chunk - 1) // self.chunk

    def _piece(self, index: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Where a chunk starts, and which of its clients no earlier chunk had: the last one is moved back to fit."""
        first = jnp.minimum(index * self.chunk, self.slots - self.chunk)
        return first, first + jnp.arange(self.chunk) >= index * self.chunk


def over_clients(function: Callable[..., Any], layout: Layout, chunk: int, states: State) -> Any:
    """`function(client, state)` of every client that this device owns, a chunk at a time."""
    owned = lax.axis_index(AXIS) * layout.rows + jnp.arange(layout.rows)
    owned = jnp.minimum(owned, layout.population - 1)
    shape = jax.eval_shape(jax.vmap(function), owned, states)  # a model that is shared gets its client axis, too

    def body(index: jax.Array, found: Any) -> Any:
        first = jnp.minimum(index * chunk, layout.rows - chunk)
        clients = lax.dynamic_slice_in_dim(owned, first, chunk)
        return update_tree(found, jax.vmap(function)(clients, slice_tree(states, first, chunk)), first)

    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
    return lax.fori_loop(0, -(-layout.rows // chunk), body, blank)


def contribution(upload: Upload) -> Contribution:
    """An upload, multiplied by its weight."""
    weight, real = upload.weight, jnp.result_type(float)
    plain = isinstance(weight, int | float) and weight == 1
    emphasis = jnp.asarray(weight if upload.emphasis is None else upload.emphasis, real)
    return Contribution(
        upload.values if plain else trees.scale(weight, upload.values),
        jnp.asarray(weight, real),
        jnp.asarray(upload.steps, jnp.int32),
        jnp.where(upload.silent, 0, jnp.asarray(0 if upload.bits is None else upload.bits)).astype(jnp.uint32),
        jnp.asarray(upload.silent, bool),
        jnp.where(upload.silent, 0, emphasis),
    )


def wire_bits(upload: Upload) -> int:
    """The bits of an upload that follow from its shapes; none where it says itself what it takes."""
    if upload.bits is not None:
        return 0
    return trees.bits(upload.values) + (0 if isinstance(upload.weight, int | float) else trees.bits(upload.weight))


def keep(mask: jax.Array, leaf: jax.Array) -> jax.Array:
    """Zero where the mask says so, whatever stood there: NaN too."""
    return select(mask, leaf, jnp.zeros_like(leaf))


def select(mask: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """Client by client, a or b."""
    return jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)), a, b)


def slice_tree(tree: Tree, first: jax.Array, count: int) -> Tree:
    return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, count), tree)


def update_tree(tree: Tree, piece: Tree, first: jax.Array) -> Tree:
    return jax.tree.map(lambda leaf, part: lax.dynamic_update_slice_in_dim(leaf, part, first, 0), tree, piece)
