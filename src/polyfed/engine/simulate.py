"""One entry point: simulate a federation in this process, or in several that do the same."""

from __future__ import annotations

import hashlib
import logging
import math
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from polyfed.algorithms.contract import Algorithm
from polyfed.algorithms.shared.mixture import MixtureMethod
from polyfed.core.errors import PolyfedError
from polyfed.core.precision import Compute
from polyfed.engine import fairness, hosts
from polyfed.engine.checkpoint import checkpoint as checkpoints
from polyfed.engine.measure import FineTune
from polyfed.engine.privacy.mechanism import Privacy
from polyfed.engine.result import Result
from polyfed.engine.simulation import COUNTERS, Metrics, Simulation
from polyfed.engine.states.in_waves import Store
from polyfed.engine.sweep import Sweep, batches
from polyfed.problem.problem import DType, Init, Problem
from polyfed.problem.reference import Distance

log = logging.getLogger("polyfed")
PACE = 0.5
"""The seconds that one call of the compiled rounds should take, so that progress shows and Ctrl-C is heard."""

RoundProgress = Callable[[Simulation, dict[str, Any] | None], None]
"""Called after every stretch of rounds, with the history's new row where there is one."""
SweepProgress = Callable[[int, Simulation, dict[str, Any] | None], None]
"""The same for one of several runs, with its place among them."""


def simulate(
    problem: Problem,
    algorithm: Algorithm,
    *,
    rounds: int,
    participation: Any = 1.0,
    seed: int = 0,
    init: Init = None,
    eval_every: int = 1,
    dtype: DType = "float32",
    compute: Compute | None = None,
    resume: str | Path | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    devices: int | Sequence[Any] | None = None,
    chunk: int | None = None,
    store: Store = "auto",
    eval_clients: int | None = None,
    finetune: FineTune | None = None,
    adapt_on_test: bool = False,
    privacy: Privacy | None = None,
    progress: RoundProgress | None = None,
) -> Result:
    """Train `algorithm` on `problem` for some rounds, every client in this process, or spread over all of them.

    `participation`: 1.0 all clients, a share below 1, a number of clients, or `Bernoulli(q)`.
    `init`: "zeros", "ones", "random" or parameters; by default what the model says (linear models start at zero).
    `eval_every`: rounds between evaluations; the last round is always evaluated.
    `compute`: "bfloat16" computes the model in local training with numbers of 16 bits, forward and backward; weights,
    steps, what travels, losses and metrics stay float32. By default all is in the dtype.
    `checkpoint`: a folder to write checkpoints to, every `checkpoint_every` rounds, on Ctrl-C and at the end.
    `resume`: such a folder to go on from, with results that are the same to the last bit.
    `finetune`: also evaluate the global model after each client has fine-tuned it.
    `adapt_on_test`: measure adapted and fine-tuned models after steps on TEST rows, which leaks their labels; for
    reproducing papers that do so. Training, and the models that are kept, do not change.
    `privacy`: clip every upload and add noise to their sum; the history then has the epsilon that was spent.
    `store`: where clients' states are kept between rounds: "device", "host" (memory) or "disk" (a file in the
    checkpoint's folder, or among temporary files); by default the first that has room.
    `eval_clients`: evaluate so many clients only, a fixed sample that the seed draws (`Simulation.evaluated`), where
    all would take too long; every figure is then one of that sample. Training does not change.
    `devices`, `chunk`, `store`: no result changes by them beyond rounding.
    """
    run = PlannedRun(
        problem,
        algorithm,
        seed=seed,
        finetune=finetune,
        resume=None if resume is None else Path(resume),
        checkpoint=None if checkpoint is None else Path(checkpoint),
    )
    [result] = simulate_all(
        [run],
        rounds=rounds,
        participation=participation,
        init=init,
        eval_every=eval_every,
        dtype=dtype,
        compute=compute,
        checkpoint_every=checkpoint_every,
        devices=devices,
        chunk=chunk,
        store=store,
        eval_clients=eval_clients,
        adapt_on_test=adapt_on_test,
        privacy=privacy,
        progress=None if progress is None else lambda _, simulation, row: progress(simulation, row),
    )
    return result


@dataclass(frozen=True)
class PlannedRun:
    """One of the runs that are simulated together; the fields are arguments of `simulate`."""

    problem: Problem
    algorithm: Algorithm
    seed: int = 0
    finetune: FineTune | None = None
    resume: Path | None = None
    checkpoint: Path | None = None


def simulate_all(
    planned: Sequence[PlannedRun],
    *,
    rounds: int,
    participation: Any = 1.0,
    init: Init = None,
    eval_every: int = 1,
    dtype: DType = "float32",
    compute: Compute | None = None,
    checkpoint_every: int | None = None,
    devices: int | Sequence[Any] | None = None,
    chunk: int | None = None,
    store: Store = "auto",
    eval_clients: int | None = None,
    adapt_on_test: bool = False,
    privacy: Privacy | None = None,
    progress: SweepProgress | None = None,
    finished: Callable[[int, Result], None] | None = None,
    keep_finished: bool = True,
) -> list[Result]:
    """What `simulate` gives for each of these runs, to the same numbers but for rounding.

    Runs of one shape (they differ in seeds, real-valued hyper-parameters and rows alone) are one program, a `Sweep`;
    others are run one after another. Ctrl-C ends all of them; those that had not begun are at round 0.
    `finished` is called with the place and the result of every run that came to its end, as soon as it did.
    `keep_finished`: write the last checkpoint of such a run, too, and not only of one that is interrupted.
    """
    for name, value in (("rounds", rounds), ("eval_every", eval_every), ("checkpoint_every", checkpoint_every)):
        low = 0 if name == "rounds" else 1
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < low):
            raise PolyfedError(f"{name} must be a whole number, at least {low}, found {value!r}")
    runs: list[_Run] = []
    for place, plan in enumerate(planned):
        simulation = Simulation(
            plan.problem,
            plan.algorithm,
            participation=participation,
            seed=plan.seed,
            init=init,
            dtype=dtype,
            compute=compute,
            devices=devices,
            chunk=chunk,
            adapt_on_test=adapt_on_test,
            store=store,
            eval_clients=eval_clients,
            privacy=privacy,
            folder=plan.checkpoint,
        )
        identity: dict[str, Any] = {}
        if plan.resume or plan.checkpoint or simulation.layout.hosts > 1:
            identity = run_identity(
                plan.problem, simulation.method, participation, plan.seed, init, dtype, simulation.compute
            )
            extra = {"adapt_on_test": adapt_on_test or None, "eval_clients": eval_clients}
            extra["privacy"] = None if privacy is None else _plain(privacy)
            identity |= {name: value for name, value in extra.items() if value is not None}
        every = {"rounds": rounds, "eval_every": eval_every, "checkpoint_every": checkpoint_every}
        hosts.refuse_different(identity | every)
        run = _Run(place, plan, simulation, identity)
        if plan.resume is not None:
            run.rows = checkpoints.kept_rows(_resumed(simulation, plan.resume, identity), eval_every, rounds)
        if simulation.round > rounds:
            found = f"{plan.resume}: this checkpoint is of round {simulation.round}"
            raise PolyfedError(f"{found}, beyond the {rounds} asked for")
        if plan.checkpoint is not None and plan.resume != plan.checkpoint:
            checkpoints.clear(plan.checkpoint)
        runs.append(run)
    loop = _Loop(rounds, eval_every, checkpoint_every, progress, keep_finished)
    results: dict[int, Result] = {}
    with _interruptible() as interrupted:
        for places in batches([run.simulation for run in runs], [plan.finetune for plan in planned]):
            loop.drive([runs[place] for place in places], interrupted)
            for run in (runs[place] for place in places):
                if run.diverged:
                    run.diverged = f"{run.plan.algorithm.name} diverged: {run.diverged}; a smaller lr may help"
                    warnings.warn(run.diverged, RuntimeWarning, stacklevel=3)
                stopped = run.simulation.round < rounds and not run.diverged
                results[run.place] = Result(run.simulation, run.rows, run.diverged, stopped)
                if finished is not None and not stopped:
                    finished(run.place, results[run.place])
    return [results[place] for place in range(len(runs))]


@dataclass
class _Run:
    """A run under way."""

    place: int
    plan: PlannedRun
    simulation: Simulation
    identity: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    diverged: str | None = None

    def __post_init__(self) -> None:
        self.distance = _distance(self.simulation)
        self.excluded = self.simulation.excluded

    def keep(self) -> None:
        if self.plan.checkpoint is not None:
            simulation = self.simulation
            meta = {
                "identity": self.identity,
                "counters": simulation.counters,
                "seconds": simulation.seconds,
                "history": self.rows,
            }
            checkpoints.save(self.plan.checkpoint, simulation.round, simulation.state(), meta)


@dataclass(frozen=True)
class _Loop:
    """The only loop in Python: advance some rounds, evaluate, save a checkpoint, show progress, hear Ctrl-C."""

    rounds: int
    eval_every: int
    checkpoint_every: int | None
    progress: SweepProgress | None
    keep_finished: bool

    def drive(self, runs: list[_Run], interrupted: Callable[[], bool]) -> None:
        """Run these to their end, as one program where they are several."""
        together = Sweep([run.simulation for run in runs]) if len(runs) > 1 else None
        if interrupted():
            return
        if not runs[0].rows:
            runs[0].simulation.prepare() if together is None else together.prepare()
            self._evaluate(runs, together, runs)
            self._tell(runs, evaluated=True)
        going = [run for run in runs if run.simulation.round < self.rounds]
        while going:
            simulation = going[0].simulation
            stop = _next_stop(simulation.round, self.rounds, self.eval_every, self.checkpoint_every)
            stretch, asked = _agreed(_stretch(simulation, stop, len(runs)), interrupted())
            if asked:
                break
            before, empty = simulation.round, [run.simulation.empty_rounds for run in going]
            if together is None:
                simulation.advance(stretch)
            else:
                together.advance(stretch, {runs.index(run) for run in going})
            now = simulation.round
            evaluates = now == self.rounds or now % self.eval_every == 0
            keeps = bool(self.checkpoint_every) and now % (self.checkpoint_every or 1) == 0 and now < self.rounds
            if evaluates or keeps:
                self._evaluate(runs, together, going, measure=evaluates)
            elif together is not None and any(run.plan.checkpoint for run in going):
                together.settle([runs.index(run) for run in going])
            for run, known in zip(going, empty, strict=True):
                run.excluded = _report_excluded(run.excluded, run.simulation.excluded, before, now)
                if run.simulation.empty_rounds > known:
                    run.diverged = f"no client's update was finite by round {now}"
                elif evaluates and not np.isfinite(run.rows[-1]["objective"]):
                    run.diverged = f"the objective is {run.rows[-1]['objective']} at round {now}"
            self._tell(going, evaluates)  # before the checkpoint: what is told of a round is never behind it
            if together is not None:
                together.settle([runs.index(run) for run in going if run.diverged])
            going = [run for run in going if not run.diverged]
            if keeps:
                for run in going:
                    run.keep()
            if now == self.rounds:
                break
        if together is not None and going:
            together.settle([runs.index(run) for run in going])
        for run in runs:
            if not run.diverged and (self.keep_finished or run.simulation.round < self.rounds):
                run.keep()

    def _evaluate(self, runs: list[_Run], together: Sweep | None, going: list[_Run], measure: bool = True) -> None:
        """A row of the history for each of those that are going."""
        if together is not None:
            if self.progress is not None or any(run.distance or run.plan.checkpoint for run in going):
                together.settle([runs.index(run) for run in going])
            if measure:
                for run, metrics in zip(runs, together.measure(), strict=True):
                    if run in going:
                        run.simulation.remember(metrics)
                tunes = [run.plan.finetune for run in runs]
                if all(tunes) and "global" in runs[0].simulation.measure():
                    measured = together.measure([tune for tune in tunes if tune is not None])
                    for run, metrics in zip(runs, measured, strict=True):
                        if run in going:
                            run.simulation.remember(metrics, run.plan.finetune)
        if measure:
            for run in going:
                run.rows.append(_row(run.simulation, run.plan.finetune, run.distance))

    def _tell(self, runs: list[_Run], evaluated: bool) -> None:
        if self.progress is not None:
            for run in runs:
                self.progress(run.place, run.simulation, run.rows[-1] if evaluated else None)


def simulate_whole(problem: Problem, algorithm: Algorithm, **options: Any) -> Result:
    """`simulate`, for who has no use for a part of a run: Ctrl-C is then the usual exception."""
    result = simulate(problem, algorithm, **options)
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def _row(simulation: Simulation, finetune: FineTune | None, distance: Distance | None) -> dict[str, Any]:
    """The history's row: counters and the means over the evaluated clients."""
    metrics = simulation.measure()
    if finetune is not None and "global" in metrics:
        metrics |= simulation.measure(finetune)
    own = metrics["personal"]["train"]
    counts = {name: value for name, value in simulation.counters.items() if name != "empty_rounds"}
    row: dict[str, Any] = {
        **counts,
        "seconds": simulation.seconds,
        "objective": float((own["loss"] + own["ridge"]).mean()),
    }
    if len(simulation.evaluated) < len(simulation.problem):
        row["evaluated_clients"] = len(simulation.evaluated)
    if simulation.spent is not None:
        row["epsilon"] = simulation.spent["epsilon"]
    if distance is not None:
        row |= distance(simulation.global_params)
    return row | _means(metrics) | _disparity(simulation, metrics)


def _distance(simulation: Simulation) -> Distance | None:
    """How to measure the way to the reference solution, where the problem has been solved for this method's alpha."""
    problem, method = simulation.problem, simulation.method
    if simulation.global_params is None:
        return None
    if not isinstance(method, MixtureMethod):
        reference = problem.reference(problem.mixing_weights(1.0))
    elif method.plm_epochs is not None:
        return None
    else:
        reference = problem.reference(problem.mixing_weights(method.alpha), method.plm_tolerance)
    return None if reference is None else Distance(problem, reference)


def _means(metrics: Metrics) -> dict[str, float]:
    """The mean over the clients that have each metric."""
    return {
        f"{model}_{split}_{metric}": mean_of_some(values)
        for model, splits in metrics.items()
        for split, found in splits.items()
        for metric, values in found.items()
        if metric != "ridge"
    }


def _disparity(simulation: Simulation, metrics: Metrics) -> dict[str, float | None]:
    """How unequal the clients are served, by the metric on test rows (training rows where there are none)."""
    metric = simulation.problem.loss.metric_name
    rows = simulation.problem.federation.train.sizes[simulation.evaluated]
    split = "test" if "test" in metrics["personal"] else "train"
    found = {model: fairness.spread(splits[split][metric], rows) for model, splits in metrics.items()}
    return {
        f"{model}_{split}_{metric}_{name}": value for model, values in found.items() for name, value in values.items()
    }


def mean_of_some(values: np.ndarray) -> float:
    """The mean of those that are not NaN."""
    mean = float(values.mean())
    return float(np.nanmean(values)) if math.isnan(mean) else mean


def _next_stop(round: int, rounds: int, *every: int | None) -> int:
    """The next round at which there is something to do."""
    return min([rounds, *((round // step + 1) * step for step in every if step)])


def _stretch(simulation: Simulation, stop: int, runs: int) -> int:
    """How many rounds of so many runs to do before looking up: up to `stop`, and about `PACE` seconds."""
    left, known, key = stop - simulation.round, simulation.problem.traced, ("pace", simulation.programs.round)
    if simulation.round and simulation.seconds:
        known[key] = simulation.round / simulation.seconds
    if key not in known:
        return 1
    return max(1, min(left, int(PACE * known[key] / runs)))


def _agreed(stretch: int, asked: bool) -> tuple[int, bool]:
    """Process 0's stretch, as clocks differ, and whether any process was asked to stop."""
    found = hosts.gathered(np.array([stretch, asked]))
    return int(found[0, 0]), bool(found[:, 1].any())


def _report_excluded(known: dict[str, int], now: dict[str, int], first: int, last: int) -> dict[str, int]:
    for client, count in now.items():
        if count > known.get(client, 0):
            log.warning(
                "client '%s': update not finite, left out %d times in rounds %d to %d",
                client,
                count - known.get(client, 0),
                first + 1,
                last,
            )
    return now


def _resumed(simulation: Simulation, folder: Path, identity: dict[str, Any]) -> list[dict[str, Any]]:
    """Put the simulation where its newest checkpoint left off; return the history up to there."""
    path = checkpoints.latest(folder)
    if path is None:
        raise PolyfedError(f"{folder}: no checkpoint here to resume from")
    state, meta = checkpoints.load(path, simulation.server, simulation.start)
    checkpoints.refuse_other(path, meta["identity"], identity)
    counters = {name: int(meta["counters"][name]) for name in COUNTERS}
    simulation.restore(state, counters, float(meta["seconds"]))
    return list(meta["history"])


def run_identity(
    problem: Problem,
    algorithm: Algorithm,
    participation: Any,
    seed: int,
    init: Init,
    dtype: str,
    compute: str | None = None,
) -> dict[str, Any]:
    """What a run is, in words: two runs with the same identity give the same numbers."""
    hyper = {name: _plain(value) for name, value in vars(algorithm).items()}
    start = init if init is None or isinstance(init, str) else _digest(*jax.tree.leaves(init))
    return {
        "algorithm": algorithm.name,
        **{f"algorithm.{name}": value for name, value in hyper.items()},
        "data": problem.fingerprint,
        "model": problem.model_fingerprint,
        "loss": problem.loss.name,
        "l2": problem.l2,
        "participation": _plain(participation),
        "seed": seed,
        "init": start,
        "dtype": dtype if compute in (None, dtype) else f"{dtype}, computed in {compute}",
    }


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, **{name: _plain(inner) for name, inner in vars(value).items()}}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if isinstance(value, str | int | float | bool | None) else repr(value).split(" at 0x")[0]


def _digest(*arrays: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Within it, the first Ctrl-C only asks the run to stop after the current stretch; the second is the usual one."""
    asked = False

    def ask(*_: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
