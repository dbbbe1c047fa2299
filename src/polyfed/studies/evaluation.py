"""Figures over the clients' metrics: how they spread, and who is better off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import TypedDict

import numpy as np

from polyfed.data import Federation
from polyfed.engine import fairness
from polyfed.engine.client_metrics import Metrics
from polyfed.problem.metrics import METRICS, class_count
from polyfed.problem.problem import SPLITS, Problem
from polyfed.studies.gains import Gains
from polyfed.studies.verdicts.intervals import Interval
from polyfed.studies.verdicts.words import count_verdicts, detectable, verdict

Cell = str | int | float | None
"""A value of clients.csv."""
MODELS = ("global", "personal", "alone", "finetuned", "constant")


class Summary(TypedDict):
    """The figures over clients in summary.json."""

    models: dict[str, dict[str, dict[str, dict[str, float | None]]]]
    """model, split, metric, statistic"""
    attention: dict[str, float] | None
    figure: str


def lower_is_better(metric: str) -> bool:
    """Whether a metric of this name, or the loss, is better where it is lower."""
    return metric in ("loss", "weighted_loss") or (metric in METRICS and not METRICS[metric].higher_is_better)


def spread(values: np.ndarray, sizes: np.ndarray, metric: str) -> dict[str, float | None]:
    """Mean, mean weighted by the clients' rows, standard deviation, and the means of the worst and the best tenth."""
    there = ~np.isnan(values)
    values, sizes = values[there].astype(np.float64), sizes[there]
    if not len(values):
        return dict.fromkeys(("mean", "size_weighted_mean", "std", "worst10", "best10"))
    ordered = np.sort(values)
    tenth = max(1, ceil(0.1 * len(values)))
    low, high = float(np.mean(ordered[:tenth])), float(np.mean(ordered[-tenth:]))
    worst, best = (high, low) if lower_is_better(metric) else (low, high)
    return {
        "mean": float(np.mean(values)),
        "size_weighted_mean": float(np.average(values, weights=sizes)),
        "std": float(np.std(values)),
        "worst10": worst,
        "best10": best,
    }


def summarize(
    problem: Problem,
    metrics: Metrics,
    shown: str,
    weights: np.ndarray | None = None,
    clients: np.ndarray | None = None,
) -> Summary:
    """The figures of a summary: every model on every split over the clients.

    `shown` is the name of the metric that is shown; `weights` are all clients' shares of the server's averages;
    `clients` are those that were measured, by default all.
    """
    federation = problem.federation
    clients = np.arange(len(problem)) if clients is None else clients
    rows = federation.train.sizes[clients]
    models = {
        model: {
            split: {
                name: spread(values, federation.split(split).sizes[clients], name) | fairness.disparity(values, rows)
                for name, values in by_name.items()
                if name != "ridge"
            }
            for split, by_name in splits.items()
        }
        for model, splits in metrics.items()
    }
    split = "test" if "test" in metrics["personal"] else "train"
    return {
        "models": models,
        "attention": None if weights is None else fairness.attention(weights, federation.train.sizes),
        "figure": f"{shown} of the model that each client deploys, on its own {split} rows, at the last round, over "
        + who(len(clients), len(problem)),
    }


def who(measured: int, population: int) -> str:
    """Which clients a figure is about, in words."""
    if population == 1:
        return "its only client"
    if measured == population:
        return f"all {population} clients"
    return f"{measured} of {population} clients, the same sample in every run"


def client_rows(
    problem: Problem,
    metrics: Metrics,
    own_share: np.ndarray | None,
    weights: np.ndarray | None = None,
    clients: np.ndarray | None = None,
    gains: Mapping[str, Gains] | None = None,
) -> list[dict[str, Cell]]:
    """A row per measured client (by default all), with None for what was not measured.

    It holds the client's sizes, what it gained and how sure that is, the share of its own model in what it deploys, its
    share of the server's averages, and every metric of every model. `weights` are those of all clients.
    """
    federation = problem.federation
    clients = np.arange(len(problem)) if clients is None else clients
    sizes = {f"{split}_rows": federation.split(split).sizes[clients] for split in ("train", "validation", "test")}
    columns: dict[str, np.ndarray | Sequence[Cell]] = {"client": [federation.clients[int(i)] for i in clients]}
    if gains is not None:
        columns["rows"] = np.sum(list(sizes.values()), axis=0)
        columns |= gain_columns(gains.get("alone"), len(clients), "")
    columns |= sizes
    if gains is not None and class_count(problem) == 2 and isinstance(federation, Federation):
        columns["positives"] = _positives(problem, clients)
    columns["own_share"] = [None] * len(clients) if own_share is None else own_share
    # Six digits: sums of 32-bit numbers over the rounds have no more that do not depend on how rounds were grouped.
    columns["server_weight"] = (
        [None] * len(clients) if weights is None else [float(f"{w:.6g}") for w in weights[clients]]
    )
    if gains is not None and "global" in gains:
        columns |= gain_columns(gains["global"], len(clients), "global_")
    for model in MODELS:
        for split, by_name in metrics.get(model, {}).items():
            for metric, values in by_name.items():
                if metric != "ridge":
                    columns[f"{model}_{split}_{metric}"] = values
    return [{name: _plain(column[i]) for name, column in columns.items()} for i in range(len(clients))]


def gain_columns(gains: Gains | None, count: int, prefix: str) -> dict[str, Sequence[Cell]]:
    """Gains over one reference; empty where nothing was compared."""
    names = ("verdict", "gain", "gain_low", "gain_high", "gain_p", "detectable", "verdict_among_all")
    rows: list[list[Cell]] = [[None] * len(names) for _ in range(count)]
    if gains is not None:
        among_all = count_verdicts(gains.clients).verdicts
        rows = [[*_gain_cells(own, gains.largest), word] for own, word in zip(gains.clients, among_all, strict=True)]
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    if prefix:
        del columns["detectable"]
    return {prefix + name: column for name, column in columns.items()}


def _gain_cells(interval: Interval, largest: float) -> list[Cell]:
    """Verdict, gain, its interval, its p-value and the smallest gain that could have been told; None where unknown."""
    shown = interval.within(largest)
    ends: list[Cell] = [shown.low, shown.high] if shown.known else [None, None]
    least: Cell = detectable(interval) if interval.known else None
    return [verdict(interval), interval.estimate, *ends, interval.p_value, least]


def _positives(problem: Problem, clients: np.ndarray) -> list[float]:
    """The share of class 1 among each client's rows of all splits."""
    labels = [np.concatenate([problem.targets(client, split) for split in SPLITS]) for client in clients.tolist()]
    return [float(np.mean(own > 0)) for own in labels]


def _plain(value: Cell | np.generic) -> Cell:
    """A NumPy number as Python's own; NaN becomes None."""
    plain: Cell = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and np.isnan(plain) else plain
