"""One number for many clients: the mean over clients, plain or by size, and the metric of all rows together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Aggregate:
    """A metric of one model over clients, each way under its own name; NaN where there is none."""

    mean: float
    """over the clients that have it"""
    size_weighted_mean: float
    """over the same clients, each with the weight of its rows"""
    pooled: float
    """of the rows of all clients together, which is another question: who ranks whose rows above whose"""
    undefined: tuple[str, ...]
    """the names of the clients that have none, as a client with one class has no AUC"""


def aggregate(
    values: np.ndarray, rows: np.ndarray, names: list[str], finite: np.ndarray, pooled: float = float("nan")
) -> Aggregate:
    """The aggregates of one value per client, NaN where a client has none.

    `finite`: whose scores are. A model whose scores are not must not look better by what it leaves out: then there is
    no mean.
    """
    values = np.asarray(values, np.float64)
    there = ~np.isnan(values)
    mean = weighted = float("nan")
    if there.any() and np.all(finite):
        mean = float(np.mean(values[there]))
        weighted = float(np.average(values[there], weights=rows[there]))
    missing = tuple(name for name, has in zip(names, there.tolist(), strict=True) if not has)
    return Aggregate(mean, weighted, pooled, missing)
