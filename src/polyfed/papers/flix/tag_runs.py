"""The runs behind FLIX's Fig. 1, 6 and 7: every method with every candidate, on workers or on maintainers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from polyfed import data
from polyfed.data.federation import Federation
from polyfed.papers.flix.tag_models import LocalModels, TagRows, Trained, laid_out, local_models, measured, trained
from polyfed.papers.shared.experiment import ExperimentProgress, Row
from polyfed.papers.shared.held_out import Options, options
from polyfed.papers.shared.rows import rounded
from polyfed.papers.shared.run_cache import RunCache

ALPHAS = (0.2, 0.4, 0.6, 0.8, 1.0)
TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
STEPSIZES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
RIVALS: dict[str, dict[str, tuple[float, ...]]] = {
    "FOMAML": {"inner_lr": (0.1, 1.0), "lr": (1.0, 3.0, 10.0, 30.0)},
    "Reptile": {"lr": (0.1, 0.3, 1.0, 3.0), "server_lr": (1.0, 3.0)},
    "FedAvg": {"lr": (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0), "server_lr": (1.0,)},
}
"""As many candidates for each as FLIX has for an alpha."""
ALONE, CONSTANT = "alone", "constant"
SMALLEST = 1e-3
"""A tag that no training row of a client has is given this share by the constant predictor."""


class TagTask(NamedTuple):
    """A way to make clients, and the rounds of a run."""

    name: str
    data: Options
    rounds: int


def tasks(quick: bool) -> dict[str, TagTask]:
    """(a): two maintainers dealt out over workers; (b): maintainers."""
    size = options(words=500, tags=20) if quick else options(tags=100)
    workers = options(workers=12, rows=10, validation=20, test=40) if quick else options(workers=100, rows=10, test=200)
    natural = options(max_rows=60, validation=0.15, test=0.35, **({"clients": 10} if quick else {}))
    dealt, kept = (20, 20) if quick else (300, 150)
    return {"a": TagTask("workers", size + workers, dealt), "b": TagTask("maintainers", size + natural, kept)}


class TagRun(NamedTuple):
    """A method with one candidate's numbers, on a task with one seed, which draws the data alone."""

    task: TagTask
    seed: int
    method: str
    numbers: Options


_rows: RunCache[Row] = RunCache(dict, dict)


@lru_cache(maxsize=10)
def _laid_out(task: TagTask, seed: int) -> tuple[TagRows, np.ndarray]:
    """The rows, and what the constant predictor of each client says: how often its training rows have each tag."""
    federation = data.load("debtags", seed=seed, **dict(task.data))
    assert isinstance(federation, Federation)
    shares = np.stack([federation.train.of(client)[1].mean(axis=0) for client in range(len(federation))])
    return laid_out(federation), shares


@lru_cache(maxsize=10)
def _local(task: TagTask, seed: int) -> list[LocalModels]:
    return local_models(_laid_out(task, seed)[0].rows, TOLERANCES)


def run_all(
    task: TagTask, seed: int, method: str, candidates: Sequence[Options], progress: ExperimentProgress
) -> list[Row]:
    """Every candidate's measurements; those that are not known are computed together. FLIX's have a tolerance."""
    runs = [TagRun(task, seed, method, each) for each in candidates]
    missing = [run for run in runs if _rows.get(run) is None]
    if missing:
        progress(f"{task.name}, seed {seed}: {method}", 0, len(missing))
        models = _trained(task, seed, method, [dict(run.numbers) for run in missing])
        tagged = _laid_out(task, seed)[0]
        for run, (model, more) in zip(missing, models, strict=True):
            found = {
                f"{split}_{name}": value
                for split in ("validation", "test")
                for name, value in measured(tagged, model, split).items()
            }
            facts = {"task": task.name, "seed": seed, "method": method, **dict(run.numbers)}
            _rows.put(run, rounded(facts | more | found))
    return [_rows[run] for run in runs]


def _trained(
    task: TagTask, seed: int, method: str, candidates: Sequence[Mapping[str, float]]
) -> list[tuple[Trained, Row]]:
    """The models of every candidate, and what is to be told of how they came about."""
    tagged, shares = _laid_out(task, seed)
    blank = np.zeros(tagged.rows.y.shape, np.float32)
    if method == CONSTANT:
        logits = np.log(np.clip(shares, SMALLEST, 1 - SMALLEST) / np.clip(1 - shares, SMALLEST, 1))
        return [(Trained(blank, blank, logits), {})]
    if method == ALONE:
        return [
            (Trained(blank, each.coefficients), _told(each, t)) for t, each in _by_tolerance(task, seed, candidates)
        ]
    local = blank
    if method == "FLIX":
        [(_, each)] = _by_tolerance(task, seed, candidates[:1])
        local = each.coefficients
        candidates = [{name: value for name, value in c.items() if name != "tolerance"} for c in candidates]
    return [(model, {}) for model in trained(method, candidates, tagged, local, task.rounds)]


def _by_tolerance(
    task: TagTask, seed: int, candidates: Sequence[Mapping[str, float]]
) -> list[tuple[float, LocalModels]]:
    found = dict(zip(TOLERANCES, _local(task, seed), strict=True))
    return [(candidate["tolerance"], found[candidate["tolerance"]]) for candidate in candidates]


def _told(local: LocalModels, tolerance: float) -> Row:
    return {
        "reached": int(np.sum(local.norms < tolerance)),
        "clients": len(local.norms),
        "largest_norm": float(local.norms.max()),
        "iterations": float(np.median(local.iterations)),
        "train_loss": float(local.losses.mean()),
    }


def tolerance_rows(task: TagTask, seed: int, progress: ExperimentProgress) -> list[Row]:
    """The pure local models of every tolerance."""
    return run_all(task, seed, ALONE, [options(tolerance=t) for t in TOLERANCES], progress)


def best_tolerance(task: TagTask, progress: ExperimentProgress) -> float:
    """The tolerance whose pure local models have the lowest validation loss, with the first seed (FLIX, Sec. 10)."""
    return min(tolerance_rows(task, 0, progress), key=lambda row: row["validation_loss"])["tolerance"]


def flix_candidates(alpha: float, tolerance: float) -> list[Options]:
    return [options(alpha=alpha, lr=lr, tolerance=tolerance) for lr in STEPSIZES]


def rival_candidates(method: str) -> list[Options]:
    """Every combination of a rival's values."""
    grid: list[dict[str, float]] = [{}]
    for name, values in RIVALS[method].items():
        grid = [each | {name: value} for each in grid for value in values]
    assert len(grid) == len(STEPSIZES) == math.prod(map(len, RIVALS[method].values()))
    return [options(**each) for each in grid]


def chosen(rows: Sequence[Row], candidates: Sequence[Options]) -> Options:
    """The candidate with the highest recall@5 on validation rows."""
    return candidates[int(np.argmax([row["validation_recall"] for row in rows]))]
