"""What a method's finished runs are worth to each client: every metric of every model, and gains on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.engine.client_metrics import Metrics
from polyfed.engine.measure import FineTune
from polyfed.engine.result import Result
from polyfed.engine.simulation import Simulation
from polyfed.problem.metrics import Metric, metrics_of
from polyfed.problem.problem import Problem
from polyfed.studies.config import Config, Method
from polyfed.studies.gains import REFERENCES, Basis, Gains, GainsInTheMaking
from polyfed.studies.run_settings import Draw
from polyfed.studies.same_rows import rarest_class, same_rows
from polyfed.studies.scoring import ClientScores, Stream, client_scores, side_by_side

MANY_CLIENTS = 2000
"""With more, only the metric that is shown is computed from every client's scores."""
MOST_POOLED = 20_000_000
"""The most scores of a model that are held at once, for the metric of all rows together."""


@dataclass
class RunOutcome:
    """One run of a method, measured at its end."""

    draw: Draw
    result: Result
    metrics: Metrics
    """of all models; "personal" is what clients deploy"""
    deploys_global: bool
    """whether that is the global model itself"""
    alone: Simulation | None
    """the same clients, each trained on its own"""
    pooled: dict[str, float] = field(default_factory=dict)
    """by model, the shown metric of all clients' test rows together"""

    @property
    def simulation(self) -> Simulation:
        return self.result.simulation

    @property
    def problem(self) -> Problem:
        return self.simulation.problem


def run_outcome(config: Config, method: Method, draw: Draw, result: Result, alone: Simulation | None) -> RunOutcome:
    """A run with the metrics that the engine measures; `alone` are the same clients, each trained on its own."""
    metrics = result.metrics(config.finetune(method.algorithm))
    deploys_global = metrics.get("global") is metrics["personal"]
    if method.finetune:
        if "finetuned" not in metrics:
            raise PolyfedError(f"{config.where}: '{method.label}' asks for fine-tuning, but nothing is fine-tuned")
        metrics["personal"], deploys_global = metrics["finetuned"], False
    if alone is not None:
        metrics["alone"] = alone.measure()["personal"]
    copied = {model: {split: dict(values) for split, values in splits.items()} for model, splits in metrics.items()}
    return RunOutcome(draw, result, copied, deploys_global, alone)


def measure_scores(config: Config, method: Method, outcomes: Sequence[RunOutcome]) -> dict[str, Gains]:
    """Add to each run what follows from its models' scores, and return what the runs say together of every gain.

    Clients come one after another, each with its rows in all runs, so that memory does not grow with their number.
    """
    shown, first = config.metric, outcomes[0]
    count, finetune = len(first.simulation.evaluated), config.finetune(method.algorithm)
    basis: Basis = "splits" if first.draw.split is not None else "rows" if len(outcomes) == 1 else "seeds"
    federations = [outcome.problem.federation for outcome in outcomes]
    gains: dict[str, GainsInTheMaking] = {}
    for split in ("validation", "test"):
        if split not in first.metrics["personal"]:
            continue
        wanted = [shown]
        if split == "test":
            outside = _rows_outside_test(first)
            gains = {name: GainsInTheMaking(shown, count, basis, outside) for name in _references(outcomes)}
            if count <= MANY_CLIENTS:
                wanted = list(dict.fromkeys([shown, *metrics_of(first.problem)]))
        tables = [_Table(wanted, count, pools=split == "test") for _ in outcomes]
        streams = [_scores(outcome, split, finetune, method.finetune) for outcome in outcomes]
        for place, clients in side_by_side(streams):
            for table, scored in zip(tables, clients, strict=True):
                table.add(place, scored)
            tested = split == "test" and basis == "splits"
            client = int(first.simulation.evaluated[place])
            rows = same_rows(federations, client) if tested else None
            rarest = rarest_class(federations, client) if tested else np.inf
            for reference, making in gains.items():
                pairs = [(own.scores["personal"], own.scores[reference], own.labels) for own in clients]
                making.add(place, pairs, rows, rarest)
        for outcome, table in zip(outcomes, tables, strict=True):
            table.write(outcome, split, shown)
    return {reference: making.finished() for reference, making in gains.items()}


def _references(outcomes: Sequence[RunOutcome]) -> list[str]:
    """What the deployed model is compared with, of what was measured in all runs."""
    others = [outcome.alone for outcome in outcomes if outcome.alone not in (None, outcome.simulation)]
    there = {"alone": len(others) == len(outcomes), "constant": True}
    there["global"] = "global" in outcomes[0].metrics and not outcomes[0].deploys_global
    return [reference for reference in REFERENCES if there[reference]]


def _rows_outside_test(outcome: RunOutcome) -> np.ndarray:
    """The training and validation rows of each measured client."""
    federation, clients = outcome.problem.federation, outcome.simulation.evaluated
    return federation.train.sizes[clients] + federation.validation.sizes[clients]


def _scores(outcome: RunOutcome, split: str, finetune: FineTune | None, deploys_tuned: bool) -> Stream:
    """Every evaluated client of a run with the scores of all models: the run's, going alone, and the constant."""
    run = outcome.simulation
    streams = [client_scores(run, split, constant=True)]
    if "finetuned" in outcome.metrics:
        streams.append(client_scores(run, split, finetune))
    if outcome.alone is not None:
        streams.append(_renamed(client_scores(outcome.alone, split)))
    for place, parts in side_by_side(streams):
        scores = {model: values for part in reversed(parts) for model, values in part.scores.items()}
        if deploys_tuned:
            scores["personal"] = scores["finetuned"]
        yield place, ClientScores(parts[0].labels, scores)


def _renamed(alone: Stream) -> Stream:
    """What clients deploy that were trained alone, under that name."""
    for place, client in alone:
        yield place, ClientScores(client.labels, {"alone": client.scores["personal"]})


class _Table:
    """Metrics of models, client by client, as the clients come."""

    def __init__(self, metrics: Sequence[Metric], clients: int, pools: bool) -> None:
        self.metrics, self.clients, self.pools, self.held = metrics, clients, pools, 0
        self.values: dict[str, np.ndarray] = {}
        self.rows: dict[str, list[np.ndarray]] = {}
        self.labels: list[np.ndarray] = []

    def add(self, place: int, client: ClientScores) -> None:
        for model, scores in client.scores.items():
            table = self.values.setdefault(model, np.full((len(self.metrics), self.clients), np.nan))
            table[:, place] = [metric(scores, client.labels) for metric in self.metrics]
        if self.pools:
            self.held += max(scores.size for scores in client.scores.values())
            if self.held > MOST_POOLED:
                self.pools, self.rows, self.labels = False, {}, []
                return
            self.labels.append(client.labels)
            for model, scores in client.scores.items():
                self.rows.setdefault(model, []).append(scores)

    def write(self, outcome: RunOutcome, split: str, shown: Metric) -> None:
        """Put all values into the run's metrics; what the engine measured itself stays."""
        for model, values in self.values.items():
            known = outcome.metrics.setdefault(model, {}).setdefault(split, {})
            for metric, column in zip(self.metrics, values, strict=True):
                known.setdefault(metric.name, column)
        for model, rows in self.rows.items():
            outcome.pooled[model] = shown(np.concatenate(rows), np.concatenate(self.labels))
