"""Clients' scores as figures: every metric of every model, client by client and over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.engine.measure import FineTune
from polyfed.engine.simulation import Simulation
from polyfed.problem.metrics import Metric, default_metric, metric_named
from polyfed.problem.problem import Problem


def problem_metric(name: str | None, problem: Problem, where: str) -> Metric:
    """The metric of this name or, without one, that which fits the problem; an error begins with `where`."""
    if name is None:
        return default_metric(problem)
    try:
        return metric_named(name, problem)
    except PolyfedError as error:
        raise PolyfedError(f"{where}: {error}") from None


@dataclass(frozen=True)
class ClientScores:
    """One client's rows of a split: their labels, and what each model says of them."""

    labels: np.ndarray
    scores: Mapping[str, np.ndarray]


Stream = Iterator[tuple[int, ClientScores]]
"""Clients one after another, each with its place among the evaluated ones."""


def client_scores(
    simulation: Simulation,
    split: str,
    finetune: FineTune | None = None,
    *,
    constant: bool = False,
) -> Stream:
    """The evaluated clients, in any order; only a block of them is in memory."""
    for block in simulation.scores(split, finetune, constant=constant):
        places = np.searchsorted(simulation.evaluated, block.clients).tolist()
        for number, (place, labels) in enumerate(zip(places, block.labels, strict=True)):
            yield place, ClientScores(labels, {model: values[number] for model, values in block.scores.items()})


def side_by_side(streams: Sequence[Stream]) -> Iterator[tuple[int, list[ClientScores]]]:
    """Every client with its rows in all streams, as soon as all have come to it; what came early waits."""
    waiting: list[dict[int, ClientScores]] = [{} for _ in streams]
    for arrivals in zip(*streams, strict=True):
        for held, (place, client) in zip(waiting, arrivals, strict=True):
            held[place] = client
        for place in sorted({place for place, _ in arrivals}):
            if all(place in held for held in waiting):
                yield place, [held.pop(place) for held in waiting]


def mean_metrics(
    simulation: Simulation, metrics: Sequence[Metric], split: str, model: str, finetune: FineTune | None = None
) -> dict[str, float]:
    """The means over the clients that have each metric; NaN where nobody has."""
    values = np.full((len(simulation.evaluated), len(metrics)), np.nan)
    for place, client in client_scores(simulation, split, finetune):
        values[place] = [metric(client.scores[model], client.labels) for metric in metrics]
    return {metric.name: _mean_of_present(column) for metric, column in zip(metrics, values.T, strict=True)}


def _mean_of_present(values: np.ndarray) -> float:
    present = values[~np.isnan(values)]
    return float(np.mean(present)) if len(present) else float("nan")
