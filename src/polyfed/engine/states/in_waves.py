"""A federation whose clients' states live outside the devices: they come to them wave by wave, and go back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import ceil
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from polyfed.algorithms.contract import Server, State
from polyfed.core import trees
from polyfed.core.errors import PolyfedError
from polyfed.core.machine import memory_bytes
from polyfed.core.trees import Tree
from polyfed.engine import hosts
from polyfed.engine.checkpoint.checkpoint import Snapshot
from polyfed.engine.devices.layout import Layout
from polyfed.engine.measure import FineTune
from polyfed.engine.programs import Programs
from polyfed.engine.round.records import Slots
from polyfed.engine.states.client_rows import ClientRows
from polyfed.engine.states.feed import Fed, Feed
from polyfed.engine.states.on_devices import Counts

Store = Literal["auto", "device", "host", "disk"]
STORES = ("auto", "device", "host", "disk")
Reads = Literal["none", "training", "all"]
WAVE_BYTES = 256 << 20
"""The most that the states of one wave may take on a device, unless a chunk takes more."""
UNEVEN = 1.5
"""A wave has room for so many times a device's share of the cohort; hosts get uneven parts of it."""
CPU_SHARE, ACCELERATOR_SHARE, HOST_SHARE = 16, 4, 2
"""States stay on a CPU's or an accelerator's devices, or in memory, while they take at most one part in so many."""


def choose(store: str, state_bytes: int, layout: Layout, on_demand: bool = False) -> str:
    """Where to keep states that take so much in all: on the devices, in memory, or in a file.

    `on_demand`: the clients' rows come to the devices cohort by cohort, and so must their states.
    """
    if store not in STORES:
        raise PolyfedError(f"store must be one of {', '.join(STORES)}, found {store!r}")
    if store == "device" and on_demand:
        raise PolyfedError("store 'device' needs all rows on the devices; of a population use 'host' or 'disk'")
    if store != "auto":
        return store
    memory = memory_bytes()
    device = layout.device
    if device.platform == "cpu":
        fits = state_bytes <= memory // CPU_SHARE
    else:
        limit = (device.memory_stats() or {}).get("bytes_limit", 16 << 30)
        fits = state_bytes // layout.devices <= limit // ACCELERATOR_SHARE
    if fits and not on_demand:
        return "device"
    return "host" if state_bytes <= memory // HOST_SHARE else "disk"


class Streamed:
    """The states are rows in memory or in a file; a round's cohort passes through the devices in waves.

    A process has the rows of its own clients, and runs its own of a cohort's (devices, slots).

    The order of all sums is that of `Resident`, so that both end in the same numbers but for rounding. Who was never in
    a cohort has no row: what it does alone before round 1 is done when it is first needed.
    """

    def __init__(
        self, programs: Programs, server: Server, start: State, feed: Feed, folder: Path | None = None
    ) -> None:
        self.programs, self.layout, self._feed = programs, programs.layout, feed
        self.server = programs.everywhere(server)
        self.excluded: dict[int, int] = {}
        self.shares = np.zeros(self.layout.population)  # the system gives memory where it is written
        self._start = jax.tree.map(np.asarray, start)
        self._rows = ClientRows(self.layout.population, start, folder)
        self._cohorts: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        most = WAVE_BYTES // max(1, self._rows.row_bytes, feed.client_bytes)
        round = programs.round
        slots = min(round.slots, max(round.chunk, ceil(UNEVEN * programs.sampling.capacity / self.layout.devices)))
        self._wave = slots if most >= slots else max(1, most // round.chunk) * round.chunk
        self._block = min(self.layout.rows, max(programs.measure_chunk, most))

    def prepare(self) -> None:
        """Nothing yet: see `_states`."""

    def advance(self, first: int, count: int) -> Counts:
        total = Counts(0, 0, 0, 0, 0)
        for number in range(first, first + count):
            total = total.plus(self._round(number))
        return total

    def measure(self, clients: np.ndarray, finetune: FineTune | None, on_test: bool) -> Any:
        def found(fed: Fed, states: State) -> Any:
            return self.programs.measure(self.server, fed.clients, states, finetune, on_test, fed.data, fed.splits)

        return self._joined(clients, found, "all")

    def own_share(self, clients: np.ndarray) -> np.ndarray:
        return self._joined(clients, lambda fed, states: self.programs.own_share(fed.clients, states), "none")

    def state(self, client: int) -> State:
        found = next(self._in_order(np.array([client], np.int32), lambda _, states: states, "none"))
        return jax.tree.map(lambda leaf: leaf[0], found)

    def personal(self, clients: np.ndarray) -> Iterator[Tree]:
        def found(fed: Fed, states: State) -> Tree:
            return self.programs.personal(self.server, fed.clients, states, fed.data)

        return self._in_order(clients, found, "training")

    def states(self) -> State:
        everyone = np.arange(self.layout.population, dtype=np.int32)
        return self._joined(everyone, lambda _, states: states, "none")

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
        self.server = self.programs.everywhere(state.server)
        self.shares = np.zeros(self.layout.population)
        self.shares[state.clients] = state.shares
        broken = np.flatnonzero(state.excluded)
        self.excluded = dict(zip(state.clients[broken].tolist(), state.excluded[broken].tolist(), strict=True))
        self._rows.clear()
        done = 0
        for block in state.rows:
            clients = state.clients[done : done + trees.length(block)]
            mine = self.layout.owned(clients)
            self._rows.put(clients[mine], jax.tree.map(lambda leaf, mine=mine: leaf[mine], block))
            done += len(clients)
        left = state.clients[done:]
        self._rows.put(left[self.layout.owned(left)], self._start)  # of a method without states there are no blocks

    def _round(self, number: int) -> Counts:
        programs, method = self.programs, self.programs.method
        cohort, taken = self._cohort(number)
        good, silent = np.zeros_like(taken), np.zeros_like(taken)
        bits, emphasis = np.zeros(taken.shape, np.uint64), np.zeros(taken.shape)
        waves = self._waves(taken)
        after = [cohort[:, wave] for wave in waves[1:]]
        if method.absorb is not None and len(waves) > 1:
            after += [cohort[:, wave] for wave in waves]
        upcoming = iter([*after, self._first(number + 1)])
        sums = programs.nothing(self.server, self._start)

        def keep(wave: slice, states: State, slots: Slots) -> None:
            self._keep(cohort[:, wave], taken[:, wave], states)
            for values, new in zip((good, silent, bits, emphasis), slots, strict=True):
                mine = self.layout.own(values)[:, wave]
                mine[:] = self.layout.local(new).reshape(mine.shape)

        before, fed = None, None
        for wave in waves:
            fed = self._feed.of(self.layout.own(cohort[:, wave]))
            states = self._states(cohort[:, wave], taken[:, wave], fed)  # read while the wave before is computed
            here = self._placed(taken[:, wave])
            sums, states, slots = programs.local(self.server, number, fed.clients, here, states, sums, fed.data)
            self._begin(next(upcoming), cohort[:, wave])
            if before is not None:
                keep(*before)
            before = wave, states, slots
        if before is not None:
            keep(*before)
        good, silent, bits, emphasis = map(self._everybodys, (good, silent, bits, emphasis))
        self.server, count, steps, whole = programs.update(self.server, sums, number)
        sent = taken & ~silent
        newcomers = 0
        if method.absorb is not None:
            newcomers = self._newcomers(number, cohort[sent])
            for wave in waves:
                if fed is None or len(waves) > 1:
                    fed = self._feed.of(self.layout.own(cohort[:, wave]))
                    self._begin(next(upcoming), cohort[:, wave])
                states = self._states(cohort[:, wave], taken[:, wave], fed)
                states = programs.absorb(
                    self.server, number, fed.clients, self._placed(good[:, wave]), states, fed.data
                )
                self._keep(cohort[:, wave], good[:, wave], states)
        for client in cohort[taken & ~good].tolist():
            self.excluded[client] = self.excluded.get(client, 0) + 1
        np.add.at(self.shares, cohort[good], emphasis[good] / (float(whole) or 1.0))
        empty = int(count) == 0 and bool(taken.any())
        return Counts(int(sent.sum()), newcomers, int(steps), int(bits.sum()), int(empty))

    def _everybodys(self, values: np.ndarray) -> np.ndarray:
        """(devices, slots), of which each process knows its own."""
        return hosts.gathered(self.layout.own(values)).reshape(values.shape)

    def _cohort(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The clients of a round and which slots are taken, with empty slots at the end: they come in whole waves."""
        if number not in self._cohorts:
            cohort, taken = self.programs.cohort(number)
            more = ((0, 0), (0, -cohort.shape[1] % self._wave))
            self._cohorts = {n: found for n, found in self._cohorts.items() if abs(n - number) <= 2}
            self._cohorts[number] = np.pad(cohort, more, "edge"), np.pad(taken, more)
        return self._cohorts[number]

    def _waves(self, taken: np.ndarray) -> list[slice]:
        return [wave for wave in _slices(taken.shape[1], self._wave) if taken[:, wave].any()]

    def _first(self, number: int) -> np.ndarray | None:
        """The clients of a round's first wave, if it has any."""
        cohort, taken = self._cohort(number)
        waves = self._waves(taken)
        return cohort[:, waves[0]] if waves else None

    def _begin(self, clients: np.ndarray | None, now: np.ndarray) -> None:
        """Begin to read what the next wave needs, while the devices compute; `now`: the wave that they have."""
        if clients is not None and clients.tobytes() != now.tobytes():
            mine = self.layout.own(clients)
            self._feed.begin(mine)
            self._rows.begin(mine.reshape(-1))

    def _newcomers(self, number: int, clients: np.ndarray) -> int:
        """How many of these took no part in the round before, and so do not hold the current broadcast."""
        if number == 0:
            return len(clients)
        before, taken = self._cohort(number - 1)
        return int(np.sum(~np.isin(clients, before[taken])))

    def _over(
        self, clients: np.ndarray, function: Callable[[Fed, State], Any], rows: Reads
    ) -> Iterator[tuple[np.ndarray, np.ndarray, Any]]:
        """`function(rows, states)` of these clients, in blocks; `rows` are those that it reads.

        With it come the (devices, slots) clients that it is of, and which of them do not only fill up the devices.
        """
        reads = rows != "none" or self.programs.method.prepare is not None
        parts = list(self.layout.at_home(clients, self._block))
        for after, (some, real) in enumerate(parts, start=1):
            mine = self.layout.own(some)
            fed = self._feed.of(mine, rows == "all") if reads else self._feed.nothing(mine)
            found = function(fed, self._states(some, real, fed))
            if reads and after < len(parts):
                self._feed.begin(self.layout.own(parts[after][0]), rows == "all")
            yield some, real, found

    def _joined(self, clients: np.ndarray, function: Callable[[Fed, State], Any], rows: Reads) -> Any:
        """`function(rows, states)` of all these clients, in their order."""
        found, who = [], []
        for some, real, values in self._over(clients, function, rows):
            values = self.programs.fetched(values)
            found.append(jax.tree.map(lambda leaf, real=real: leaf[real.reshape(-1)], values))
            who.append(some[real])
        order = np.argsort(np.concatenate(who))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[order], *found)

    def _in_order(self, clients: np.ndarray, function: Callable[[Fed, State], Any], rows: Reads) -> Iterator[Any]:
        """The same in blocks, host by host: what is large need not be in memory whole."""
        for host, own in enumerate(self.layout.by_host(clients)):
            for _, real, values in self._over(own, function, rows):
                mine, count = jax.tree.map(self.layout.local, values), int(np.sum(real))
                yield hosts.sent(jax.tree.map(lambda leaf, count=count: leaf[:count], mine), host)

    def _states(self, clients: np.ndarray, taken: np.ndarray, fed: Fed) -> State:
        """These clients' states on the devices, prepared if they are needed for the first time."""
        new = taken & ~self._rows.known(clients)
        if self.programs.method.prepare is not None and hosts.gathered(np.array(self.layout.own(new).any())).any():
            states = self.programs.prepare(fed.clients, self._read(clients), fed.data)
            self._keep(clients, new, states)
        return self._read(clients)

    def _read(self, clients: np.ndarray) -> State:
        return jax.tree.map(self.programs.placed, self._rows.take(self.layout.own(clients).reshape(-1)))

    def _keep(self, clients: np.ndarray, chosen: np.ndarray, states: State) -> None:
        """Write the states of the chosen ones of these clients back."""
        places = np.flatnonzero(self.layout.own(chosen))
        once, first = np.unique(self.layout.own(clients).reshape(-1)[places], return_index=True)
        self._rows.put(once, jax.tree.map(lambda leaf: self.layout.local(leaf)[places[first]], states))

    def _placed(self, values: np.ndarray) -> jax.Array:
        """(devices, slots) on the devices."""
        return self.programs.placed(self.layout.own(values).reshape(-1))


def _slices(length: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, length)) for first in range(0, length, size))
