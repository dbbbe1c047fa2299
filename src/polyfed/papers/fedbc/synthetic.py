"""FedBC's synthetic federations, and what several figures show of their rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyfed.papers.fedbc.contenders import COHORT, FedbcTask
from polyfed.papers.fedbc.paper import facts_of
from polyfed.papers.fedbc.runs import EXTREMES
from polyfed.papers.fedbc.tuned_runs import Recorded
from polyfed.papers.shared.experiment import Row
from polyfed.papers.shared.held_out import options
from polyfed.papers.shared.rows import column, distinct, rounded, where

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
BLOCK = 10
"""The rounds that a row about participants is a mean over."""


def synthetic(epochs: int, quick: bool, clients: int = 30) -> FedbcTask:
    size = 300 if quick else 2000
    given = options(alpha=0.5, beta=0.5, clients=clients, max_size=size)
    return FedbcTask("synthetic", given, "linear", epochs, 40 if quick else 200)


def work(quick: bool) -> dict[str, object]:
    """The settings that all experiments on synthetic data share."""
    task = synthetic(1, quick)
    return {"clients": 30, "clients per round": COHORT, "batch": task.batch, "rounds": task.rounds}


def block_rows(recorded: Recorded, kinds: Sequence[str]) -> list[Row]:
    """What a round's smallest and largest participant have, and the gap between them: means over blocks of rounds."""
    made: list[Row] = []
    for (task, label), records in recorded.items():
        for seed, record in enumerate(records):
            for first in range(0, len(record.rows), BLOCK):
                block = record.rows[first : first + BLOCK]
                row: Row = {**facts_of(task), "method": label, "seed": seed, "round": first + len(block)}
                for kind in kinds:
                    small, large = (column(block, f"{who}_{kind}") for who in EXTREMES)
                    row |= {f"smallest_{kind}": small.mean(), f"largest_{kind}": large.mean()}
                    row[f"gap_{kind}"] = np.abs(large - small).mean()
                made.append(rounded(row))
    return made


def gap(rows: list[Row], kind: str, **facts: Any) -> np.ndarray:
    """The mean over the last half of the rounds of |largest - smallest|, one for each seed."""
    mine = [row for row in where(rows, **facts) if f"gap_{kind}" in row]
    half = max(row["round"] for row in mine) // 2
    late = [row for row in mine if row["round"] > half]
    return np.array([column(where(late, seed=seed), f"gap_{kind}").mean() for seed in sorted(distinct(late, "seed"))])
