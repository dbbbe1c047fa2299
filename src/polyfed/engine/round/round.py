"""The round, written once, for every algorithm.

It runs inside one `shard_map` over the devices. Each device takes its share of the cohort, a chunk of clients at a
time, and keeps only the sum of their uploads; one `psum` adds the devices up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from polyfed.algorithms.contract import Algorithm, Pending, Server, State, Total, Upload
from polyfed.core import randomness, trees
from polyfed.core.precision import Narrow
from polyfed.core.randomness import Purpose
from polyfed.core.trees import Tree
from polyfed.engine.devices.layout import AXIS, HOSTS, Layout
from polyfed.engine.participation import Sampling
from polyfed.engine.privacy.mechanism import Moment, Privacy
from polyfed.engine.round.chunks import Chunk, add_up, keep, of_each, over_clients, select
from polyfed.engine.round.records import Contribution, Data, Longest, Shard, Slots, Sums, contribution
from polyfed.problem.objective import Examples, Objective
from polyfed.problem.task import Task

if TYPE_CHECKING:
    from polyfed.engine.robust.singles import Singles

ONE_EXCHANGE = 1 << 16
"""The most numbers that are copied into one vector to save exchanges between devices."""


@dataclass(frozen=True)
class Round:
    """The round of a task under a layout, a sampling of clients and a chunk size."""

    task: Task
    layout: Layout
    sampling: Sampling
    chunk: int
    longest: Longest
    shortest: int = 0
    """The fewest training rows that any client has; 0 where that is not known."""
    compute: Narrow = None
    """The type that models compute in during rounds, where it is not that of the parameters."""
    privacy: Privacy | None = None
    uneven: bool = False
    """Whether clients take unequal numbers of steps: a device then takes its largest first."""
    singles: Singles | None = None
    """How the server treats single uploads, where it sees them."""
    dealt: bool = False
    """Whether they are dealt out to the devices also where all take part; else each is on the one that owns it."""

    @property
    def in_place(self) -> bool:
        """Whether everybody takes part, each on its own device."""
        return self.sampling.full and not self.dealt

    @property
    def exact(self) -> Round:
        """The same with all in the parameters' type: for what clients do before and after the rounds."""
        return replace(self, compute=None)

    @property
    def slots(self) -> int:
        """The most clients that one device takes in a round: a cohort may be all of one host."""
        if self.layout.hosts == 1 or self.sampling.full:
            return -(-self.sampling.capacity // self.layout.devices)
        return -(-min(self.sampling.capacity, self.layout.host_clients) // self.layout.host_devices)

    def no_uploads(self, method: Algorithm, server: Server, data: Data, state: State) -> Sums:
        """The sum of no uploads, in the shape of a client's."""

        def of_client(server: Server, state: State) -> Contribution:
            nobody = jnp.int32(0)
            return contribution(self.one_client(method, method.broadcast(server), data, nobody, nobody, state)[0])

        sent = jax.eval_shape(of_client, server, state)
        values = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), sent.values)
        none = jnp.zeros((), sent.weight.dtype)
        if self.singles is not None:
            values = self.singles.none(sent.values, self.slots, none.dtype)
        return Sums(values, none, none, jnp.zeros((), jnp.int32), none)

    def local(
        self,
        method: Algorithm,
        server: Server,
        data: Data,
        number: jax.Array,
        clients: jax.Array,
        taken: jax.Array,
        states: State,
        sums: Sums,
    ) -> tuple[Sums, State, Slots]:
        """The local work of this device's clients, chunk by chunk; their uploads are added to `sums`.

        The states that come back may be `Pending`, until `absorb`.
        """
        broadcast = method.broadcast(server)
        count = len(clients)
        held = self._with_room(method, broadcast, data, states)

        def work(*given: Tree) -> tuple[Contribution, State]:
            upload, state = self.one_client(*given)
            return contribution(upload, as_such=self.singles is not None), state

        shared = (method, broadcast, data._replace(blocks=None), number)

        sorts = self.uneven and self.in_place and self.chunk < count
        order = jnp.argsort(-data.train.sizes[clients]) if sorts else None

        def body(index: jax.Array, carry: tuple[Sums, State, Slots]) -> tuple[Sums, State, Slots]:
            sums, held, slots = carry
            chunk = Chunk(index, count, self.chunk, order)
            mine = chunk.of(taken) & chunk.fresh
            old, rows = chunk.of(held), chunk.of(data.blocks)
            sent, new = of_each(work, shared, (chunk.of(clients), _kept(old), rows))
            fine = mine & jax.vmap(trees.finite)((sent.values, sent.weight, new))
            done = Slots(fine, sent.silent, sent.bits, sent.emphasis)
            if self.singles is None:
                values = jax.tree.map(lambda t, leaf: t + add_up(keep(fine, leaf)), sums.values, sent.values)
            else:
                values = self.singles.plus(sums.values, chunk, sent, fine, mine, data.number(chunk.of(clients)))
            return (
                Sums(
                    values,
                    sums.weight + jnp.sum(keep(fine, sent.weight)),
                    sums.uploads + jnp.sum(fine, dtype=sums.uploads.dtype),
                    jnp.maximum(sums.steps, jnp.max(keep(mine, sent.steps))),
                    sums.emphasis + jnp.sum(keep(fine, sent.emphasis)),
                ),
                chunk.put(held, jax.tree.map(lambda n, o: select(fine, n, o), new, old)),
                chunk.put(slots, jax.tree.map(lambda n, o: select(mine, n, o), done, chunk.of(slots))),
            )

        no = jnp.zeros(count, bool)
        blank = Slots(no, no, jnp.zeros(count, jnp.uint32), jnp.zeros(count, sums.emphasis.dtype))
        return lax.fori_loop(0, self._pieces(taken), body, (sums, held, blank))

    def _with_room(self, method: Algorithm, broadcast: Tree, data: Data, states: State) -> State:
        """The states, with room beside them for what `absorb` needs of a round where that is more."""
        if method.absorb is None:
            return states

        def of_client(state: State) -> State:
            nobody = jnp.int32(0)
            return self.one_client(method, broadcast, data, nobody, nobody, state)[1]

        new = jax.eval_shape(of_client, jax.tree.map(lambda leaf: leaf[0], states))
        if not isinstance(new, Pending):
            return states
        count = trees.length(states)
        room = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), new.within)
        return Pending(states, room)

    def one_client(
        self,
        method: Algorithm,
        broadcast: Tree,
        data: Data,
        number: jax.Array,
        client: jax.Array,
        state: State,
        block: Examples | None = None,
    ) -> tuple[Upload, State]:
        """The local work of one client."""
        shared = randomness.purpose_key(data.seed, Purpose.LOCAL, number)
        f = self.objective(data, client, number, block)
        upload, state = method.local(broadcast, state, f, randomness.client_key(shared, data.client_ids[client]))
        if self.singles is not None:
            false = randomness.purpose_key(data.seed, Purpose.ATTACK, number)
            key = randomness.client_key(false, data.client_ids[client])
            upload = self.singles.sent(upload, data.number(client), key)
        return upload if self.privacy is None else self.privacy.clipped(method, upload), state

    def update(
        self, method: Algorithm, server: Server, sums: Sums, moment: Moment | None
    ) -> tuple[Server, jax.Array, jax.Array, jax.Array]:
        """The server after the round, the uploads in it, the most steps of any client, and the sum of emphases.

        `moment`: for what is drawn here.
        """
        whole, steps, emphasis = self._everywhere(sums)
        if self.privacy is None:
            return trees.where(whole.count > 0, method.update(server, whole), server), whole.count, steps, emphasis
        assert moment is not None
        released = self.privacy.released(whole, self.sampling.expected, self.privacy.key(moment))
        return method.update(server, released), whole.count, steps, emphasis

    def update_singly(
        self, method: Algorithm, server: Server, sums: Sums, past: jax.Array | None
    ) -> tuple[Server, jax.Array, jax.Array, jax.Array | None]:
        """The same where the server sees single uploads; last the norms of past rounds, with this one's."""
        assert self.singles is not None
        whole, steps, _ = self._everywhere(sums._replace(values=None))
        pooled, past = self.singles.total(sums.values, whole.population, past)
        return trees.where(pooled.count > 0, method.update(server, pooled), server), pooled.count, steps, past

    def absorb(
        self,
        method: Algorithm,
        server: Server,
        data: Data,
        number: jax.Array,
        clients: jax.Array,
        good: jax.Array,
        held: State,
    ) -> State:
        """Hand the new server's broadcast to the participants whose update was accepted; the states that are kept."""
        broadcast = method.broadcast(server)

        def hand(client: jax.Array, state: State) -> State:
            return self.absorbed(method, broadcast, data, number, client, state)

        def body(index: jax.Array, states: State) -> State:
            chunk = Chunk(index, len(clients), self.chunk)
            mine, old = chunk.of(good) & chunk.fresh, chunk.of(states)
            within = Pending(old, chunk.of(held.within)) if isinstance(held, Pending) else old
            new = jax.vmap(hand)(chunk.of(clients), within)
            fine = mine & jax.vmap(trees.finite)(new)
            return chunk.put(states, jax.tree.map(lambda n, o: select(fine, n, o), new, old))

        return lax.fori_loop(0, self._pieces(good), body, _kept(held))

    def absorbed(
        self, method: Algorithm, broadcast: Tree, data: Data, number: jax.Array, client: jax.Array, state: State
    ) -> State:
        """One client's state after it took in the new server's broadcast."""
        assert method.absorb is not None
        return method.absorb(state, broadcast, self.objective(data, client, number))

    def objective(
        self, data: Data, client: jax.Array, number: jax.Array | int, block: Examples | None = None
    ) -> Objective:
        """The client's objective in a round."""
        shared = randomness.purpose_key(data.seed, Purpose.SERVER, number)
        number = jnp.asarray(number, jnp.int32)

        def of(shard: Shard, longest: int, **more: Any) -> Objective:
            place = (shard.starts[client], shard.sizes[client], longest, data.number(client), number, shared)
            return Objective(self.task, shard.examples, *place, compute=self.compute, **more)

        held = data.validation
        validation = None if held is None else of(held, self.longest.validation)
        more = {"block": block, "validation": validation, "platform": self.layout.device.platform}
        return of(data.train, self.longest.train, shortest=self.shortest, **more)

    def prepare(self, method: Algorithm, clients: jax.Array, states: State, data: Data) -> State:
        """What these clients do alone before the first round."""

        def of_client(client: jax.Array, given: tuple[State, Examples | None]) -> State:
            return self.prepared(method, data, client, *given)

        return over_clients(of_client, clients, self.chunk, (states, data.blocks))

    def prepared(
        self, method: Algorithm, data: Data, client: jax.Array, state: State, block: Examples | None = None
    ) -> State:
        """One client's state after what it does alone before the first round."""
        assert method.prepare is not None
        shared = randomness.purpose_key(data.seed, Purpose.PREPARE)
        f = self.exact.objective(data, client, 0, block)
        new = method.prepare(state, f, randomness.client_key(shared, data.client_ids[client]))
        return trees.where(trees.finite(new), new, state)

    def cohort(self, data: Data, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The clients of all devices and which of their slots are taken, both (devices, slots).

        The clients of a chunk wait for the one with most rows, so clients of like sizes come together.
        """
        devices = self.layout.devices
        if self.in_place:
            everyone = jnp.arange(devices * self.slots).reshape(devices, self.slots)
            return jnp.minimum(everyone, self.layout.population - 1), everyone < self.layout.population
        one_host = self.layout.hosts == 1
        slots = jnp.arange(self.slots * devices if one_host else self.sampling.capacity)
        if self.sampling.full:
            everyone, taken = jnp.minimum(slots, self.layout.population - 1), slots < self.layout.population
        else:
            everyone, taken, _ = self.sampling.cohort(data.seed, number, slots)
        order = jnp.argsort(jnp.where(taken, -data.train.sizes[everyone], 1))
        everyone, taken = everyone[order], taken[order]
        # Slots are dealt out to the devices in turn, so that a small cohort, and its large clients, are spread evenly.
        if one_host:
            return everyone.reshape(self.slots, devices).T, taken.reshape(self.slots, devices).T
        return self._at_home(everyone, taken)

    def of_host(self, whole: jax.Array) -> jax.Array:
        """Of (devices, slots), those of this device's host."""
        return whole.reshape(self.layout.hosts, self.layout.host_devices, -1)[lax.axis_index(HOSTS)]

    def _at_home(self, cohort: jax.Array, taken: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The cohort as (devices, slots), each client in a slot of its own host, whose devices take them in turn."""
        hosts, devices, rows = self.layout.hosts, self.layout.host_devices, self.layout.host_clients
        home = jnp.where(taken, cohort // rows, hosts)
        before = jnp.cumsum(home[:, None] == jnp.arange(hosts), axis=0)
        turn = jnp.take_along_axis(before, jnp.minimum(home, hosts - 1)[:, None], axis=1)[:, 0] - 1
        place = home, turn % devices, turn // devices
        nobody = jnp.minimum(jnp.arange(hosts) * rows, self.layout.population - 1).astype(cohort.dtype)
        empty = jnp.broadcast_to(nobody[:, None, None], (hosts, devices, self.slots))
        clients = empty.at[place].set(cohort, mode="drop").reshape(-1, self.slots)
        return clients, jnp.zeros(empty.shape, bool).at[place].set(taken, mode="drop").reshape(-1, self.slots)

    def catching_up(self, data: Data, number: jax.Array, clients: jax.Array, taken: jax.Array) -> jax.Array:
        """How many of these took no part in the round before, and so do not hold the current broadcast."""
        if self.sampling.full:
            return jnp.where(number == 0, jnp.sum(taken, dtype=jnp.int32), 0)
        before, there, _ = self.sampling.cohort(data.seed, number - 1, jnp.arange(self.sampling.capacity))
        ordered = jnp.sort(jnp.where(there & (number > 0), before, -1))
        again = ordered[jnp.searchsorted(ordered, clients).clip(0, ordered.size - 1)] == clients
        return jnp.sum(taken & ~again, dtype=jnp.int32)

    def _everywhere(self, sums: Sums) -> tuple[Total, jax.Array, jax.Array]:
        """All devices' uploads added up, the most steps that any client took, and the sum of their emphases.

        Devices wait for each other in every exchange, so a small model's numbers all travel in one.
        """
        real = sums.weight.dtype
        mine = jnp.arange(self.layout.devices) == lax.axis_index(AXIS)
        numbers = (sums.weight, sums.uploads, jnp.where(mine, sums.steps.astype(real), 0), sums.emphasis)
        leaves = jax.tree.leaves(sums.values)
        if trees.count(sums.values) <= ONE_EXCHANGE and all(leaf.dtype == real for leaf in leaves):
            flat, unravel = ravel_pytree((sums.values, numbers))
            values, (weight, count, steps, emphasis) = unravel(lax.psum(flat, AXIS))
        else:
            values, (weight, count, steps, emphasis) = lax.psum((sums.values, numbers), AXIS)
        population = jnp.asarray(self.layout.population, jnp.int32)
        return Total(values, weight, count.astype(jnp.int32), population), jnp.max(steps).astype(jnp.int32), emphasis

    def counted(self, counts: jax.Array, clients: jax.Array, new: jax.Array) -> jax.Array:
        """This device's count for every client, with the new ones of its slots added."""
        if not self.in_place:
            return counts.at[clients].add(new)
        place = jnp.arange(self.layout.population) - clients[0]
        mine = (place >= 0) & (place < self.slots)
        return counts + keep(mine, new[jnp.where(mine, place, 0)])

    def _pieces(self, taken: jax.Array) -> jax.Array | int:
        """How many chunks have work: all, unless the cohort's size is drawn, or a host's share of it."""
        if self.sampling.full or (self.sampling.probability is None and self.layout.hosts == 1):
            return -(-len(taken) // self.chunk)
        last = jnp.max(jnp.where(taken, jnp.arange(len(taken)) + 1, 0))
        return (last + self.chunk - 1) // self.chunk


def _kept(held: State) -> State:
    """States without what a round needs beside them."""
    return held.state if isinstance(held, Pending) else held
