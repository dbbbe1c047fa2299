"""A small task, and records of made-up runs, where it is known which claims hold."""

from __future__ import annotations

import numpy as np

from polyfed.papers.fedbc.contenders import GLOBAL, FedbcTask
from polyfed.papers.fedbc.runs import Record
from polyfed.papers.fedbc.tuned_runs import Recorded
from polyfed.papers.shared.held_out import options

TASK = FedbcTask("synthetic", options(alpha=0.5, beta=0.5, clients=12, max_size=80), "linear", 1, 4)


def records(**ends: float) -> list[Record]:
    """Two seeds of two rounds that end in about these values."""
    return [
        Record(
            ({"round": 1, **ends}, {"round": 2, **{key: value + shift for key, value in ends.items()}}),
            np.array([10, 20]),
            None,
            {},
        )
        for shift in (0.0, 0.001)
    ]


def global_records(**accuracies: float) -> Recorded:
    names = {"ours": "FedBC", "size": "FedAvg, by size", "uniform": "FedAvg, uniform"}
    values = dict.fromkeys(GLOBAL, 0.5) | {names[key]: value for key, value in accuracies.items()}
    return {(TASK, name): records(global_test_pooled=v, global_test_variance=1 - v) for name, v in values.items()}
