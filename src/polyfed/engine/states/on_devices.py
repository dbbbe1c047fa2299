"""A federation whose clients' states live on the devices: any number of rounds is one call of one program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import jax
import numpy as np

from polyfed.algorithms.contract import Server, State
from polyfed.core import trees
from polyfed.core.trees import Tree
from polyfed.engine import hosts
from polyfed.engine.checkpoint.checkpoint import Snapshot
from polyfed.engine.measure import FineTune
from polyfed.engine.programs import Programs
from polyfed.engine.round.records import Carry, Tally
from polyfed.engine.states.feed import Fed
from polyfed.engine.states.shared_parts import SharedParts
from polyfed.problem.problem import precision

SENT_BYTES = 64 << 20
"""The most that one exchange of clients' states between processes takes."""


class Counts(NamedTuple):
    """What happened in a stretch of rounds: a `Tally` of all devices, as plain numbers."""

    participants: int
    catching_up: int
    iterations: int
    bits: int
    empty: int

    @classmethod
    def of(cls, tally: Tally) -> Counts:
        return cls(**{name: int(value) for name, value in tally._asdict().items() if name != "shares"})

    def plus(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))


class Residence(Protocol):
    """Where the server's and the clients' states are between rounds."""

    @property
    def server(self) -> Server: ...

    @property
    def excluded(self) -> dict[int, int]:
        """How often a client's update was not finite, of those with any."""
        ...

    @property
    def shares(self) -> np.ndarray:
        """Each client's share of the server's averages, summed over the rounds."""
        ...

    def prepare(self) -> None:
        """What clients do alone before round 1."""

    def advance(self, first: int, count: int) -> Counts:
        """Run `count` rounds from round `first` on."""
        ...

    def measure(self, clients: np.ndarray, finetune: FineTune | None, on_test: bool) -> Tree:
        """{model: {split: metrics, an entry for each of these clients}}."""

    def over(
        self, clients: np.ndarray, function: Callable[[Fed, State], Tree], most: int
    ) -> Iterator[tuple[np.ndarray, Tree]]:
        """`function(rows of all splits, states)` of these clients, at most so many on a device at a time.

        Each block says whose it is: clients in ascending order, and an entry per client on each array.
        """
        ...

    def own_share(self, clients: np.ndarray) -> np.ndarray: ...

    def state(self, client: int) -> State:
        """One client's state."""

    def personal(self, clients: np.ndarray) -> Iterator[Tree]:
        """These clients' deployed models, in blocks of clients in their order."""
        ...

    def states(self) -> State:
        """Every client's state, a leading client axis on each array."""

    def rows(self) -> tuple[np.ndarray, Iterable[State]]:
        """The clients whose states differ from the start, and those states in blocks, in the same order."""
        ...

    def restore(self, state: Snapshot) -> None:
        """Put everything to where it was left off."""


class Pending(NamedTuple):
    """What the rounds read and write, before anybody asks for the clients' states, which may be large."""

    server: Server
    excluded: np.ndarray
    make: Callable[[], Carry]


class Resident:
    """Each device owns a block of clients."""

    def __init__(self, programs: Programs, server: Server, start: State, parts: SharedParts) -> None:
        self.programs, self.layout, self._parts = programs, programs.layout, parts
        self._start = start
        self.shares = np.zeros(self.layout.population)
        self._device: Carry | None = None
        self._host: Carry | Pending | None = Pending(
            server, np.zeros(self.layout.population, np.int32), lambda: self._beginning(server)
        )

    def _beginning(self, server: Server) -> Carry:
        excluded: Tree = np.zeros(self.layout.population, np.int32)
        blank = Tally.zero(self.layout.population, np.zeros)
        return Carry(server, self._stacked(self._start), excluded, blank, self._past([]))

    @property
    def _carry(self) -> Carry:
        """All that the rounds read and write, on the devices: brought there when they are first needed."""
        if self._device is None:
            host = self._on_host
            wide = any(leaf.dtype == np.float64 for leaf in jax.tree.leaves(host.tally))
            with precision("float64" if wide else "float32"):  # that of the run, whoever asks
                self._device = self._placed(host.server, host.clients, np.asarray(host.excluded), host.norms)
            self._host = None
        return self._device

    @_carry.setter
    def _carry(self, carry: Carry) -> None:
        self._device, self._host = carry, None

    @property
    def _on_host(self) -> Carry:
        assert self._host is not None, "these states were dropped"
        if isinstance(self._host, Pending):
            self._host = self._host.make()
        return self._host

    @property
    def _somewhere(self) -> Carry:
        return self._on_host if self._device is None else self._device

    @property
    def server(self) -> Server:
        return self._host.server if isinstance(self._host, Pending) else self._somewhere.server

    @property
    def excluded(self) -> dict[int, int]:
        here = self._host if isinstance(self._host, Pending) else self._somewhere
        counts = np.asarray(here.excluded)
        return {int(client): int(counts[client]) for client in np.flatnonzero(counts)}

    @property
    def norms(self) -> list[float]:
        """The median norms of the uploads of past rounds, where the next one is bounded by them."""
        past = self._somewhere.norms
        return [] if past is None else [float(norm) for norm in np.asarray(past) if not np.isnan(norm)]

    @property
    def carry(self) -> Carry:
        """All that the rounds read and write, on the host: what `settle` takes."""
        return jax.device_get(self._somewhere)

    def settle(self, carry: Carry | Pending) -> None:
        """Go on from there."""
        self._host, self._device = carry, None

    def fetch(self) -> None:
        """Bring states that somebody else has to the host."""
        if isinstance(self._host, Pending):
            self._host = self._host.make()

    def drop(self) -> None:
        """Forget all states, to make room: the run has ended, and nobody asks for them any more."""
        self._host = self._device = None

    def prepare(self) -> None:
        if self.programs.method.prepare is not None:
            states = self.programs.prepare(self.programs.everyone, self._carry.clients)
            self._carry = self._carry._replace(clients=states)

    def advance(self, first: int, count: int) -> Counts:
        self._carry = jax.block_until_ready(self.programs.advance(self._carry, first, count))
        tally = jax.device_get(self._carry.tally)
        self.shares += np.asarray(tally.shares)
        return Counts.of(tally)

    def measure(self, clients: np.ndarray, finetune: FineTune | None, on_test: bool) -> Tree:
        here, states, real = self._of(clients)
        return self._fetched(self.programs.measure(self._carry.server, here, states, finetune, on_test), real)

    def over(
        self, clients: np.ndarray, function: Callable[[Fed, State], Tree], most: int
    ) -> Iterator[tuple[np.ndarray, Tree]]:
        everyone = self.layout.hosts == 1 and len(clients) == self.layout.population
        if everyone and self.layout.clients_each <= most:  # their states need not move
            here, states, real = self._of(clients)
            values = function(Fed(here, self.programs.data, self.programs.splits), states)
            yield clients, self._fetched(values, real)
            return
        for slots, real in self.layout.at_home(clients, most):
            here = self.programs.placed(self.layout.own(slots).reshape(-1))
            fed = Fed(here, self.programs.data, self.programs.splits)
            values = function(fed, self.programs.lent(self._carry.clients, slots))
            yield slots[real], self._fetched(values, real)

    def own_share(self, clients: np.ndarray) -> np.ndarray:
        here, states, real = self._of(clients)
        return self._fetched(self.programs.own_share(here, states), real)

    def state(self, client: int) -> State:
        if self.layout.hosts == 1:
            return jax.tree.map(lambda leaf: leaf[client], self._carry.clients)
        owner, place = divmod(client, self.layout.host_clients)
        return hosts.sent(jax.tree.map(lambda leaf: self.layout.local(leaf)[place], self._carry.clients), owner)

    def personal(self, clients: np.ndarray) -> Iterator[Tree]:
        here, states, real = self._of(clients)
        return self._blocks(self.programs.personal(self._carry.server, here, states), real)

    def states(self) -> State:
        return self._fetched(self._carry.clients, self._real)

    def rows(self) -> tuple[np.ndarray, Iterable[State]]:
        everyone, states = np.arange(self.layout.population, dtype=np.int32), self._parts.without(self._carry.clients)
        if self.layout.hosts == 1:
            return everyone, [self._fetched(states, self._real)]
        return everyone, self._blocks(states, self._real)

    def restore(self, state: Snapshot) -> None:
        states = jax.tree.map(np.array, self._stacked(self._start))
        done = 0
        for block in state.rows:
            count = trees.length(block)
            clients = state.clients[done : done + count]
            mine = self.layout.owned(clients)
            kept = self._parts.without(states)
            for whole, part in zip(jax.tree.leaves(kept), jax.tree.leaves(block), strict=True):
                whole[clients[mine] - self.layout.here.start] = part[mine]
            done += count
        self.shares, excluded = np.zeros(self.layout.population), np.zeros(self.layout.population, np.int32)
        self.shares[state.clients], excluded[state.clients] = state.shares, state.excluded
        self._carry = self._placed(state.server, states, excluded, self._past(state.norms))

    @property
    def _real(self) -> np.ndarray:
        """Which of everybody's (devices, slots) do not only fill up the devices."""
        layout = self.layout
        return (np.arange(layout.devices * layout.clients_each) < layout.population).reshape(
            layout.devices, layout.clients_each
        )

    def _of(self, clients: np.ndarray) -> tuple[jax.Array, State, np.ndarray]:
        """Clients and their states on the devices, and which of the (devices, slots) do not only fill up."""
        if len(clients) == self.layout.population:
            return self.programs.everyone, self._carry.clients, self._real
        [(slots, real)] = self.layout.at_home(clients)
        here = self.programs.placed(self.layout.own(slots).reshape(-1))
        return here, self.programs.lent(self._carry.clients, slots), real

    def _placed(self, server: Server, states: State, excluded: np.ndarray, past: Tree) -> Carry:
        blank = Tally.zero(self.layout.population, np.zeros)
        placed_server, counts, tally, norms = self.programs.everywhere((server, excluded, blank, past))
        return Carry(placed_server, jax.tree.map(self.programs.placed, states), counts, tally, norms)

    def _past(self, norms: Sequence[float]) -> Tree:
        """The norms of past rounds as the next one reads them; None where it reads none."""
        singles = self.programs.singles
        return None if singles is None else singles.past(norms)

    def _fetched(self, tree: Tree, real: np.ndarray) -> Tree:
        """Arrays with an entry per slot, without those that only fill up the devices."""
        return jax.tree.map(lambda leaf: leaf[real.reshape(-1)], self.programs.fetched(tree))

    def _blocks(self, tree: Tree, real: np.ndarray) -> Iterator[Tree]:
        """The same in the clients' order: host by host, so many at a time that little is sent."""
        mine = jax.tree.map(self.layout.local, tree)
        if not jax.tree.leaves(mine):
            return
        size = max(1, SENT_BYTES * trees.length(mine) // max(1, trees.bits(mine) // 8))
        for host, count in enumerate(np.sum(real.reshape(self.layout.hosts, -1), axis=1).tolist()):
            for first in range(0, count, size):
                piece = slice(first, min(first + size, count))
                yield hosts.sent(jax.tree.map(lambda leaf, piece=piece: leaf[piece], mine), host)

    def _stacked(self, start: State) -> State:
        """One copy of the state for each client of this process, and a few to fill up the devices."""
        rows, here = self.layout.host_clients, self.layout.here
        stacked = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (rows, *np.shape(leaf))), start)
        mine = np.minimum(np.arange(here.start, here.stop), self.layout.population - 1)
        return self._parts.joined(stacked, mine)
