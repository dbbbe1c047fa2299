"""A sweep is a vmap: simulations of one shape side by side in one program, be they seeds, federations or candidates.

A small federation leaves most of a device idle. Runs that differ only in numbers (data, seed, hyper-parameters) share
the steps of one program: the round of `engine.round`, mapped over the runs.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from polyfed.algorithms.contract import Server, State
from polyfed.core import trees
from polyfed.core.errors import PolyfedError
from polyfed.core.trees import Tree
from polyfed.engine.client_metrics import Metrics, as_metrics
from polyfed.engine.devices.layout import AXIS, CHUNK_NUMBERS, SAME, Layout
from polyfed.engine.devices.unequal_steps import best_chunk
from polyfed.engine.measure import EVAL_BLOCK, FineTune, Measure
from polyfed.engine.programs import shapes_of
from polyfed.engine.round.on_devices import Stretch
from polyfed.engine.round.records import Carry, Data, Longest, Shard
from polyfed.engine.simulation import Simulation
from polyfed.engine.states.on_devices import Counts, Pending
from polyfed.problem.objective import Examples
from polyfed.problem.problem import DType, precision

BY_CLIENT = P(None, AXIS)
CARRY = Carry(P(), BY_CLIENT, P(), P(), P())  # pyright: ignore[reportArgumentType]
CPU_CLIENTS, ACCELERATOR_CLIENTS = 16, 128
"""The clients of all runs that work at the same time on a device, unless there are more runs: with more, those of
unlike sizes wait for each other."""
EQUAL_CLIENTS = 120
"""The same on a CPU where all take as many steps, so that nobody waits; an accelerator then takes all."""
FEWEST_ROWS = 32
"""The fewest rows of a client that an evaluation takes at a time on a CPU."""
MOST = 32
"""The most runs that go together: their data is in memory at once."""
ACCELERATOR_NUMBERS = 1 << 31
"""The numbers of all clients' states in the runs that go together on an accelerator: 8 GiB in float32."""
ROUNDING = 1.1
"""Numbers of rows are rounded up to powers of this: runs of nearly the same shape then find a compiled program."""


class Sweep:
    """Advances simulations together. Each counts for itself; `settle` gives them their states back."""

    def __init__(self, simulations: Sequence[Simulation], chunk: int | None = None) -> None:
        """`chunk`: the clients of each run that work side by side on a device; chosen by the device if not given."""
        self.simulations, self.first = list(simulations), simulations[0]
        for other in self.simulations:
            _refuse_unlike(self.first, other)
        programs = self.first.programs
        self._dtype: DType = self.first.dtype
        with precision(self._dtype):
            bounds = Longest.of(s.problem.federation for s in self.simulations)
            bounds = Longest(*map(_rounded, bounds))
            chunk = min(programs.round.slots, chunk or self._chunk())
            self.round = replace(programs.round, longest=bounds, shortest=0, chunk=chunk)
            self._method = _stacked([s.programs.method for s in self.simulations])
            self._data, self._splits, self._data_axes, self._split_axes = _together(self.simulations)
            carries: Tree = zip(*(s.resident.carry for s in self.simulations), strict=True)
            parts: Tree = zip(carries, CARRY, strict=True)
            self._carry = Carry(*(self._placed(runs, spec) for runs, spec in parts))

    def prepare(self) -> None:
        """What clients do alone before round 1."""
        if self.first.programs.method.prepare is None:
            return
        with precision(self._dtype):
            programs = self.first.programs
            arguments = (programs.preparing(self._method), programs.everyone, self._carry.clients, self._data)
            axes, specs = (0, None, 0, self._data_axes), (P(), P(AXIS), BY_CLIENT, P())
            name = ("prepare", self.round.exact)
            states = self._run(name, self.round.prepare, axes, specs, BY_CLIENT, arguments)
            self._carry = self._carry._replace(clients=states)

    def advance(self, rounds: int, counted: Container[int] | None = None) -> None:
        """Run some rounds of all simulations; they count for those at the places `counted`, by default all."""
        with precision(self._dtype):
            spent = self.first.programs.compile_seconds
            begun = time.perf_counter()
            arguments = (self._method, self._carry, self._data, np.int32(self._done), np.int32(rounds))
            axes, specs = (0, 0, self._data_axes, None, None), (P(), CARRY, P(), P(), P())
            name = ("advance", self.round)
            self._carry = self._run(name, Stretch(self.round), axes, specs, CARRY, arguments, donate=(1,))
            tallies = jax.device_get(self._carry.tally)
            compiling = self.first.programs.compile_seconds - spent
            seconds = (time.perf_counter() - begun - compiling) / len(self.simulations)
        for place, simulation in enumerate(self.simulations):
            if counted is None or place in counted:
                tally = _part(tallies, place)
                simulation.resident.shares += np.asarray(tally.shares)
                simulation.count(Counts.of(tally), rounds)
                simulation.seconds += seconds

    def measure(self, finetune: Sequence[FineTune] | None = None, adapt_on_test: bool = False) -> list[Metrics]:
        """What `Simulation.measure` finds, of each simulation; of fine-tuning, only the stepsizes may differ."""
        with precision(self._dtype):
            rates, tune = None, None
            if finetune is not None:
                tune = replace(finetune[0], lr=0.0)
                if any(replace(other, lr=0.0) != tune for other in finetune):
                    raise PolyfedError("runs of a sweep must agree in the steps and the batch of fine-tuning")
                rates = jnp.asarray([other.lr for other in finetune], jnp.result_type(float))
            programs, carry = self.first.programs, self._carry
            bounds = self.round.longest._asdict()
            rows = min(programs.measured_rows, self._measured_rows())
            longest = {name: min(rows, bounds[name]) for name in self._splits}
            chunk = max(1, programs.measure_chunk // len(self.simulations))
            measure = Measure(self.round, chunk, longest, tune, adapt_on_test, programs.in_line)
            arguments = (self._method, carry.server, programs.everyone, carry.clients, self._data, self._splits, rates)
            axes = (0, 0, None, 0, self._data_axes, self._split_axes, None if rates is None else 0)
            specs = (P(), P(), P(AXIS), BY_CLIENT, P(), P(), P())
            name = ("measure", self.round, chunk, tune, adapt_on_test)
            measured = jax.device_get(self._run(name, measure, axes, specs, BY_CLIENT, arguments))
        return [
            as_metrics(_part(measured, place), s.problem, len(s.problem)) for place, s in enumerate(self.simulations)
        ]

    @property
    def servers(self) -> Server:
        """Every run's server state, with a leading axis for the runs."""
        return jax.device_get(self._carry.server)

    @property
    def states(self) -> State:
        """Every client's state, with leading axes for the runs and the clients; the last few only fill up devices."""
        return jax.device_get(self._carry.clients)

    def settle(self, places: Iterable[int] | None = None) -> None:
        """Give the simulations at these places, by default all, the states that their runs have reached.

        An accelerator's states stay there until they are asked for: they may be gigabytes, and few ask.
        """
        places = range(len(self.simulations)) if places is None else places
        if self.first.layout.device.platform != "cpu":
            server, excluded = jax.device_get((self._carry.server, self._carry.excluded))
            for place in places:
                here = Pending(_part(server, place), np.asarray(excluded)[place], partial(self._fetched, place))
                self.simulations[place].resident.settle(here)
            return
        with precision(self._dtype):
            carry = jax.device_get(self._carry)
            for place in places:
                self.simulations[place].resident.settle(_part(carry, place))

    def _fetched(self, place: int) -> Carry:
        with precision(self._dtype):
            return jax.device_get(_part(self._carry, place))

    @property
    def _done(self) -> int:
        """The rounds so far: those of a run that was not stopped."""
        return max(simulation.round for simulation in self.simulations)

    def _chunk(self) -> int:
        """As many clients of each run as one run would take, less by what the runs take together."""
        programs, runs = self.first.programs, len(self.simulations)
        cpu = self.first.layout.device.platform == "cpu"
        if programs.steps is None:
            together = EQUAL_CLIENTS if cpu else runs * programs.round.chunk
        else:
            together = CPU_CLIENTS if cpu else ACCELERATOR_CLIENTS
        most = max(1, min(programs.round.chunk, together // runs))
        return most if programs.steps is None else best_chunk(programs.steps, most, programs.fixed / runs)

    def _measured_rows(self) -> int:
        """The rows of a client that are measured at a time.

        Runs fill a CPU with few rows, and short blocks leave fewer places of small clients empty.
        """
        if self.first.layout.device.platform != "cpu":
            return EVAL_BLOCK
        return max(FEWEST_ROWS, EVAL_BLOCK // len(self.simulations))

    def _run(
        self,
        name: tuple[Hashable, ...],
        function: Callable[..., Tree],
        axes: Tree,
        specs: Tree,
        out: Tree,
        arguments: Tree,
        donate: tuple[int, ...] = (),
    ) -> Tree:
        every = jax.vmap(function, in_axes=axes)
        key = ("sweep", len(self.simulations), repr(axes), *name)
        return self.first.programs.compiled(key, every, specs, out, arguments, donate)(*arguments)

    def _placed(self, parts: Sequence[Tree], spec: P) -> Tree:
        """The runs' arrays on the devices, with a leading axis for the runs.

        An accelerator puts them together itself, since they may be gigabytes.
        """
        layout = self.first.layout

        def together(*leaves: jax.Array) -> jax.Array:
            if layout.device.platform == "cpu":
                return layout.placed(np.stack([np.asarray(leaf) for leaf in leaves]), spec)
            return layout.placed(jnp.stack([layout.placed(leaf, P(*spec[1:])) for leaf in leaves]), spec)

        return jax.tree.map(together, *parts)


def batches(simulations: Sequence[Simulation], finetune: Sequence[FineTune | None] | None = None) -> list[list[int]]:
    """Which of these go together: places of runs of one shape, as many at a time as are worth it.

    A run that is alone in its batch is run by itself. `finetune`: how each is fine-tuned for its evaluations; only the
    stepsizes of that may differ.
    """
    shapes: dict[Hashable, list[int]] = {}
    for place, (simulation, tune) in enumerate(zip(simulations, finetune or [None] * len(simulations), strict=True)):
        shape = _shape(simulation)
        work = None if tune is None else replace(tune, lr=0.0)
        shapes.setdefault(place if shape is None else (shape, work), []).append(place)
    groups: list[list[int]] = []
    for places in shapes.values():
        parts = math.ceil(len(places) / most_runs(simulations[places[0]]))
        groups += [part.tolist() for part in np.array_split(places, parts)]
    return groups


def most_runs(simulation: Simulation) -> int:
    """How many runs like this one go together: as many models as a CPU's caches hold, or states as an accelerator."""
    start = trees.count(simulation.start)
    if simulation.layout.device.platform != "cpu":
        return max(1, min(MOST, ACCELERATOR_NUMBERS // max(1, len(simulation.problem) * start)))
    return max(1, min(MOST, CHUNK_NUMBERS // (simulation.parameters + start)))


def _together(simulations: Sequence[Simulation]) -> tuple[Data, dict[str, Shard], Data, int | None]:
    """The simulations' data and splits with a leading axis for the runs, and which axes are mapped.

    Runs of one problem share its rows. Others' are filled up to the same length and kept with the first problem.
    """
    first = simulations[0]
    shared_seed = len({s.seed for s in simulations}) == 1  # then all draw the same batches, and it is done once
    seeds = first.programs.data.seed
    if not shared_seed:
        seeds = first.layout.placed(np.array([s.seed for s in simulations], np.uint32), SAME)
    ids = tuple(id(s.problem) for s in simulations)
    if len(set(ids)) == 1:
        data = first.programs.data._replace(seed=seeds, blocks=None)
        return data, first.programs.splits, Data(None, None, None if shared_seed else 0, None, None, None), None  # pyright: ignore
    key = ("together", first.layout, first.dtype, ids)
    kept = first.problem.placed
    if key not in kept or any(ref() is not s.problem for ref, s in zip(kept[key][2], simulations, strict=True)):
        place = first.layout
        ours = {name: _shards([s.programs.splits[name] for s in simulations], place) for name in first.programs.splits}
        names = place.placed(np.stack([s.problem.client_ids for s in simulations]), SAME)
        kept[key] = (ours, names, [weakref.ref(s.problem) for s in simulations])
    splits, names, _ = kept[key]
    data = Data(splits["train"], names, seeds, None, splits.get("validation"))
    return data, splits, Data(0, 0, None if shared_seed else 0, None, 0 if "validation" in splits else None), 0  # pyright: ignore


def _shards(shards: Sequence[Shard], place: Layout) -> Shard:
    """The shards as one, with a leading axis; rows that only fill up are zero, and nobody's."""
    length = _rounded(max(len(shard.examples.y) for shard in shards))

    def filled(leaves: Sequence[Any]) -> jax.Array:
        whole = np.zeros((len(leaves), length, *leaves[0].shape[1:]), leaves[0].dtype)
        for row, leaf in zip(whole, leaves, strict=True):
            row[: len(leaf)] = np.asarray(leaf)
        return place.placed(whole, SAME)

    examples = Examples(filled([s.examples.x for s in shards]), filled([s.examples.y for s in shards]))
    starts, sizes = (np.stack([np.asarray(getattr(s, name)) for s in shards]) for name in ("starts", "sizes"))
    return Shard(examples, place.placed(starts, SAME), place.placed(sizes, SAME))


def _shape(simulation: Simulation) -> Hashable:
    """What runs must agree in to be one program; None for one that is run by itself.

    By itself runs what has states outside the devices, rows on demand, a sample of evaluated clients, several hosts, or
    a server that sees single uploads.
    """
    if simulation.store != "device" or simulation.layout.hosts > 1 or simulation.singles is not None:
        return None
    if len(simulation.evaluated) < len(simulation.problem):
        return None
    if simulation.privacy is not None and simulation.privacy.secret:  # each run draws noise of its own
        return None
    return tuple(_facts(simulation).values())


def _facts(simulation: Simulation) -> dict[str, Hashable]:
    """What is not a number, and must be the same in all runs of a sweep."""
    problem = simulation.problem
    return {
        "method": shapes_of(simulation.programs.method),
        "local models": simulation.bank is not None,
        "participation": simulation.sampling,
        "layout": simulation.layout,
        "dtype": simulation.dtype,
        "compute": simulation.compute,
        "privacy": simulation.privacy,
        "model": (problem.task, *shapes_of(simulation.start)),
        "splits": tuple(simulation.programs.splits),
        "clients": len(problem),
        "rows": (problem.federation.feature_shape, str(problem.federation.like.x.dtype)),
        "round": simulation.round,
    }


def _refuse_unlike(first: Simulation, other: Simulation) -> None:
    if first.layout.hosts > 1:
        raise PolyfedError(f"runs of a sweep are those of one process, found {first.layout.hosts}")
    if first.privacy is not None and first.privacy.secret:
        raise PolyfedError("private runs are a sweep only for study (privacy.study); simulate_all runs them one by one")
    if first.singles is not None or other.singles is not None:
        raise PolyfedError("runs whose server sees single uploads are no sweep; simulate_all runs them one by one")
    expected = _facts(first)
    for name, fact in _facts(other).items():
        if fact != expected[name]:
            raise PolyfedError(f"runs of a sweep must agree in {name}: found {expected[name]} and {fact}")


def _stacked(trees_: Sequence[Tree]) -> Tree:
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees_)


def _part(tree: Tree, place: int) -> Tree:
    return jax.tree.map(lambda leaf: leaf[place], tree)


def _rounded(size: int) -> int:
    return size if size < 16 else math.ceil(ROUNDING ** math.ceil(math.log(size, ROUNDING) - 1e-9))
