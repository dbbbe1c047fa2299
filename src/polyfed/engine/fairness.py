"""How evenly a federation serves its clients, and whose data the server listens to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

OVER_ROUNDS = ("variance", "smallest", "largest")
"""The columns of `disparity` that a history has for every evaluated round."""
ALL = (*OVER_ROUNDS, "gini", "jain")


def disparity(values: np.ndarray, rows: np.ndarray) -> dict[str, float | None]:
    """The spread of a metric over the clients that have it; `rows` are their training rows.

    `variance` over clients; `smallest` and `largest`, the metric of the client with the fewest and the most training
    rows (the mean, where several have); the `gini` and `jain` indices: 0 and 1 where all clients are served alike.
    """
    there = ~np.isnan(values)
    if not there.any():
        return dict.fromkeys(ALL)
    with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges has no spread worth a warning
        present = values[there].astype(np.float64)
        return spread(values, rows) | {"gini": gini(present), "jain": jain(present)}


def spread(values: np.ndarray, rows: np.ndarray) -> dict[str, float | None]:
    """The part of `disparity` that a history has for every evaluated round."""
    there = ~np.isnan(values)
    values, rows = values[there].astype(np.float64), np.asarray(rows)[there]
    if not len(values):
        return dict.fromkeys(OVER_ROUNDS)
    with np.errstate(over="ignore", invalid="ignore"):
        return {
            "variance": float(values.var()),
            "smallest": float(values[rows == rows.min()].mean()),
            "largest": float(values[rows == rows.max()].mean()),
        }


def spreads(values: Sequence[np.ndarray], rows: Sequence[np.ndarray]) -> list[dict[str, float | None]]:
    """`spread` of each of several runs; at once where the same clients have a value, and as many rows."""
    stacked = np.stack(values).astype(np.float64)
    missing = np.isnan(stacked)
    there = ~missing[0]
    if not there.any() or (missing != missing[0]).any() or not all(np.array_equal(rows[0], own) for own in rows[1:]):
        return [spread(*run) for run in zip(values, rows, strict=True)]
    stacked, sizes = stacked[:, there], rows[0][there]
    extremes = (np.ascontiguousarray(stacked[:, sizes == size]) for size in (sizes.min(), sizes.max()))
    with np.errstate(over="ignore", invalid="ignore"):
        variance = np.ascontiguousarray(stacked).var(axis=1)
        smallest, largest = (those.mean(axis=1) for those in extremes)
    numbers = zip(variance.tolist(), smallest.tolist(), largest.tolist(), strict=True)
    return [dict(zip(OVER_ROUNDS, own, strict=True)) for own in numbers]


def gini(values: np.ndarray) -> float:
    """sum_ij |v_i - v_j| / (2 n^2 mean): 0 where all have the same, close to 1 where one has everything."""
    ordered, n = np.sort(np.asarray(values, np.float64)), len(values)
    total = ordered.sum()
    if total == 0:
        return 0.0
    return float(np.dot(2 * np.arange(1, n + 1) - n - 1, ordered) / (n * total))


def jain(values: np.ndarray) -> float:
    """(sum v)^2 / (n sum v^2): 1 where all have the same, 1/n where one has everything."""
    values = np.asarray(values, np.float64)
    squares = len(values) * np.dot(values, values)
    return float(values.sum() ** 2 / squares) if squares > 0 else 1.0


def attention(weights: np.ndarray, rows: np.ndarray) -> dict[str, float]:
    """Each client's share of the server's averages against its share of the training rows, in a few numbers.

    `smallest` and `largest` are the clients with the fewest and the most rows; `jain` says how even the shares are.
    """
    rows = np.asarray(rows)
    data = rows / rows.sum()
    shares = {}
    for name, who in (("smallest", rows == rows.min()), ("largest", rows == rows.max())):
        shares[f"{name}_weight"] = float(np.mean(weights[who]))
        shares[f"{name}_data"] = float(np.mean(data[who]))
    return shares | {"weight_jain": jain(weights), "data_jain": jain(data)}
