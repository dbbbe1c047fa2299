"""A small task, and rows of made-up runs, where it is known which claims hold."""

from __future__ import annotations

from polyfed.papers.fedbc.contenders import GLOBAL, FedbcTask
from polyfed.papers.shared.experiment import Row
from polyfed.papers.shared.held_out import options

TASK = FedbcTask("synthetic", options(alpha=0.5, beta=0.5, clients=12, max_size=80), "linear", 1, 4)
SHIFTS = (0.0, 0.001, -0.001)
NAMES = {"ours": "FedBC", "size": "FedAvg, by size", "uniform": "FedAvg, uniform", "scaffold": "SCAFFOLD"}


def rows_of(method: str, facts: Row | None = None, spread: int = 1, /, **ends: float) -> list[Row]:
    """Three seeds that end in about these values; all methods have the same luck, but for a little of their own."""
    own = sum(map(ord, method)) % 7 / 1e5
    return [
        {**(facts or {}), "method": method, "seed": seed, "round": 2}
        | {key: value + spread * shift + own * seed for key, value in ends.items()}
        for seed, shift in enumerate(SHIFTS)
    ]


def global_rows(facts: Row | None = None, **accuracies: float) -> list[Row]:
    """Accuracies by short name, 0.5 for the others; the higher an accuracy, the lower its variance and loss."""
    values = dict.fromkeys(GLOBAL, 0.5) | {NAMES[key]: value for key, value in accuracies.items()}
    return [
        row
        for name, value in values.items()
        for row in rows_of(
            name, facts, global_test_pooled=value, global_test_variance=1 - value, global_train_loss=1 - value
        )
    ]
