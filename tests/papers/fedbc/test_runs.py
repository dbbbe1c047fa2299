"""FedBC's runs keep what the figures show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from polyfed.papers.fedbc import runs
from polyfed.papers.fedbc.contenders import GLOBAL, LEAKING, LOCAL
from polyfed.papers.fedbc.runs import ContenderRun
from polyfed.papers.shared.held_out import options
from tests.papers.fedbc.made_up import TASK


@pytest.mark.full
def test_a_run_keeps_what_the_figures_show() -> None:
    run = ContenderRun(TASK, "FedBC", "global", options(lr=0.05, dual_lr=0.01), 0)
    record, other = runs.trace([run, run._replace(seed=1)])
    assert not np.array_equal(record.sizes, other.sizes)
    assert [row["round"] for row in record.rows] == [1, 2, 3, 4]
    assert set(record.multipliers) == {1, 4}
    last = record.rows[-1]
    assert 0 < last["smallest_data"] < last["largest_data"] < 1
    assert 0 <= last["smallest_weight"] <= 1
    assert 0 < last["smallest_accuracy"] < 1
    assert last["global_test_variance"] >= 0
    problem = runs.problem_of(TASK.source, TASK.data, TASK.model, 0)
    sizes = np.asarray(problem.federation.train.sizes)
    np.testing.assert_array_equal(record.sizes, sizes)
    # The smallest participant is nobody smaller than the smallest client, and weights of a round add up to 1.
    assert last["smallest_data"] >= sizes.min() / sizes.sum()
    assert record.weights is not None
    assert record.weights.sum() == pytest.approx(1)
    (size_weighted,) = runs.trace([ContenderRun(TASK, "FedAvg, by size", "global", options(lr=0.05), 0)])
    for row in size_weighted.rows:
        assert row["smallest_weight"] == pytest.approx(row["smallest_data"], abs=1e-5)
        assert row["largest_weight"] == pytest.approx(row["largest_data"], abs=1e-5)


@pytest.mark.full
def test_what_adapts_is_measured_on_test_rows_too_but_never_judged_by_them() -> None:
    task = replace(TASK, every=2, rounds=2)
    (record,) = runs.trace([ContenderRun(task, "FedBC-FineTune", "personal", options(lr=0.05, dual_lr=0.01), 0)])
    assert record.last(f"{LEAKING}_train_loss") != record.last("personal_train_loss")
    assert all(contender.judged != LEAKING for contender in (GLOBAL | LOCAL).values())
    adapted = {"Per-FedAvg", "FedBC-FineTune", "Per-FedBC", "Per-FedBC, own models"}
    assert {label for label, it in LOCAL.items() if it.adapts} == adapted
