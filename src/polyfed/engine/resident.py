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
    shares: np.ndarray

    @classmethod
    def of(cls, tally: Tally) -> Counts:
        counts = {name: int(value) for name, value in tally._asdict().items() if name != "shares"}
        return cls(**counts, shares=np.asarray(tally.shares, float))

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
        self._everyone = programs.placed(self._padded(np.arange(self.layout.population, dtype=np.int32)))
        self._carry = self._placed(server, self._stacked(start), excluded)

    @property
    def server(self) -> Server:
        return self._carry.server

    @property
    def excluded(self) -> np.ndarray:
        return np.asarray(self._carry.excluded)

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
        return Counts.of(jax.device_get(self._carry.tally))

    def measure(self, finetune: FineTune | None, on_test: bool) -> Any:
        found = self.programs.measure(self.server, self._everyone, self._carry.clients, finetune, on_test)
        return self._unpadded(jax.device_get(found))

    def own_share(self) -> np.ndarray:
        return self._unpadded(np.asarray(self.programs.own_share(self._everyone, self._carry.clients)))

    def state(self, client: int) -> State:
        return jax.tree.map(lambda leaf: leaf[client], self._carry.clients)

    def personal(self) -> Iterator[Tree]:
        found = self.programs.personal(self.server, self._everyone, self._carry.clients)
        yield self._unpadded(jax.tree.map(np.asarray, found))

    def states(self) -> State:
        return self._unpadded(jax.tree.map(np.asarray, self._carry.clients))

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
        self._carry = self._placed(state.server, states, state.excluded)

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

    def _unpadded(self, tree: Tree) -> Tree:
        return jax.tree.map(lambda leaf: leaf[: self.layout.population], tree)
