"""A federation whose clients' states live outside the devices: they come to them wave by wave, and go back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import ceil
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from polyfed import hosts, trees
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
UNEVEN = 1.5
"""A wave has room for so many times a device's share of the cohort; hosts get uneven parts of it."""
CPU_SHARE, ACCELERATOR_SHARE, HOST_SHARE = 16, 4, 2
"""States stay on a CPU's or an accelerator's devices, or in memory, while they take at most one part in so many."""


def choose(store: str, state_bytes: int, layout: Layout) -> str:
    """Where to keep states that take so much in all: on the devices, in memory, or in a file."""
    if store not in STORES:
        raise PolyfedError(f"store must be one of {', '.join(STORES)}, found {store!r}")
    if store != "auto":
        return store
    memory = memory_bytes()
    device = layout.device
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

    A process has the rows of its own clients, and `cohort[self._mine]` of the (devices, slots) of all processes.

    The order of all sums is that of `Resident`, so that both end in the same numbers but for rounding. Who was never in
    a cohort has no row: what it does alone before round 1 is done when it is first needed.
    """

    def __init__(self, programs: Programs, server: Server, start: State, folder: Path | None = None) -> None:
        self.programs, self.layout = programs, programs.layout
        self.server = programs.everywhere(server)
        self.excluded = np.zeros(self.layout.population, np.int32)
        self._start = jax.tree.map(np.asarray, start)
        self._rows = ClientRows(self.layout.population, start, folder)
        each = self.layout.devices // self.layout.hosts
        host = self.layout.here.start // self.layout.host_rows
        self._mine = slice(host * each, (host + 1) * each)
        most = WAVE_BYTES // max(1, self._rows.row_bytes)
        round = programs.round
        slots = min(round.slots, max(round.chunk, ceil(UNEVEN * programs.sampling.capacity / self.layout.devices)))
        self._wave = slots if most >= slots else max(1, most // round.chunk) * round.chunk
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

        return self._over_all(found)

    def own_share(self) -> np.ndarray:
        return self._over_all(self.programs.own_share)

    def state(self, client: int) -> State:
        clients = np.full((self.layout.devices, 1), client, np.int32)
        owner = client // self.layout.host_rows
        here = np.full_like(clients, self._mine.start // (self._mine.stop - self._mine.start) == owner, bool)
        states = self._states(clients, here)
        return hosts.sent(jax.tree.map(lambda leaf: self.layout.local(leaf)[0], states), owner)

    def personal(self) -> Iterator[Tree]:
        def found(clients: jax.Array, states: State) -> Tree:
            return self.programs.personal(self.server, clients, states)

        return self._in_order(found)

    def states(self) -> State:
        return self._over_all(lambda _, states: states)

    def rows(self) -> tuple[np.ndarray, Iterable[State]]:
        counts = hosts.gathered(np.array(len(self._rows.stored)))
        stored = [hosts.sent(np.resize(self._rows.stored, count), host) for host, count in enumerate(counts)]
        return np.concatenate(stored), self._sent_rows(stored)

    def _sent_rows(self, stored: list[np.ndarray]) -> Iterator[State]:
        """The rows of these clients of each process, in blocks."""
        for host, clients in enumerate(stored):
            for part in _slices(len(clients), self._block):
                yield hosts.sent(self._rows.take(clients[part]), host)

    def restore(self, state: Snapshot) -> None:
        self.server, self.excluded = self.programs.everywhere(state.server), np.array(state.excluded)
        self._rows.clear()
        done = 0
        for block in state.rows:
            clients = state.clients[done : done + trees.length(block)]
            mine = (clients >= self.layout.here.start) & (clients < self.layout.here.stop)
            self._rows.put(clients[mine], jax.tree.map(lambda leaf, mine=mine: leaf[mine], block))
            done += len(clients)

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
                mine = values[self._mine, wave]
                mine[:] = self.layout.local(new).reshape(mine.shape)

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
        good, silent, bits, emphasis = map(self._everybodys, (good, silent, bits, emphasis))
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

    def _everybodys(self, values: np.ndarray) -> np.ndarray:
        """(devices, slots), of which each process knows its own."""
        return hosts.gathered(values[self._mine]).reshape(values.shape)

    def _filled(self, cohort: np.ndarray, taken: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A cohort with empty slots at its end, so that it comes out in whole waves."""
        more = ((0, 0), (0, -cohort.shape[1] % self._wave))
        return np.pad(cohort, more, "edge"), np.pad(taken, more)

    def _newcomers(self, number: int, clients: np.ndarray) -> int:
        """How many of these took no part in the round before, and so do not hold the current broadcast."""
        if number == 0:
            return len(clients)
        before, taken = self.programs.cohort(number - 1)
        return int(np.sum(~np.isin(clients, before[taken])))

    def _over_all(self, function: Callable[[jax.Array, State], Any]) -> Any:
        """`function(clients, states)` of all clients, in their order."""
        found, who = [], []
        for clients, real in self._parts():
            values = self.programs.fetched(function(self._placed(clients), self._states(clients, real)))
            found.append(jax.tree.map(lambda leaf, real=real: leaf[real.reshape(-1)], values))
            who.append(clients[real])
        order = np.argsort(np.concatenate(who))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[order], *found)

    def _in_order(self, function: Callable[[jax.Array, State], Any]) -> Iterator[Any]:
        """The same in blocks, host by host: what is large need not be in memory whole."""
        for host in range(self.layout.hosts):
            for clients, real in self._parts():
                values = jax.tree.map(self.layout.local, function(self._placed(clients), self._states(clients, real)))
                count = int(np.sum(real.reshape(self.layout.hosts, -1)[host]))
                if count:
                    yield hosts.sent(jax.tree.map(lambda leaf, count=count: leaf[:count], values), host)

    def _parts(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All clients as (devices, slots), every host its next ones at a time, and which of them only fill it up."""
        layout = self.layout
        step = self._block * layout.devices // layout.hosts
        firsts = np.arange(layout.hosts)[:, None] * layout.host_rows
        ends = np.minimum(firsts + layout.host_rows, layout.population)
        for first in range(0, min(layout.host_rows, layout.population), step):
            clients = firsts + first + np.arange(step, dtype=np.int32)
            real = clients < ends
            clients = np.where(real, clients, np.minimum(firsts, layout.population - 1)).astype(np.int32)
            yield clients.reshape(layout.devices, -1), real.reshape(layout.devices, -1)

    def _states(self, clients: np.ndarray, taken: np.ndarray) -> State:
        """These clients' states on the devices, prepared if they are needed for the first time."""
        new = taken & ~self._rows.known(clients)
        if self.programs.method.prepare is not None and hosts.gathered(np.array(new[self._mine].any())).any():
            states = self.programs.prepare(self._placed(clients), self._read(clients))
            self._keep(clients, new, states)
        return self._read(clients)

    def _read(self, clients: np.ndarray) -> State:
        return jax.tree.map(self.programs.placed, self._rows.take(clients[self._mine].reshape(-1)))

    def _keep(self, clients: np.ndarray, chosen: np.ndarray, states: State) -> None:
        """Write the states of the chosen ones of these clients back."""
        places = np.flatnonzero(chosen[self._mine])
        once, first = np.unique(clients[self._mine].reshape(-1)[places], return_index=True)
        self._rows.put(once, jax.tree.map(lambda leaf: self.layout.local(leaf)[places[first]], states))

    def _placed(self, values: np.ndarray) -> jax.Array:
        """(devices, slots) on the devices."""
        return self.programs.placed(values[self._mine].reshape(-1))


def _slices(length: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, length)) for first in range(0, length, size))
