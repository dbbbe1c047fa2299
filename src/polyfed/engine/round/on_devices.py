"""Rounds whose clients' states are on the devices: any number of them inside the devices' `shard_map`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from polyfed.algorithms.contract import Algorithm, Server, State
from polyfed.engine.devices.layout import AXIS, DEVICES
from polyfed.engine.privacy.mechanism import Moment
from polyfed.engine.round import lending
from polyfed.engine.round.chunks import keep
from polyfed.engine.round.order import in_order
from polyfed.engine.round.records import Carry, Data, Slots, Sums, Tally
from polyfed.engine.round.round import Round


@dataclass(frozen=True)
class Stretch:
    """Some rounds, one after another."""

    round: Round

    def __call__(self, method: Algorithm, carry: Carry, data: Data, first: jax.Array, count: jax.Array) -> Carry:
        """Run `count` rounds from round `first` on."""
        population = self.round.layout.population
        begun = carry._replace(excluded=jnp.zeros_like(carry.excluded), tally=Tally.zero(population))

        def one_round(number: jax.Array, carry: Carry) -> Carry:
            return in_order(RoundOnDevices(self.round, method, carry, data, number))

        ended = lax.fori_loop(first, first + count, one_round, begun)
        return ended._replace(excluded=carry.excluded + lax.psum(ended.excluded, AXIS), tally=ended.tally.everywhere())


class Seats(NamedTuple):
    """Who takes part: this device's clients, those of all devices of its host, and which slots are taken anywhere."""

    clients: jax.Array
    taken: jax.Array
    host_clients: jax.Array
    host_taken: jax.Array
    all_taken: jax.Array


class Worked(NamedTuple):
    """After the local work of a device's clients."""

    sums: Sums
    states: State
    slots: Slots


class Updated(NamedTuple):
    """After the server's step."""

    server: Server
    states: State
    slots: Slots
    uploads: jax.Array
    steps: jax.Array
    emphasis: jax.Array
    catching_up: jax.Array
    """participants that had not been there in the round before, where that matters"""
    norms: jax.Array | None = None
    """the median norms of past rounds' uploads, where the next is bounded by them"""


@dataclass(frozen=True)
class RoundOnDevices:
    """The parts of a round whose clients' states are on the devices."""

    round: Round
    method: Algorithm
    carry: Carry
    data: Data
    number: jax.Array

    @property
    def absorbs(self) -> bool:
        return self.method.absorb is not None

    def cohort(self) -> Seats:
        round, device = self.round, lax.axis_index(DEVICES)
        everyone, all_taken = round.cohort(self.data, self.number)
        host_clients, host_taken = round.of_host(everyone), round.of_host(all_taken)
        return Seats(host_clients[device], host_taken[device], host_clients, host_taken, all_taken)

    def local(self, seats: Seats) -> Worked:
        round, carry = self.round, self.carry
        lent = carry.clients if round.in_place else lending.take(carry.clients, seats.host_clients, seats.host_taken)
        sums = round.no_uploads(self.method, carry.server, self.data, jax.tree.map(lambda leaf: leaf[0], lent))
        work = (self.method, carry.server, self.data, self.number, seats.clients, seats.taken, lent, sums)
        return Worked(*round.local(*work))

    def update(self, seats: Seats, worked: Worked) -> Updated:
        nobody = jnp.zeros((), jnp.int32)
        if self.round.singles is not None:  # a rule for single uploads gives nobody a share of an average
            step = self.round.update_singly(self.method, self.carry.server, worked.sums, self.carry.norms)
            server, uploads, steps, norms = step
            slots = worked.slots._replace(emphasis=jnp.zeros_like(worked.slots.emphasis))
            return Updated(server, worked.states, slots, uploads, steps, worked.sums.emphasis, nobody, norms)
        moment = Moment(self.data.seed, self.number, self.data.secret)
        server, uploads, steps, emphasis = self.round.update(self.method, self.carry.server, worked.sums, moment)
        return Updated(server, worked.states, worked.slots, uploads, steps, emphasis, nobody)

    def absorb(self, seats: Seats, updated: Updated) -> Updated:
        round, slots = self.round, updated.slots
        work = (self.data, self.number, seats.clients, slots.good, updated.states)
        return updated._replace(
            catching_up=round.catching_up(self.data, self.number, seats.clients, seats.taken & ~slots.silent),
            states=round.absorb(self.method, updated.server, *work),
        )

    def close(self, seats: Seats, updated: Updated) -> Carry:
        round, carry, slots = self.round, self.carry, updated.slots
        tally, sent = carry.tally, seats.taken & ~slots.silent
        shares = keep(slots.good, slots.emphasis) / jnp.where(updated.emphasis > 0, updated.emphasis, 1)
        states = updated.states
        if not round.in_place:
            states = lending.put(carry.clients, seats.host_clients, seats.host_taken, states)
        return Carry(
            updated.server,
            states,
            round.counted(carry.excluded, seats.clients, (seats.taken & ~slots.good).astype(jnp.int32)),
            Tally(
                tally.participants + jnp.sum(sent, dtype=jnp.int32),
                tally.catching_up + updated.catching_up,
                tally.iterations + updated.steps,
                tally.bits.plus(slots.bits),
                tally.empty + ((updated.uploads == 0) & jnp.any(seats.all_taken)),
                round.counted(tally.shares, seats.clients, shares),
            ),
            updated.norms,
        )
