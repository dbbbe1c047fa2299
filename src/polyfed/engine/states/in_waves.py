"""A federation whose clients' states live outside the devices: they come to them wave by wave, and go back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import numpy as np

from polyfed.algorithms.contract import Pending, Server, State
from polyfed.core import trees
from polyfed.core.errors import PolyfedError
from polyfed.core.machine import memory_bytes
from polyfed.core.trees import Tree
from polyfed.engine import hosts
from polyfed.engine.checkpoint.checkpoint import Snapshot
from polyfed.engine.devices.layout import Layout
from polyfed.engine.measure import FineTune
from polyfed.engine.programs import Programs
from polyfed.engine.round.order import in_order
from polyfed.engine.round.records import Slots, Sums
from polyfed.engine.states.client_rows import ClientRows
from polyfed.engine.states.feed import Fed, Feed
from polyfed.engine.states.on_devices import Counts
from polyfed.engine.states.shared_parts import SharedParts

Store = Literal["auto", "device", "host", "disk"]
STORES = ("auto", "device", "host", "disk")
Reads = Literal["none", "training", "all"]
WAVE_BYTES, CPU_WAVE_BYTES = 256 << 20, 64 << 20
"""The most that the states of one wave may take on a device, unless a chunk takes more; some seven copies are alive."""
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

    The order of all sums is that of `Resident`, so that both end in the same numbers but for rounding. A client that
    was never in a cohort has no row: what it does alone before round 1 is done when it is first needed.
    """

    def __init__(
        self,
        programs: Programs,
        server: Server,
        start: State,
        feed: Feed,
        parts: SharedParts,
        folder: Path | None = None,
    ) -> None:
        self.programs, self.layout, self.feed, self._parts = programs, programs.layout, feed, parts
        self.server = programs.everywhere(server)
        self.excluded: dict[int, int] = {}
        self.shares = np.zeros(self.layout.population)  # the system gives memory where it is written
        self.start = jax.tree.map(np.asarray, start)
        self._rows = ClientRows(self.layout.population, parts.without(self.start), folder)
        self._folder = folder
        self._within: ClientRows | None = None
        """what `absorb` needs of the round under way, of the clients that have done their work"""
        self._cohorts: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        most = min(WAVE_BYTES, CPU_WAVE_BYTES) if self.layout.device.platform == "cpu" else WAVE_BYTES
        most //= max(1, trees.bits(self.start) // 8, feed.client_bytes)
        round = programs.round
        slots = min(round.slots, max(round.chunk, ceil(UNEVEN * programs.sampling.capacity / self.layout.devices)))
        self._wave = slots if most >= slots else max(1, most // round.chunk) * round.chunk
        self._block = min(self.layout.clients_each, max(programs.measure_chunk, most))

    def prepare(self) -> None:
        """Nothing yet: see `_states`."""

    def advance(self, first: int, count: int) -> Counts:
        total = Counts(0, 0, 0, 0, 0)
        for number in range(first, first + count):
            total = total.plus(in_order(WaveRound(self, number)))
        return total

    def measure(self, clients: np.ndarray, finetune: FineTune | None, on_test: bool) -> Tree:
        def of_wave(fed: Fed, states: State) -> Tree:
            return self.programs.measure(self.server, fed.clients, states, finetune, on_test, fed.data, fed.splits)

        return self._joined(clients, of_wave, "all")

    def over(
        self, clients: np.ndarray, function: Callable[[Fed, State], Tree], most: int
    ) -> Iterator[tuple[np.ndarray, Tree]]:
        for wave, real, values in self._over(clients, function, "all", most):
            fetched = self.programs.fetched(values)
            yield wave[real], jax.tree.map(lambda leaf, real=real: leaf[real.reshape(-1)], fetched)

    def own_share(self, clients: np.ndarray) -> np.ndarray:
        return self._joined(clients, lambda fed, states: self.programs.own_share(fed.clients, states), "none")

    def state(self, client: int) -> State:
        state = next(self._in_order(np.array([client], np.int32), lambda _, states: states, "none"))
        return jax.tree.map(lambda leaf: leaf[0], state)

    def personal(self, clients: np.ndarray) -> Iterator[Tree]:
        def of_wave(fed: Fed, states: State) -> Tree:
            return self.programs.personal(self.server, fed.clients, states, fed.data)

        return self._in_order(clients, of_wave, "training")

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
        kept = self._parts.without(self.start)
        self._rows.put(left[self.layout.owned(left)], kept)  # of a method without states there are no blocks

    def everybodys(self, values: np.ndarray) -> np.ndarray:
        """(devices, slots); each process has the part of its own devices."""
        return hosts.gathered(self.layout.own(values)).reshape(values.shape)

    def cohort(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The clients of a round and which slots are taken, with empty slots at the end: they come in whole waves."""
        if number not in self._cohorts:
            cohort, taken = self.programs.cohort(number)
            more = ((0, 0), (0, -cohort.shape[1] % self._wave))
            self._cohorts = {n: found for n, found in self._cohorts.items() if abs(n - number) <= 2}
            self._cohorts[number] = np.pad(cohort, more, "edge"), np.pad(taken, more)
        return self._cohorts[number]

    def waves(self, taken: np.ndarray) -> list[slice]:
        return [wave for wave in _slices(taken.shape[1], self._wave) if taken[:, wave].any()]

    def first_wave(self, number: int) -> np.ndarray | None:
        """The clients of a round's first wave, if it has any."""
        cohort, taken = self.cohort(number)
        waves = self.waves(taken)
        return cohort[:, waves[0]] if waves else None

    def begin(self, clients: np.ndarray | None, now: np.ndarray) -> None:
        """Begin to read what the next wave needs, while the devices compute; `now`: the wave that they have."""
        if clients is not None and clients.tobytes() != now.tobytes():
            mine = self.layout.own(clients)
            self.feed.begin(mine)
            self._rows.begin(mine.reshape(-1))

    def catching_up(self, number: int, clients: np.ndarray) -> int:
        """How many of these took no part in the round before, and so do not hold the current broadcast."""
        if number == 0:
            return len(clients)
        before, taken = self.cohort(number - 1)
        return int(np.sum(~np.isin(clients, before[taken])))

    def _over(
        self, clients: np.ndarray, function: Callable[[Fed, State], Tree], rows: Reads, most: int | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, Tree]]:
        """`function(rows, states)` of these clients, in blocks (of `most` a device); `rows` are those that it reads.

        With it come the (devices, slots) clients that it is of, and which of them do not only fill up the devices.
        """
        reads = rows != "none" or self.programs.method.prepare is not None
        parts = list(self.layout.at_home(clients, self._block if most is None else min(most, self._block)))
        for after, (wave, real) in enumerate(parts, start=1):
            mine = self.layout.own(wave)
            fed = self.feed.of(mine, rows == "all") if reads else self.feed.without_rows(mine)
            values = function(fed, self.states_of(wave, real, fed))
            if reads and after < len(parts):
                self.feed.begin(self.layout.own(parts[after][0]), rows == "all")
            yield wave, real, values

    def _joined(self, clients: np.ndarray, function: Callable[[Fed, State], Tree], rows: Reads) -> Tree:
        """`function(rows, states)` of all these clients, in their order."""
        parts, who = [], []
        for wave, real, values in self._over(clients, function, rows):
            values = self.programs.fetched(values)
            parts.append(jax.tree.map(lambda leaf, real=real: leaf[real.reshape(-1)], values))
            who.append(wave[real])
        order = np.argsort(np.concatenate(who))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[order], *parts)

    def _in_order(self, clients: np.ndarray, function: Callable[[Fed, State], Tree], rows: Reads) -> Iterator[Tree]:
        """The same in blocks, host by host: what is large need not be in memory whole."""
        for host, own in enumerate(self.layout.by_host(clients)):
            for _, real, values in self._over(own, function, rows):
                mine, count = jax.tree.map(self.layout.local, values), int(np.sum(real))
                yield hosts.sent(jax.tree.map(lambda leaf, count=count: leaf[:count], mine), host)

    def states_of(self, clients: np.ndarray, taken: np.ndarray, fed: Fed) -> State:
        """These clients' states on the devices, prepared if they are needed for the first time."""
        new = taken & ~self._rows.known(clients)
        if self.programs.method.prepare is not None and hosts.gathered(np.array(self.layout.own(new).any())).any():
            states = self.programs.prepare(fed.clients, self._read(clients), fed.data)
            self.write_back(clients, new, states)
        return self._read(clients)

    def _read(self, clients: np.ndarray) -> State:
        mine = self.layout.own(clients).reshape(-1)
        return jax.tree.map(self.programs.placed, self._parts.joined(self._rows.take(mine), mine))

    def write_back(self, clients: np.ndarray, chosen: np.ndarray, states: State) -> None:
        """Write the states of the chosen ones of these clients back."""
        self._write(self._rows, clients, chosen, self._parts.without(states))

    def _write(self, rows: ClientRows, clients: np.ndarray, chosen: np.ndarray, values: Tree) -> None:
        places = np.flatnonzero(self.layout.own(chosen))
        once, first = np.unique(self.layout.own(clients).reshape(-1)[places], return_index=True)
        rows.put(once, jax.tree.map(lambda leaf: self.layout.local(leaf)[places[first]], values))

    def set_aside(self, clients: np.ndarray, chosen: np.ndarray, new: State) -> None:
        """Write back the chosen ones' new states, and set aside what `absorb` needs beside them."""
        if isinstance(new, Pending):
            if self._within is None:
                like = jax.tree.map(lambda leaf: np.zeros(leaf.shape[1:], leaf.dtype), new.within)
                self._within = ClientRows(self.layout.population, like, self._folder)
            self._write(self._within, clients, chosen, new.within)
            new = new.state
        self.write_back(clients, chosen, new)

    def held(self, clients: np.ndarray, taken: np.ndarray, fed: Fed) -> State:
        """These clients' states on the devices, with what was set aside of them."""
        states = self.states_of(clients, taken, fed)
        if self._within is None:
            return states
        within = self._within.take(self.layout.own(clients).reshape(-1))
        return Pending(states, jax.tree.map(self.programs.placed, within))

    def forget_round(self) -> None:
        """The round is over: nothing is set aside any more."""
        if self._within is not None:
            self._within.clear()

    def place(self, values: np.ndarray) -> jax.Array:
        """(devices, slots) on the devices."""
        return self.programs.placed(self.layout.own(values).reshape(-1))


class WaveCohort(NamedTuple):
    """Who takes part, as (devices, slots), and the waves of slots in which they pass through the devices."""

    clients: np.ndarray
    taken: np.ndarray
    waves: list[slice]


class WaveWork(NamedTuple):
    """After the local work: the devices' sums, and of every slot what its client did."""

    sums: Sums
    good: np.ndarray
    silent: np.ndarray
    bits: np.ndarray
    emphasis: np.ndarray


class WaveUpdate(NamedTuple):
    """After the server's step."""

    worked: WaveWork
    uploads: int
    steps: int
    emphasis: float
    catching_up: int = 0


@dataclass
class WaveRound:
    """The parts of a round whose clients' states are outside the devices."""

    states: Streamed
    number: int

    def __post_init__(self) -> None:
        self.programs, self.layout = self.states.programs, self.states.layout
        self._upcoming: Iterator[np.ndarray | None] = iter(())
        self._rows: Fed | None = None

    @property
    def absorbs(self) -> bool:
        return self.programs.method.absorb is not None

    def cohort(self) -> WaveCohort:
        clients, taken = self.states.cohort(self.number)
        waves = self.states.waves(taken)
        after = [clients[:, wave] for wave in waves[1:]]
        if self.absorbs and len(waves) > 1:
            after += [clients[:, wave] for wave in waves]
        self._upcoming = iter([*after, self.states.first_wave(self.number + 1)])
        return WaveCohort(clients, taken, waves)

    def local(self, cohort: WaveCohort) -> WaveWork:
        states, (clients, taken, waves) = self.states, cohort
        good, silent = np.zeros_like(taken), np.zeros_like(taken)
        bits, emphasis = np.zeros(taken.shape, np.uint64), np.zeros(taken.shape)
        sums = self.programs.no_uploads(states.server, states.start)

        def write_back(wave: slice, new: State, slots: Slots) -> None:
            states.set_aside(clients[:, wave], taken[:, wave], new)
            for values, part in zip((good, silent, bits, emphasis), slots, strict=True):
                mine = self.layout.own(values)[:, wave]
                mine[:] = self.layout.local(part).reshape(mine.shape)

        before = None
        for wave in waves:
            rows = self._rows = states.feed.of(self.layout.own(clients[:, wave]))
            lent = states.states_of(clients[:, wave], taken[:, wave], rows)  # read while the wave before is computed
            here = states.place(taken[:, wave])
            sums, lent, slots = self.programs.local(
                states.server, self.number, rows.clients, here, lent, sums, rows.data
            )
            states.begin(next(self._upcoming), clients[:, wave])
            if before is not None:
                write_back(*before)
            before = wave, lent, slots
        if before is not None:
            write_back(*before)
        return WaveWork(sums, *map(states.everybodys, (good, silent, bits, emphasis)))

    def update(self, cohort: WaveCohort, worked: WaveWork) -> WaveUpdate:
        server, uploads, steps, emphasis = self.programs.update(self.states.server, worked.sums, self.number)
        self.states.server = server
        return WaveUpdate(worked, int(uploads), int(steps), float(emphasis))

    def absorb(self, cohort: WaveCohort, updated: WaveUpdate) -> WaveUpdate:
        states, (clients, taken, waves), worked = self.states, cohort, updated.worked
        for wave in waves:
            rows = self._rows
            if rows is None or len(waves) > 1:
                rows = states.feed.of(self.layout.own(clients[:, wave]))
                states.begin(next(self._upcoming), clients[:, wave])
            lent = states.held(clients[:, wave], taken[:, wave], rows)
            good = states.place(worked.good[:, wave])
            new = self.programs.absorb(states.server, self.number, rows.clients, good, lent, rows.data)
            states.write_back(clients[:, wave], worked.good[:, wave], new)
        states.forget_round()
        sent = taken & ~worked.silent
        return updated._replace(catching_up=states.catching_up(self.number, clients[sent]))

    def close(self, cohort: WaveCohort, updated: WaveUpdate) -> Counts:
        states, (clients, taken, _), worked = self.states, cohort, updated.worked
        for client in clients[taken & ~worked.good].tolist():
            states.excluded[client] = states.excluded.get(client, 0) + 1
        np.add.at(states.shares, clients[worked.good], worked.emphasis[worked.good] / (updated.emphasis or 1.0))
        sent = taken & ~worked.silent
        empty = updated.uploads == 0 and bool(taken.any())
        return Counts(int(sent.sum()), updated.catching_up, updated.steps, int(worked.bits.sum()), int(empty))


def _slices(length: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, length)) for first in range(0, length, size))
