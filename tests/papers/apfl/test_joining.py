"""APFL's Fig. 6: who joins, and claims that can fail."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed import data
from polyfed.papers.apfl import joining
from polyfed.papers.apfl.methods import ADAPTIVE
from polyfed.papers.shared.experiment import silent
from polyfed.papers.shared.held_out import options
from polyfed.papers.shared.tuned import Setting


def test_newcomers_are_the_clients_that_do_not_train() -> None:
    given = {"alpha": 0.5, "beta": 0.5, "clients": 8, "max_size": 100}
    setting = Setting("synthetic", options(**given), "linear", 0.0, 1, 1, 20, (0.1,), first_clients=5)
    whole = data.load("synthetic", seed=4, **given)
    late, trained = joining.newcomers_of(setting, 4).federation, setting.problem(4).federation
    assert (*trained.clients, *late.clients) == whole.clients
    np.testing.assert_array_equal(late.train.of(0)[0], whole.train.of(5)[0])


def rows(ours: float, anew: float, theirs: float, loss: float = 0.1) -> list[dict]:
    levels = {ADAPTIVE: ours, joining.ANEW: anew, joining.FEDAVG: theirs}
    return [
        {"column": column, "label": label, "seed": seed, "round": epochs, "validation_accuracy": 0.1}
        | {"test_accuracy": 0.5 if epochs < 5 else value - drop + 0.001 * seed}
        | {"train_loss": 1.0 if epochs < 5 else loss * (1 - value)}
        for column, drop in (("synthetic(0, 0)", 0.0), ("synthetic(0.5, 0.5)", 0.2))
        for label, value in levels.items()
        for seed in range(3)
        for epochs in (0, 1, 5)
    ]


def test_the_last_epoch_decides() -> None:
    assert [c.verdict for c in joining.judge(rows(0.9, 0.95, 0.8))] == ["holds"] * 9
    verdicts = [c.verdict for c in joining.judge(rows(0.7, 0.9, 0.8))]
    assert verdicts == ["does not hold", "holds"] * 4 + ["holds"]
    assert len(joining.draw(rows(0.9, 0.95, 0.8)).axes) == 4


@pytest.mark.full
def test_the_quick_version_runs() -> None:
    measured = joining.fig6.run(True, silent)
    labels = {ADAPTIVE, joining.ANEW, joining.FEDAVG}
    assert {row["label"] for row in measured.rows} == labels
    for label in (ADAPTIVE, joining.ANEW):  # both start from the same global model
        starts = {
            row["column"]: row["train_loss"] for row in measured.rows if (row["label"], row["round"]) == (label, 0)
        }
        ends = {row["column"]: row["train_loss"] for row in measured.rows if (row["label"], row["round"]) == (label, 5)}
        assert all(ends[column] < starts[column] for column in starts)
