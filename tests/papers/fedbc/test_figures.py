"""FedBC's experiments: claims that can fail, tuning by validation rows, and a small run from end to end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from polyfed.papers.fedbc import nets as fedbc_nets
from polyfed.papers.fedbc import runs as fedbc_runs
from polyfed.papers.fedbc import synthetic as fedbc
from polyfed.papers.fedbc.runs import GLOBAL, LEAKING, LOCAL, Record, Run, Task
from polyfed.papers.shared import experiment as base
from polyfed.papers.shared.experiment import silent
from polyfed.papers.shared.held_out import options

TASK = Task("synthetic", options(alpha=0.5, beta=0.5, clients=12, max_size=80), "linear", 1, 4)


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


def found(**accuracies: float) -> fedbc_runs.Found:
    names = {"ours": "FedBC", "size": "FedAvg, by size", "uniform": "FedAvg, uniform"}
    values = dict.fromkeys(GLOBAL, 0.5) | {names[key]: value for key, value in accuracies.items()}
    return {(TASK, name): records(global_test_pooled=v, global_test_variance=1 - v) for name, v in values.items()}


def test_fedbc_is_judged_against_every_rival_and_the_uniform_average() -> None:
    claims = fedbc._accuracy_claims(found(ours=0.8, size=0.7, uniform=0.9), TASK)
    verdicts = {claim.text.rpartition("that of ")[2]: claim.passed for claim in claims}
    assert verdicts["FedAvg, by size."]
    assert not verdicts["FedAvg, uniform (not in the paper)."]
    assert len(claims) == 5
    assert [claim.passed for claim in fedbc._variance_claims(found(ours=0.8, size=0.7, uniform=0.9), TASK)] == [
        True,
        False,
    ]
    cells = {(2, 1.3): TASK}
    table = fedbc_nets._global_claims(found(ours=0.8, size=0.7, uniform=0.9), cells)
    assert [claim.passed for claim in table] == [True, True, True, True, False, True, False]
    assert "+10.00 points" in table[0].measured


def test_the_trade_off_needs_a_better_global_model_in_the_middle() -> None:
    levels, own = (0.0, 0.1, 1.0), [np.array([a]) for a in (0.8, 0.85, 0.9)]
    hill, slope = ([np.array([a]) for a in means] for means in ((0.7, 0.75, 0.5), (0.7, 0.6, 0.5)))
    assert [claim.passed for claim in fedbc._tradeoff_claims("own", levels, hill, own)] == [True, True, True]
    assert [claim.passed for claim in fedbc._tradeoff_claims("own", levels, slope, own)] == [False, True, True]
    assert not fedbc._tradeoff_claims("own", levels, hill, own[::-1])[2].passed


def test_the_tolerance_that_is_compared_with_fedavg_is_not_chosen_on_test_rows() -> None:
    test, validation = ([np.array([a]) for a in means] for means in ((0.9, 0.7), (0.6, 0.8)))
    both = {("own", fedbc.POOLED): test, ("own", fedbc.CHOSEN_BY): validation}
    chosen = fedbc._chosen((0.0, 1.0), both, "own")
    assert chosen == (1.0, np.array([0.7]))
    assert [fedbc._above_claim("own", chosen, "FedAvg", np.array([a])).passed for a in (0.65, 0.75)] == [True, False]


def test_gaps_are_means_over_the_last_half_of_the_rounds() -> None:
    rows = tuple({"round": r, "largest_weight": 0.1 * r, "smallest_weight": 0.5} for r in (1, 2, 3, 4))
    np.testing.assert_allclose(fedbc.gap([Record(rows, np.ones(1), None, {})], "weight"), [(0.2 + 0.1) / 2])
    np.testing.assert_allclose(fedbc.smooth(np.array([1.0, 3.0, 5.0]), window=2), [1, 2, 4])


def test_local_models_are_judged_by_what_is_deployed() -> None:
    values = {"FedBC": 0.7, "FedBC-FineTune": 0.75, "Per-FedBC": 0.65, "Per-FedBC, own models": 0.72}
    shared = {"FedBC": 0.5, "Per-FedAvg": 0.4, "pFedMe": 0.6}

    def row(name):
        served = {"global_test_mean": 0.5, "global_test_pooled": shared.get(name, 0.3)}
        return {f"{LOCAL[name].judged}_test_mean": values.get(name, 0.6), **served}

    table = {(TASK, name): records(**row(name)) for name in LOCAL}
    claims = fedbc_nets._local_claims(table, {(2, 1.3): TASK})
    assert [claim.passed for claim in claims] == [True, True, False, *[True] * 7, True, False]
    assert [claim.text.startswith("C = 2") for claim in claims] == [False] * 10 + [True] * 2


def test_every_method_gets_the_same_budget_and_is_chosen_by_validation_rows(monkeypatch) -> None:
    asked = []

    def trace(runs):
        asked.extend((run.label, run.chosen) for run in runs)
        rates = [dict(run.chosen)["lr"] for run in runs]
        rows = [{"round": 4, "global_test_pooled": lr, "global_validation_pooled": -abs(lr - 0.1)} for lr in rates]
        return [Record((row,), np.ones(1), None, {}) for row in rows]

    monkeypatch.setattr(fedbc_runs, "trace", trace)
    for label in GLOBAL:
        for budget in (3, 12):
            asked.clear()
            chosen = fedbc_runs.choose.__wrapped__(TASK, label, "global", budget)
            assert len(asked) == len(set(asked)) == budget
            rates = [dict(candidate)["lr"] for _, candidate in asked]
            assert dict(chosen)["lr"] == min(rates, key=lambda lr: abs(lr - 0.1))  # not the best on test rows


def test_choices_of_federations_of_other_sizes_are_told_apart_and_ends_of_ranges_are_called_so(monkeypatch) -> None:
    crowd = replace(TASK, data=options(**{**dict(TASK.data), "clients": 9}))
    rates = {TASK: 0.01, crowd: 0.05}
    monkeypatch.setattr(fedbc_runs, "choose", lambda task, *_: options(lr=rates[task]))
    monkeypatch.setattr(fedbc_runs, "trace", lambda runs: [None] * len(runs))
    label = "FedAvg, uniform"
    _, settings = fedbc_runs.collect([TASK, crowd], {label: GLOBAL[label]}, silent, seeds=1)
    first = dict(TASK.data)["clients"]
    assert settings[f"{label}, E = {TASK.epochs}, {first} devices"] == "lr 0.01 (the smallest)"
    assert settings[f"{label}, E = {TASK.epochs}, 9 devices"] == "lr 0.05"
    _, settings = fedbc_runs.collect([TASK], {label: GLOBAL[label]}, silent, seeds=1)
    assert f"{label}, E = {TASK.epochs}" in settings


def test_a_run_keeps_what_the_figures_show() -> None:
    run = Run(TASK, "FedBC", "global", options(lr=0.05, dual_lr=0.01), 0)
    record, other = fedbc_runs.trace([run, run._replace(seed=1)])
    assert not np.array_equal(record.sizes, other.sizes)
    assert [row["round"] for row in record.rows] == [1, 2, 3, 4]
    assert set(record.multipliers) == {1, 4}
    last = record.rows[-1]
    assert 0 < last["smallest_data"] < last["largest_data"] < 1
    assert 0 <= last["smallest_weight"] <= 1
    assert last["global_test_variance"] >= 0
    problem = fedbc_runs.problem_of(TASK.source, TASK.data, TASK.model, 0)
    sizes = np.asarray(problem.federation.train.sizes)
    np.testing.assert_array_equal(record.sizes, sizes)
    # The smallest participant is nobody smaller than the smallest client, and weights of a round add up to 1.
    assert last["smallest_data"] >= sizes.min() / sizes.sum()
    assert record.weights is not None
    assert record.weights.sum() == pytest.approx(1)
    (size_weighted,) = fedbc_runs.trace([Run(TASK, "FedAvg, by size", "global", options(lr=0.05), 0)])
    for row in size_weighted.rows:
        assert row["smallest_weight"] == pytest.approx(row["smallest_data"], abs=1e-5)
        assert row["largest_weight"] == pytest.approx(row["largest_data"], abs=1e-5)


def test_what_adapts_is_measured_on_test_rows_too_but_never_judged_by_them() -> None:
    task = replace(TASK, every=2, rounds=2)
    (record,) = fedbc_runs.trace([Run(task, "FedBC-FineTune", "personal", options(lr=0.05, dual_lr=0.01), 0)])
    assert record.last(f"{LEAKING}_train_loss") != record.last("personal_train_loss")
    assert all(contender.judged != LEAKING for contender in (GLOBAL | LOCAL).values())
    adapted = {"Per-FedAvg", "FedBC-FineTune", "Per-FedBC", "Per-FedBC, own models"}
    assert {label for label, it in LOCAL.items() if it.adapts} == adapted


def test_all_of_the_papers_figures_and_tables_are_there() -> None:
    names = {name.partition("/")[2] for name in base.load_all() if name.startswith("fedbc/")}
    figures = {f"fig{n}" for n in (2, 3, 4, 7, 8, 9, 10, 11, 12)}
    assert names == figures | {f"table{n}" for n in (1, 2, 3, 6, 7, 8, 9)}


def test_the_trade_off_runs_from_end_to_end(monkeypatch) -> None:
    monkeypatch.setattr(fedbc, "synthetic", lambda epochs, quick: TASK)
    outcome = base.get("fedbc/fig2").run(True, base.silent)
    assert len(outcome.claims) == 10
    assert sum("FedAvg, uniform (not in the paper)" in claim.text for claim in outcome.claims) == 2
    assert {row["start"] for row in outcome.rows if "start" in row} == {"own", "server"}
    assert {row["method"] for row in outcome.rows if "method" in row} == {"FedAvg, by size", "FedAvg, uniform"}
