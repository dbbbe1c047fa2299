"""FedBC's synthetic federations, and what several figures show of their rounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyfed.papers.fedbc.contenders import COHORT, FedbcTask
from polyfed.papers.shared.experiment import Row
from polyfed.papers.shared.held_out import options
from polyfed.papers.shared.rows import where

DATA = (
    "synthetic(0.5, 0.5) of Li et al., 60 features, 10 classes, sizes log-normal, at most 2,000; 20% of each client's "
    "rows are for test and 10% for validation; 10 clients take part in a round."
)
DIFFERENCES = (
    "Every method is tuned by validation rows, with the same number of candidates; figures are of the last round, on "
    "test rows that neither training nor tuning has seen. Client sizes are capped at 2,000. Each seed draws its own "
    "federation. Local steps are plain SGD (the published code has momentum 0.5), and multipliers move only in rounds "
    "that their clients take part in."
)
EPOCHS = (1, 5, 10, 25, 50)
BY_DATA = "0.4"
"""The grey of weights by data size, which belong to no method."""
PARTICIPANTS = {"largest": "-", "smallest": ":"}
"""Those of a round that are shown, and their lines."""


def synthetic(epochs: int, quick: bool, clients: int = 30) -> FedbcTask:
    size = 300 if quick else 2000
    given = options(alpha=0.5, beta=0.5, clients=clients, max_size=size)
    return FedbcTask("synthetic", given, "linear", epochs, 40 if quick else 200)


def work(quick: bool) -> dict[str, object]:
    """The settings that all experiments on synthetic data share."""
    task = synthetic(1, quick)
    return {"clients": 30, "clients per round": COHORT, "batch": task.batch, "rounds": task.rounds}


def smooth(values: np.ndarray, window: int = 10) -> np.ndarray:
    """The running mean over the last `window` rounds; over fewer at the beginning."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    start = np.maximum(0, np.arange(1, len(total)) - window)
    return (total[1:] - total[start]) / (np.arange(1, len(total)) - start)


def gap(rows: list[Row], kind: str, **facts: Any) -> np.ndarray:
    """The mean over the last half of the rounds of |largest - smallest|, one for each seed."""
    mine = where(rows, **facts)
    half = max(row["round"] for row in mine) // 2
    gaps: dict[int, list[float]] = {}
    for row in mine:
        if row["round"] > half and f"largest_{kind}" in row:
            gaps.setdefault(row["seed"], []).append(abs(row[f"largest_{kind}"] - row[f"smallest_{kind}"]))
    return np.array([np.mean(gaps[seed]) for seed in sorted(gaps)])
