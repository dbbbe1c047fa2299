"""Figures over the clients' metrics: how they spread, and who is better off."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TypedDict

import numpy as np

from polyfed.engine import fairness
from polyfed.engine.simulation import Metrics
from polyfed.problem.problem import Problem

Cell = str | int | float | None
"""A value of clients.csv."""
MODELS = ("global", "personal", "alone", "finetuned")
LOWER_IS_BETTER = ("loss", "error")


class Summary(TypedDict):
    """The figures over clients in summary.json."""

    models: dict[str, dict[str, dict[str, dict[str, float | None]]]]
    """model, split, metric, statistic"""
    attention: dict[str, float] | None
    better_than_alone: float | None
    better_than_global: float | None
    figure: str


def spread(values: np.ndarray, sizes: np.ndarray, metric: str) -> dict[str, float | None]:
    """Mean, mean weighted by the clients' rows, standard deviation, and the means of the worst and the best tenth."""
    there = ~np.isnan(values)
    values, sizes = values[there].astype(np.float64), sizes[there]
    if not len(values):
        return dict.fromkeys(("mean", "size_weighted_mean", "std", "worst10", "best10"))
    ordered = np.sort(values)
    tenth = max(1, ceil(0.1 * len(values)))
    low, high = float(np.mean(ordered[:tenth])), float(np.mean(ordered[-tenth:]))
    worst, best = (high, low) if metric in LOWER_IS_BETTER else (low, high)
    return {
        "mean": float(np.mean(values)),
        "size_weighted_mean": float(np.average(values, weights=sizes)),
        "std": float(np.std(values)),
        "worst10": worst,
        "best10": best,
    }


def share_better(values: np.ndarray, than: np.ndarray, metric: str) -> float | None:
    """The share of clients with a strictly better value than in `than`, of those that have both."""
    both = ~(np.isnan(values) | np.isnan(than))
    if not both.any():
        return None
    better = values < than if metric in LOWER_IS_BETTER else values > than
    return float(np.mean(better[both]))


def summarize(
    problem: Problem, metrics: Metrics, weights: np.ndarray | None = None, clients: np.ndarray | None = None
) -> Summary:
    """The figures of a summary: every model on every split over the clients, and the share of clients better off.

    `weights` are all clients' shares of the server's averages; `clients` are those that were measured, by default all.
    A client is better off if its deployed model has a better metric on test rows (training rows where there are none).
    """
    federation, metric = problem.federation, problem.loss.metric_name
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

    def better(than: str) -> float | None:
        if than not in metrics or metrics[than] is metrics["personal"]:
            return None
        return share_better(metrics["personal"][split][metric], metrics[than][split][metric], metric)

    return {
        "models": models,
        "attention": None if weights is None else fairness.attention(weights, federation.train.sizes),
        "better_than_alone": better("alone"),
        "better_than_global": better("global"),
        "figure": f"{metric} of the model that each client deploys, on its own {split} rows, at the last round, over "
        + who(len(clients), len(problem)),
    }


def who(measured: int, population: int) -> str:
    """Which clients a figure is about, in words."""
    if measured == population:
        return f"all {population} clients"
    return f"{measured} of {population} clients, a sample that the run's seed drew"


def client_rows(
    problem: Problem,
    metrics: Metrics,
    own_share: np.ndarray | None,
    weights: np.ndarray | None = None,
    clients: np.ndarray | None = None,
) -> list[dict[str, Cell]]:
    """A row per measured client (by default all), with None for what was not measured.

    It holds the client's sizes, the share of its own model in what it deploys, its share of the server's averages, and
    every metric of every model. `weights` are those of all clients.
    """
    federation = problem.federation
    clients = np.arange(len(problem)) if clients is None else clients
    sizes = {f"{split}_rows": federation.split(split).sizes[clients] for split in ("train", "validation", "test")}
    columns: dict[str, np.ndarray | Sequence[Cell]] = {"client": [federation.clients[int(i)] for i in clients], **sizes}
    columns["own_share"] = [None] * len(clients) if own_share is None else own_share
    # Six digits: sums of 32-bit numbers over the rounds have no more that do not depend on how rounds were grouped.
    columns["server_weight"] = (
        [None] * len(clients) if weights is None else [float(f"{w:.6g}") for w in weights[clients]]
    )
    for model in MODELS:
        for split, by_name in metrics.get(model, {}).items():
            for metric, values in by_name.items():
                if metric != "ridge":
                    columns[f"{model}_{split}_{metric}"] = values
    return [{name: _plain(column[i]) for name, column in columns.items()} for i in range(len(clients))]


def _plain(value: Cell | np.generic) -> Cell:
    """A NumPy number as Python's own; NaN becomes None."""
    plain: Cell = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and np.isnan(plain) else plain
