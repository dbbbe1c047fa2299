"""A federation whose clients' states live on the devices: any number of rounds is one call of one program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from polyfed import trees
from polyfed.algorithms.base import Server, State
from polyfed.engine.checkpoint import Snapshot
from polyfed.engine.measure import FineTune
from polyfed.engine.programs import Programs
from polyfed.engine.records import Carry, Tally
from polyfed.trees import Tree


class Counts(NamedTuple):
    """What happened in a stretch of rounds: a `Tally` of all devices, as plain numbers."""

    participants: int
    newcomers: int
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

    def measure(self, clients: np.ndarray, finetune: FineTune | None, on_test: bool) -> Any:
        """{model: {split: metrics, an entry for each of these clients}}."""

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


class Resident:
    """Each device owns a block of clients."""

    def __init__(self, programs: Programs, server: Server, start: State) -> None:
        self.programs, self.layout = programs, programs.layout
        self._start = start
        excluded = np.zeros(self.layout.population, np.int32)
        self.shares = np.zeros(self.layout.population)
        self._everyone = programs.placed(self._padded(np.arange(self.layout.population, dtype=np.int32)))
        self._carry = self._placed(server, self._stacked(start), excluded)

    @property
    def server(self) -> Server:
        return self._carry.server

    @property
    def excluded(self) -> dict[int, int]:
        counts = np.asarray(self._carry.excluded)
        return {int(client): int(counts[client]) for client in np.flatnonzero(counts)}

    @property
    def carry(self) -> Carry:
        """All that the rounds read and write, on the host: what `settle` takes."""
        return jax.device_get(self._carry)

    def settle(self, carry: Carry) -> None:
        """Go on from there."""
        self._carry = self._placed(carry.server, carry.clients, np.asarray(carry.excluded))

    def prepare(self) -> None:
        if self.programs.method.prepare is not None:
            states = self.programs.prepare(self._everyone, self._carry.clients)
            self._carry = self._carry._replace(clients=states)

    def advance(self, first: int, count: int) -> Counts:
        self._carry = jax.block_until_ready(self.programs.advance(self._carry, first, count))
        tally = jax.device_get(self._carry.tally)
        self.shares += np.asarray(tally.shares)
        return Counts.of(tally)

    def measure(self, clients: np.ndarray, finetune: FineTune | None, on_test: bool) -> Any:
        found = self.programs.measure(self.server, *self._of(clients), finetune, on_test)
        return _first(len(clients), jax.device_get(found))

    def own_share(self, clients: np.ndarray) -> np.ndarray:
        return _first(len(clients), np.asarray(self.programs.own_share(*self._of(clients))))

    def state(self, client: int) -> State:
        return jax.tree.map(lambda leaf: leaf[client], self._carry.clients)

    def personal(self, clients: np.ndarray) -> Iterator[Tree]:
        found = self.programs.personal(self.server, *self._of(clients))
        yield _first(len(clients), jax.tree.map(np.asarray, found))

    def states(self) -> State:
        return _first(self.layout.population, jax.tree.map(np.asarray, self._carry.clients))

    def rows(self) -> tuple[np.ndarray, Iterable[State]]:
        return np.arange(self.layout.population, dtype=np.int32), [self.states()]

    def restore(self, state: Snapshot) -> None:
        states = jax.tree.map(np.array, self._stacked(self._start))
        done = 0
        for block in state.rows:
            count = trees.length(block)
            for whole, part in zip(jax.tree.leaves(states), jax.tree.leaves(block), strict=True):
                whole[state.clients[done : done + count]] = part
            done += count
        self.shares, excluded = np.zeros(self.layout.population), np.zeros(self.layout.population, np.int32)
        self.shares[state.clients], excluded[state.clients] = state.shares, state.excluded
        self._carry = self._placed(state.server, states, excluded)

    def _of(self, clients: np.ndarray) -> tuple[jax.Array, State]:
        """Clients and their states on the devices, in this order; a few more may stand at the end."""
        if len(clients) == self.layout.population:
            return self._everyone, self._carry.clients
        devices = self.layout.devices
        slots = np.resize(clients, (devices, -(-len(clients) // devices)))
        return self.programs.placed(slots.reshape(-1)), self.programs.lent(self._carry.clients, slots)

    def _placed(self, server: Server, states: State, excluded: np.ndarray) -> Carry:
        everywhere = self.programs.everywhere
        clients = jax.tree.map(self.programs.placed, states)
        return Carry(everywhere(server), clients, everywhere(excluded), everywhere(Tally.zero(self.layout.population)))

    def _stacked(self, start: State) -> State:
        """One copy of the state for each client, and a few to fill up the devices."""
        rows = self.layout.rows * self.layout.devices
        return jax.tree.map(lambda leaf: np.broadcast_to(leaf, (rows, *np.shape(leaf))), start)

    def _padded(self, leaf: np.ndarray) -> np.ndarray:
        spare = self.layout.rows * self.layout.devices - len(leaf)
        return np.concatenate([leaf, np.repeat(leaf[-1:], spare, axis=0)]) if spare else leaf


def _first(count: int, tree: Tree) -> Tree:
    """Without what only fills up the devices."""
    return jax.tree.map(lambda leaf: leaf[:count], tree)
