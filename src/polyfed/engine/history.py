"""The rows of a history: counters, and means over the evaluated clients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyfed.algorithms.shared.mixture import MixtureMethod
from polyfed.engine import fairness
from polyfed.engine.client_metrics import Metrics
from polyfed.engine.measure import FineTune
from polyfed.engine.simulation import Simulation
from polyfed.problem.reference import Distance

HistoryRow = dict[str, Any]
"""A round's counters and means, by the names of the history's columns: numbers, or None."""


def history_rows(
    simulations: Sequence[Simulation], finetunes: Sequence[FineTune | None], distances: Sequence[Distance | None]
) -> list[HistoryRow]:
    """The history's row of each of these runs: counters and the means over the evaluated clients.

    Several runs are those of a sweep: they have the same models, splits and number of clients.
    """
    measured: list[Metrics] = []
    for simulation, finetune in zip(simulations, finetunes, strict=True):
        metrics = simulation.measure()
        if finetune is not None and "global" in metrics:
            metrics |= simulation.measure(finetune)
        measured.append(metrics)
    means, disparities = _means(measured), _disparities(simulations, measured)
    counters = map(_counters, simulations, measured, _gaps(simulations, distances))
    return [row | mean | spread for row, mean, spread in zip(counters, means, disparities, strict=True)]


def _gaps(simulations: Sequence[Simulation], distances: Sequence[Distance | None]) -> list[dict[str, float]]:
    """How far each run is from its reference solution; runs with the same one are measured together."""
    gaps: list[dict[str, float]] = [{} for _ in simulations]
    for distance in dict.fromkeys(other for other in distances if other is not None):
        places = [place for place, other in enumerate(distances) if other is distance]
        for place, gap in zip(places, distance([simulations[place].global_params for place in places]), strict=True):
            gaps[place] = gap
    return gaps


def _counters(simulation: Simulation, metrics: Metrics, gaps: dict[str, float]) -> HistoryRow:
    own = metrics["personal"]["train"]
    counts = {name: value for name, value in simulation.counters.items() if name != "empty_rounds"}
    row: HistoryRow = {
        **counts,
        "seconds": simulation.seconds,
        "objective": float((own.get("weighted_loss", own["loss"]) + own["ridge"]).mean()),
    }
    if len(simulation.evaluated) < len(simulation.problem):
        row["evaluated_clients"] = len(simulation.evaluated)
    if simulation.spent is not None:
        row["epsilon"] = simulation.spent["epsilon"]
    return row | gaps


def distance_of(simulation: Simulation) -> Distance | None:
    """How to measure the way to the reference solution, where the problem has been solved for this method's alpha."""
    problem, method = simulation.problem, simulation.method
    if simulation.global_params is None:
        return None
    if not isinstance(method, MixtureMethod):
        reference = problem.reference(problem.mixing_weights(1.0))
    elif method.plm_epochs is not None:
        return None
    else:
        reference = problem.reference(problem.mixing_weights(method.alpha), method.local_training.exactness)
    if reference is None:
        return None
    known, key = problem.traced, ("distance", id(reference))  # the problem keeps the reference: its id stays its own
    if key not in known:
        known[key] = Distance(problem, reference)
    return known[key]


def _means(measured: Sequence[Metrics]) -> list[dict[str, float]]:
    """Of each run, the mean over the clients that have each metric."""
    rows: list[dict[str, float]] = [{} for _ in measured]
    known: dict[int, list[list[float]]] = {}  # a client that deploys the global model has one model under two names
    for model, splits in measured[0].items():
        names = [(split, metric) for split, values in splits.items() for metric in values if metric != "ridge"]
        if id(splits) not in known:
            known[id(splits)] = [
                _means_of_present(np.stack([run[model][split][metric] for run in measured])) for split, metric in names
            ]
        for (split, metric), means in zip(names, known[id(splits)], strict=True):
            for row, mean in zip(rows, means, strict=True):
                row[f"{model}_{split}_{metric}"] = mean
    return rows


def _disparities(simulations: Sequence[Simulation], measured: Sequence[Metrics]) -> list[dict[str, float | None]]:
    """How unequal each run serves its clients, by the metric on test rows (training rows where there are none)."""
    rows: list[dict[str, float | None]] = [{} for _ in measured]
    metric = simulations[0].problem.loss.metric_name
    split = "test" if "test" in measured[0]["personal"] else "train"
    sizes = [simulation.problem.federation.train.sizes[simulation.evaluated] for simulation in simulations]
    known: dict[int, list[dict[str, float | None]]] = {}
    for model, splits in measured[0].items():
        if id(splits) not in known:
            known[id(splits)] = fairness.spreads([run[model][split][metric] for run in measured], sizes)
        for row, spread in zip(rows, known[id(splits)], strict=True):
            row |= {f"{model}_{split}_{metric}_{name}": value for name, value in spread.items()}
    return rows


def _means_of_present(values: np.ndarray) -> list[float]:
    """Of each row, the mean of those that are not NaN."""
    means = values.mean(axis=1).tolist()
    return [float(np.nanmean(row)) if math.isnan(mean) else mean for row, mean in zip(values, means, strict=True)]
