"""Metrics of clients' models, from the scores that they give: one client at a time, over clients, and pooled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.engine.measure import FineTune
from polyfed.engine.scores import ScoredClients
from polyfed.engine.simulation import Simulation
from polyfed.problem.metrics import Aggregate, Metric, aggregate, class_count, kind_of, metric_named

POOLED_BYTES = 1 << 30
"""The most that the scores of all rows may take to be held at once, which pooled metrics need; else there are none."""


@dataclass(frozen=True)
class Judged:
    """What metrics say of the evaluated clients' models on a split."""

    clients: np.ndarray
    """their places in the federation"""
    names: list[str]
    rows: np.ndarray
    values: dict[str, dict[str, np.ndarray]]
    """{model: {metric: one value per client}}, NaN where a client has none"""
    aggregates: dict[str, dict[str, Aggregate]]
    """{model: {metric: its aggregates over the clients}}"""


def judge(
    simulation: Simulation,
    metrics: str | Metric | Sequence[str | Metric],
    split: str = "test",
    finetune: FineTune | None = None,
    *,
    pooled: bool = True,
) -> Judged:
    """These metrics of every evaluated client's models, as they are now, and of the constant predictor.

    With `finetune` also of the fine-tuned model, where the method has a global one. No more scores are held than those
    of a block of clients, but for `pooled`.
    """
    given = [metrics] if isinstance(metrics, str | Metric) else metrics
    chosen = [metric_named(metric, simulation.problem) for metric in given]
    if repeated := [metric.name for metric in chosen if [m.name for m in chosen].count(metric.name) > 1]:
        raise PolyfedError(f"metric '{repeated[0]}' is given more than once")
    part, names = simulation.problem.federation.split(split), simulation.problem.federation.clients
    clients = simulation.evaluated
    sizes = part.sizes[clients]
    tables = _Tables(clients, chosen, pooled and _fits(simulation, int(sizes.sum())))
    for block in simulation.scores(split, constant=True):
        tables.add(block)
    if finetune is not None and simulation.global_params is not None:
        for block in simulation.scores(split, finetune):
            tables.add(block)
    listed = [str(names[client]) for client in clients.tolist()]
    return Judged(clients, listed, sizes, tables.values, tables.aggregates(sizes, listed))


class _Tables:
    """A column per model and metric, filled in block by block."""

    def __init__(self, clients: np.ndarray, metrics: list[Metric], pooled: bool) -> None:
        self._clients, self._metrics = clients, metrics
        self.values: dict[str, dict[str, np.ndarray]] = {}
        self._finite: dict[str, np.ndarray] = {}
        self._held: dict[str, list[tuple[list[np.ndarray], list[np.ndarray]]]] | None = {} if pooled else None

    def add(self, block: ScoredClients) -> None:
        places = np.searchsorted(self._clients, block.clients)
        known: dict[int, str] = {}
        for model, scores in block.scores.items():
            if (same := known.setdefault(id(scores), model)) != model:  # the clients deploy the global model
                self.values[model], self._finite[model] = self.values[same], self._finite[same]
                continue
            columns = self.values.setdefault(
                model, {metric.name: np.full(len(self._clients), np.nan) for metric in self._metrics}
            )
            finite = self._finite.setdefault(model, np.ones(len(self._clients), bool))
            for place, own, labels in zip(places.tolist(), scores, block.labels, strict=True):
                finite[place] = np.isfinite(own).all()
                for metric in self._metrics:
                    columns[metric.name][place] = metric(own, labels)
            if self._held is not None:
                self._held.setdefault(model, []).append((scores, block.labels))

    def aggregates(self, rows: np.ndarray, names: list[str]) -> dict[str, dict[str, Aggregate]]:
        done: dict[int, dict[str, Aggregate]] = {}
        for model, columns in self.values.items():
            if id(columns) not in done:
                pooled = self._pooled(model)
                done[id(columns)] = {
                    metric.name: aggregate(
                        columns[metric.name], rows, names, self._finite[model], pooled.get(metric.name, float("nan"))
                    )
                    for metric in self._metrics
                }
        return {model: done[id(columns)] for model, columns in self.values.items()}

    def _pooled(self, model: str) -> dict[str, float]:
        if self._held is None:
            return {}
        held = self._held.get(model, [])
        scores = np.concatenate([own for scores, _ in held for own in scores])
        labels = np.concatenate([own for _, labels in held for own in labels])
        return {metric.name: metric(scores, labels) for metric in self._metrics}


def _fits(simulation: Simulation, rows: int) -> bool:
    """Whether all scores and labels may be held at once: of personal, global, fine-tuned and constant models."""
    problem = simulation.problem
    shape = problem.federation.like.y.shape[1:]
    width = int(np.prod(shape, dtype=int))
    if kind_of(problem) == "classes" and (count := class_count(problem) or 2) > 2:
        width *= count
    return rows * width * 8 * 4 <= POOLED_BYTES
