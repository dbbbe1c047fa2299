"""A federation whose clients' states live outside the devices: they come to them wave by wave, and go back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from polyfed import trees
from polyfed.algorithms.base import Server, State
from polyfed.engine.checkpoint import Snapshot
from polyfed.engine.devices import Layout
from polyfed.engine.measure import FineTune
from polyfed.engine.programs import Programs
from polyfed.engine.records import Slots
from polyfed.engine.resident import Counts
from polyfed.engine.rows import ClientRows
from polyfed.errors import PolyfedError
from polyfed.machine import memory_bytes
from polyfed.trees import Tree

Store = Literal["auto", "device", "host", "disk"]
STORES = ("auto", "device", "host", "disk")
WAVE_BYTES = 256 << 20
"""The most that the states of one wave may take on a device, unless a chunk takes more."""
CPU_SHARE, ACCELERATOR_SHARE, HOST_SHARE = 16, 4, 2
"""States stay on a CPU's or an accelerator's devices, or in memory, while they take at most one part in so many."""


def choose(store: str, state_bytes: int, layout: Layout) -> str:
    """Where to keep states that take so much in all: on the devices, in memory, or in a file."""
    if store not in STORES:
        raise PolyfedError(f"store must be one of {', '.join(STORES)}, found {store!r}")
    if store != "auto":
        return store
    memory = memory_bytes()
    device = layout.mesh.devices.flat[0]
    if device.platform == "cpu":
        fits = state_bytes <= memory // CPU_SHARE
    else:
        limit = (device.memory_stats() or {}).get("bytes_limit", 16 << 30)
        fits = state_bytes // layout.devices <= limit // ACCELERATOR_SHARE
    if fits:
        return "device"
    return "host" if state_bytes <= memory // HOST_SHARE else "disk"


class Streamed:
    """The states are rows in memory or in a file; a round's cohort passes through the devices in waves.

    The order of all sums is that of `Resident`, so that both end in the same numbers but for rounding. Who was never in
    a cohort has no row: what it does alone before round 1 is done when it is first needed.
    """

    def __init__(self, programs: Programs, server: Server, start: State, folder: Path | None = None) -> None:
        self.programs, self.layout = programs, programs.layout
        self.server = programs.everywhere(server)
        self.excluded = np.zeros(self.layout.population, np.int32)
        self._start = jax.tree.map(np.asarray, start)
        self._rows = ClientRows(self.layout.population, start, folder)
        most = WAVE_BYTES // max(1, self._rows.row_bytes)
        round = programs.round
        self._wave = round.slots if most >= round.slots else max(1, most // round.chunk) * round.chunk
        self._block = min(self.layout.rows, max(programs.measure_chunk, most))

    def prepare(self) -> None:
        """Nothing yet: see `_states`."""

    def advance(self, first: int, count: int) -> Counts:
        total = Counts(0, 0, 0, 0, 0, np.zeros(self.layout.population))
        for number in range(first, first + count):
            total = total.plus(self._round(number))
        return total

    def measure(self, finetune: FineTune | None, on_test: bool) -> Any:
        def found(clients: jax.Array, states: State) -> Any:
            return self.programs.measure(self.server, clients, states, finetune, on_test)

        return _joined(self._over_all(found))

    def own_share(self) -> np.ndarray:
        return _joined(self._over_all(self.programs.own_share))

    def state(self, client: int) -> State:
        clients = np.full((self.layout.devices, 1), client, np.int32)
        return jax.tree.map(lambda leaf: leaf[0], self._states(clients, np.ones_like(clients, bool)))

    def personal(self) -> Iterator[Tree]:
        def found(clients: jax.Array, states: State) -> Tree:
            return self.programs.personal(self.server, clients, states)

        return self._over_all(found)

    def states(self) -> State:
        return _joined(self._over_all(lambda _, states: states))

    def rows(self) -> tuple[np.ndarray, Iterable[State]]:
        return self._rows.stored, map(self._rows.take, self._rows.blocks(self._block))

    def restore(self, state: Snapshot) -> None:
        self.server, self.excluded = self.programs.everywhere(state.server), np.array(state.excluded)
        self._rows.clear()
        done = 0
        for block in state.rows:
            count = trees.length(block)
            self._rows.put(state.clients[done : done + count], block)
            done += count

    def _round(self, number: int) -> Counts:
        programs, method = self.programs, self.programs.method
        cohort, taken = self._filled(*programs.cohort(number))
        good, silent = np.zeros_like(taken), np.zeros_like(taken)
        bits, emphasis = np.zeros(taken.shape, np.uint64), np.zeros(taken.shape)
        waves = [wave for wave in _slices(taken.shape[1], self._wave) if taken[:, wave].any()]
        sums = programs.nothing(self.server, self._start)

        def keep(wave: slice, states: State, slots: Slots) -> None:
            self._keep(cohort[:, wave], taken[:, wave], states)
            for values, new in zip((good, silent, bits, emphasis), slots, strict=True):
                values[:, wave] = np.asarray(new).reshape(self.layout.devices, -1)

        before = None
        for wave in waves:
            states = self._states(cohort[:, wave], taken[:, wave])  # read while the wave before is computed
            clients, here = self._placed(cohort[:, wave]), self._placed(taken[:, wave])
            sums, states, slots = programs.local(self.server, number, clients, here, states, sums)
            if before is not None:
                keep(*before)
            before = wave, states, slots
        if before is not None:
            keep(*before)
        self.server, count, steps, whole = programs.update(self.server, sums)
        sent = taken & ~silent
        newcomers = 0
        if method.absorb is not None:
            newcomers = self._newcomers(number, cohort[sent])
            for wave in waves:
                states = self._states(cohort[:, wave], taken[:, wave])
                clients, fine = self._placed(cohort[:, wave]), self._placed(good[:, wave])
                states = programs.absorb(self.server, number, clients, fine, states)
                self._keep(cohort[:, wave], good[:, wave], states)
        np.add.at(self.excluded, cohort[taken & ~good], 1)
        shares = np.zeros(self.layout.population)
        np.add.at(shares, cohort[good], emphasis[good] / (float(whole) or 1.0))
        empty = int(count) == 0 and bool(taken.any())
        return Counts(int(sent.sum()), newcomers, int(steps), int(bits.sum()), int(empty), shares)

    def _filled(self, cohort: np.ndarray, taken: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A cohort with empty slots at its end, so that it comes out in whole waves."""
        more = ((0, 0), (0, -cohort.shape[1] % self._wave))
        return np.pad(cohort, more), np.pad(taken, more)

    def _newcomers(self, number: int, clients: np.ndarray) -> int:
        """How many of these took no part in the round before, and so do not hold the current broadcast."""
        if number == 0:
            return len(clients)
        before, taken = self.programs.cohort(number - 1)
        return int(np.sum(~np.isin(clients, before[taken])))

    def _over_all(self, function: Callable[[jax.Array, State], Any]) -> Iterator[Any]:
        """`function(clients, states)` of all clients in their order, in blocks."""
        devices, population = self.layout.devices, self.layout.population
        for part in _slices(population, self._block * devices):
            clients = part.start + np.arange(self._block * devices, dtype=np.int32)
            clients = np.minimum(clients, population - 1).reshape(devices, -1)
            states = self._states(clients, np.ones_like(clients, bool))
            found = jax.device_get(function(self._placed(clients), states))
            yield jax.tree.map(lambda leaf, size=part.stop - part.start: leaf[:size], found)

    def _states(self, clients: np.ndarray, taken: np.ndarray) -> State:
        """These clients' states on the devices, prepared if they are needed for the first time."""
        new = taken & ~self._rows.known(clients)
        if self.programs.method.prepare is not None and new.any():
            states = self.programs.prepare(self._placed(clients), self._read(clients))
            self._keep(clients, new, states)
        return self._read(clients)

    def _read(self, clients: np.ndarray) -> State:
        return jax.tree.map(self.programs.placed, self._rows.take(clients.reshape(-1)))

    def _keep(self, clients: np.ndarray, chosen: np.ndarray, states: State) -> None:
        """Write the states of the chosen ones of these clients back."""
        places = np.flatnonzero(chosen)
        once, first = np.unique(clients.reshape(-1)[places], return_index=True)
        self._rows.put(once, jax.tree.map(lambda leaf: np.asarray(leaf)[places[first]], states))

    def _placed(self, values: np.ndarray) -> jax.Array:
        """(devices, slots) on the devices."""
        return self.programs.placed(values.reshape(-1))


def _slices(length: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, length)) for first in range(0, length, size))


def _joined(blocks: Iterator[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)
