"""A federation whose clients' states live on the devices: any number of rounds is one call of one program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from polyfed import hosts, trees
from polyfed.algorithms.base import Server, State
from polyfed.engine.checkpoint import Snapshot
from polyfed.engine.measure import FineTune
from polyfed.engine.programs import Programs
from polyfed.engine.records import Carry, Tally
from polyfed.trees import Tree

SENT_BYTES = 64 << 20
"""The most that one exchange of clients' states between processes takes."""


class Counts(NamedTuple):
    """What happened in a stretch of rounds: a `Tally` of all devices, as plain numbers."""

    participants: int
    newcomers: int
    iterations: int
    bits: int
    empty: int
    shares: np.ndarray

    def plus(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))  # pyright: ignore[reportArgumentType]


class Residence(Protocol):
    """Where the server's and the clients' states are between rounds."""

    @property
    def server(self) -> Server: ...

    @property
    def excluded(self) -> np.ndarray:
        """How often each client's update was not finite."""
        ...

    def prepare(self) -> None:
        """What clients do alone before round 1."""

    def advance(self, first: int, count: int) -> Counts:
        """Run `count` rounds from round `first` on."""
        ...

    def measure(self, finetune: FineTune | None, on_test: bool) -> Any:
        """{model: {split: metrics, an entry per client}}."""

    def own_share(self) -> np.ndarray: ...

    def state(self, client: int) -> State:
        """One client's state."""

    def personal(self) -> Iterator[Tree]:
        """Every client's deployed model, in blocks of clients in their order."""
        ...

    def states(self) -> State:
        """Every client's state, a leading client axis on each array."""

    def rows(self) -> tuple[np.ndarray, Iterable[State]]:
        """The clients whose states differ from the start, and those states in blocks, in the same order."""
        ...

    def restore(self, state: Snapshot) -> None:
        """Put everything to where it was left off."""


class Resident:
    """Each device owns a block of clients."""

    def __init__(self, programs: Programs, server: Server, start: State) -> None:
        self.programs, self.layout = programs, programs.layout
        self._start = start
        excluded = np.zeros(self.layout.population, np.int32)
        everyone = np.arange(self.layout.here.start, self.layout.here.stop, dtype=np.int32)
        self._everyone = programs.placed(np.minimum(everyone, self.layout.population - 1))
        self._carry = self._placed(server, self._stacked(start), excluded)

    @property
    def server(self) -> Server:
        return self._carry.server

    @property
    def excluded(self) -> np.ndarray:
        return np.asarray(self._carry.excluded)

    def prepare(self) -> None:
        if self.programs.method.prepare is not None:
            states = self.programs.prepare(self._everyone, self._carry.clients)
            self._carry = self._carry._replace(clients=states)

    def advance(self, first: int, count: int) -> Counts:
        self._carry = jax.block_until_ready(self.programs.advance(self._carry, first, count))
        tally = jax.device_get(self._carry.tally)
        counts = {name: int(value) for name, value in tally._asdict().items() if name != "shares"}
        return Counts(**counts, shares=np.asarray(tally.shares, float))

    def measure(self, finetune: FineTune | None, on_test: bool) -> Any:
        found = self.programs.measure(self.server, self._everyone, self._carry.clients, finetune, on_test)
        return self._unpadded(self.programs.fetched(found))

    def own_share(self) -> np.ndarray:
        return self._unpadded(self.programs.fetched(self.programs.own_share(self._everyone, self._carry.clients)))

    def state(self, client: int) -> State:
        if self.layout.hosts == 1:
            return jax.tree.map(lambda leaf: leaf[client], self._carry.clients)
        owner, place = divmod(client, self.layout.host_rows)
        return hosts.sent(jax.tree.map(lambda leaf: self.layout.local(leaf)[place], self._carry.clients), owner)

    def personal(self) -> Iterator[Tree]:
        return self._blocks(self.programs.personal(self.server, self._everyone, self._carry.clients))

    def states(self) -> State:
        return self._unpadded(self.programs.fetched(self._carry.clients))

    def rows(self) -> tuple[np.ndarray, Iterable[State]]:
        everyone = np.arange(self.layout.population, dtype=np.int32)
        return everyone, [self.states()] if self.layout.hosts == 1 else self._blocks(self._carry.clients)

    def restore(self, state: Snapshot) -> None:
        states = jax.tree.map(np.array, self._stacked(self._start))
        done = 0
        for block in state.rows:
            count = trees.length(block)
            places = state.clients[done : done + count] - self.layout.here.start
            mine = (places >= 0) & (places < self.layout.host_rows)
            for whole, part in zip(jax.tree.leaves(states), jax.tree.leaves(block), strict=True):
                whole[places[mine]] = part[mine]
            done += count
        self._carry = self._placed(state.server, states, state.excluded)

    def _placed(self, server: Server, states: State, excluded: np.ndarray) -> Carry:
        everywhere = self.programs.everywhere
        clients = jax.tree.map(self.programs.placed, states)
        return Carry(everywhere(server), clients, everywhere(excluded), everywhere(Tally.zero(self.layout.population)))

    def _blocks(self, tree: Tree) -> Iterator[Tree]:
        """Arrays with an entry per client, in their order: host by host, so many at a time that little is sent."""
        mine = jax.tree.map(self.layout.local, tree)
        size = max(1, SENT_BYTES * trees.length(mine) // max(1, trees.bits(mine) // 8))
        for host in range(self.layout.hosts):
            left = min(self.layout.host_rows, self.layout.population - host * self.layout.host_rows)
            for first in range(0, left, size):
                piece = slice(first, min(first + size, left))
                yield hosts.sent(jax.tree.map(lambda leaf, piece=piece: leaf[piece], mine), host)

    def _stacked(self, start: State) -> State:
        """One copy of the state for each client of this process, and a few to fill up the devices."""
        rows = self.layout.host_rows
        return jax.tree.map(lambda leaf: np.broadcast_to(leaf, (rows, *np.shape(leaf))), start)

    def _unpadded(self, tree: Tree) -> Tree:
        return jax.tree.map(lambda leaf: leaf[: self.layout.population], tree)
