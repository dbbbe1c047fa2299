"""Runs that are judged on held-out rows: curves of losses and accuracies, means over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from polyfed import data, models
from polyfed.algorithms.contract import get_algorithm
from polyfed.core.startup import cache_folder
from polyfed.engine.loop import PlannedRun
from polyfed.engine.measure import FineTune
from polyfed.engine.result import Result
from polyfed.engine.simulate import every_whole
from polyfed.models.base import Architecture
from polyfed.papers.shared.experiment import ExperimentProgress, Row
from polyfed.papers.shared.run_cache import RunCache
from polyfed.problem.problem import Problem

Options = tuple[tuple[str, Any], ...]
"""Keyword arguments of a source or a method, sorted: they can be the key of a dictionary."""
MODELS: dict[str, Callable[[], Architecture]] = {
    "linear": models.linear,
    "mlp": models.mlp,
    "mlp32": lambda: models.mlp([32]),
    "cifar_cnn": models.cifar_cnn,
    "femnist_cnn": models.femnist_cnn,
    "lstm": models.lstm,
    "lstm32": lambda: models.lstm(hidden=32),
}


def banks() -> Path:
    """Where pure local models are kept: methods, mixing weights, candidates and figures share those of a problem."""
    return cache_folder() / "local-models"


@dataclass(frozen=True)
class HeldOutRun:
    """A method on a dataset with one seed, which draws the data, the batches and the cohorts."""

    source: str
    data: Options
    model: str
    l2: float
    method: str
    options: Options
    rounds: int
    seed: int
    participation: float = 1.0
    finetune: FineTune | None = None
    """Also measure the global model after this much local work: the papers call it localized."""
    every: int = 1
    first_clients: int | None = None
    """Use only so many clients, for a quick run."""


@dataclass(frozen=True)
class HeldOutCurve:
    """A run's rows, and the shares of the clients' own models at its end where the method mixes."""

    rows: tuple[Row, ...]
    own_share: np.ndarray | None


_curves = RunCache(vars, lambda plain: HeldOutCurve(tuple(plain["rows"]), plain["own_share"]))


@lru_cache(maxsize=5)
def problem_of(
    source: str, options: Options, seed: int, model: str, l2: float, first_clients: int | None = None
) -> Problem:
    federation = data.load(source, seed=seed, **dict(options))
    if first_clients is not None:
        federation = federation.select(range(first_clients))
    return Problem(federation, MODELS[model](), "softmax", l2)


def trace_all(runs: Iterable[HeldOutRun], progress: ExperimentProgress) -> dict[HeldOutRun, HeldOutCurve]:
    """All the curves. Runs that differ in seeds and real-valued hyper-parameters alone are computed side by side."""
    runs = list(dict.fromkeys(runs))
    alike: dict[HeldOutRun, list[HeldOutRun]] = {}
    for run in runs:
        finetune = run.finetune and replace(run.finetune, lr=0.0)
        alike.setdefault(replace(run, seed=0, options=(), finetune=finetune), []).append(run)
    done = 0
    for like, group in alike.items():
        progress(f"{like.source}: {like.method}, {len(group)} runs", done, len(runs))
        missing = [run for run in group if _curves.get(run) is None]
        if missing:
            _trace(missing)
        done += len(group)
    progress("done", len(runs), len(runs))
    return {run: _curves[run] for run in runs}


def _trace(runs: Sequence[HeldOutRun]) -> None:
    """Compute and store these curves, each as soon as its run has ended."""
    like = runs[0]

    def finished(place: int, result: Result) -> None:
        wanted = ("round", "iterations", "train_loss", "validation_accuracy", "test_accuracy")
        rows = tuple({k: v for k, v in row.items() if k.endswith(wanted) and v is not None} for row in result.rows)
        _curves.put(runs[place], HeldOutCurve(rows, result.simulation.own_share))

    planned = [
        PlannedRun(
            problem_of(run.source, run.data, run.seed, run.model, run.l2, run.first_clients),
            get_algorithm(run.method)(**dict(run.options)),
            seed=run.seed,
            finetune=run.finetune,
        )
        for run in runs
    ]
    every_whole(
        planned,
        finished,
        rounds=like.rounds,
        participation=like.participation,
        eval_every=like.every,
        local_models=banks(),
    )


def plus_minus(values: np.ndarray, percent: bool = False) -> str:
    """Mean and standard deviation over seeds, for people."""
    scale, digits, unit = (100, 2, "%") if percent else (1, 4, "")
    deviation = f" ± {scale * np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{scale * np.mean(values):.{digits}f}{deviation}{unit}"


def against(ours: np.ndarray, theirs: np.ndarray, percent: bool = False) -> str:
    """Two methods' values over seeds, for people."""
    return f"{plus_minus(ours, percent)} against {plus_minus(theirs, percent)}"


def options(**given: Any) -> Options:
    """Keyword arguments as a key."""
    return tuple(sorted(given.items()))
