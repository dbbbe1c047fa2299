"""One entry point: simulate a federation in this process, or in several that do the same."""

from __future__ import annotations

import hashlib
import logging
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
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
from polyfed.problem.problem import DType, Init, Problem
from polyfed.problem.reference import Distance

log = logging.getLogger("polyfed")
PACE = 0.5
"""The seconds that one call of the compiled rounds should take, so that progress shows and Ctrl-C is heard."""

Progress = Callable[[Simulation, dict[str, Any] | None], None]
"""Called after every stretch of rounds, with the history's new row where there is one."""


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
    progress: Progress | None = None,
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
    for name, value in (("rounds", rounds), ("eval_every", eval_every), ("checkpoint_every", checkpoint_every)):
        low = 0 if name == "rounds" else 1
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < low):
            raise PolyfedError(f"{name} must be a whole number, at least {low}, found {value!r}")
    simulation = Simulation(
        problem,
        algorithm,
        participation=participation,
        seed=seed,
        init=init,
        dtype=dtype,
        compute=compute,
        devices=devices,
        chunk=chunk,
        adapt_on_test=adapt_on_test,
        store=store,
        eval_clients=eval_clients,
        privacy=privacy,
        folder=None if checkpoint is None else Path(checkpoint),
    )
    identity = (
        run_identity(problem, simulation.method, participation, seed, init, dtype, simulation.compute)
        if resume or checkpoint or simulation.layout.hosts > 1
        else {}
    )
    if identity and adapt_on_test:
        identity["adapt_on_test"] = True
    if identity and eval_clients is not None:
        identity["eval_clients"] = eval_clients
    if identity and privacy is not None:
        identity["privacy"] = _plain(privacy)
    hosts.refuse_different(
        identity | {"rounds": rounds, "eval_every": eval_every, "checkpoint_every": checkpoint_every}
    )
    rows = (
        checkpoints.kept_rows(_resumed(simulation, Path(resume), identity), eval_every, rounds)
        if resume is not None
        else []
    )
    if simulation.round > rounds:
        raise PolyfedError(f"{resume}: this checkpoint is of round {simulation.round}, beyond the {rounds} asked for")

    if checkpoint is not None and (resume is None or Path(resume) != Path(checkpoint)):
        checkpoints.clear(Path(checkpoint))

    def keep() -> None:
        if checkpoint is not None:
            meta = {
                "identity": identity,
                "counters": simulation.counters,
                "seconds": simulation.seconds,
                "history": rows,
            }
            checkpoints.save(Path(checkpoint), simulation.round, simulation.state(), meta)

    distance = _distance(simulation)
    if not rows:
        simulation.prepare()
        rows.append(_row(simulation, finetune, distance))
        if progress:
            progress(simulation, rows[-1])
    diverged, known = None, simulation.excluded
    with _interruptible() as interrupted:
        while simulation.round < rounds and not diverged:
            stop = _next_stop(simulation.round, rounds, eval_every, checkpoint_every)
            stretch, asked = _agreed(_stretch(simulation, stop), interrupted())
            if asked:
                break
            before, empty = simulation.round, simulation.empty_rounds
            simulation.advance(stretch)
            known = _report_excluded(known, simulation.excluded, before, simulation.round)
            if simulation.empty_rounds > empty:
                diverged = f"no client's update was finite by round {simulation.round}"
            row = None
            if simulation.round == rounds or simulation.round % eval_every == 0:
                row = _row(simulation, finetune, distance)
                rows.append(row)
                if not diverged and not np.isfinite(row["objective"]):
                    diverged = f"the objective is {row['objective']} at round {simulation.round}"
            if progress:  # before the checkpoint: what is told of a round is never behind it
                progress(simulation, row)
            if checkpoint_every and simulation.round % checkpoint_every == 0 and simulation.round < rounds:
                keep()
        if not diverged:
            keep()
    if diverged:
        diverged = f"{algorithm.name} diverged: {diverged}; a smaller lr may help"
        warnings.warn(diverged, RuntimeWarning, stacklevel=2)
    return Result(simulation, rows, diverged, interrupted=simulation.round < rounds and not diverged)


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
        "objective": float(np.mean(own["loss"] + own["ridge"])),
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
    return {
        f"{model}_{split}_{metric}": float(np.nanmean(values))
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
    found = {model: fairness.disparity(splits[split][metric], rows) for model, splits in metrics.items()}
    return {
        f"{model}_{split}_{metric}_{name}": values[name]
        for model, values in found.items()
        for name in fairness.OVER_ROUNDS
    }


def _next_stop(round: int, rounds: int, *every: int | None) -> int:
    """The next round at which there is something to do."""
    return min([rounds, *((round // step + 1) * step for step in every if step)])


def _stretch(simulation: Simulation, stop: int) -> int:
    """How many rounds to run before looking up: up to `stop`, and about `PACE` seconds."""
    left = stop - simulation.round
    if not simulation.round or not simulation.seconds:
        return 1
    return max(1, min(left, int(PACE * simulation.round / simulation.seconds)))


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
