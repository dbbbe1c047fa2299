"""Tuning: as many candidates for every method, chosen by validation rows alone, each program compiled once."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

import polyfed as pf
from polyfed.studies.config import make_config
from polyfed.studies.run_directory import read_metrics
from polyfed.studies.search_space import tune_plan
from polyfed.studies.tuning.adaptive import Adaptive
from polyfed.studies.tuning.outcome import Trial, Tuning
from polyfed.studies.tuning.search import Search, seeds_of
from tests.conftest import unequal_clients

A = pf.algorithms
WORK: dict[str, Any] = {"local_steps": 2, "batch": 4}
METHODS = {"fedavg": A.FedAvg(**WORK), "apfl": A.APFL(adaptive="off", **WORK)}
SPACES = {"fedavg": {"lr": [0.01, 0.1, 1]}, "apfl": {"lr": [0.1, 1.0], "alpha": {"low": 0.0, "high": 1.0}}}


def winner(found: Tuning) -> Trial:
    """The winner of FedAvg, which must have one."""
    best = found.winner("fedavg")
    assert best is not None
    return best


def measured(found: Tuning) -> np.ndarray:
    return np.array([(trial.score, trial.loss) for trial in found.trials], float)


def problem_of(clients: dict) -> pf.Problem:
    return pf.Problem(pf.Federation.from_arrays(clients, classes=3), pf.models.linear(), "softmax", l2=0.01)


def plan(space: dict, **settings):
    return tune_plan({**settings, "space": {"fedavg": space}}, {"fedavg": A.FedAvg}, "config")


def values(space: dict, **settings) -> list[dict]:
    return [found for _, found in plan(space, **settings).candidates("fedavg")]


@pytest.fixture(scope="module")
def found() -> Tuning:
    return pf.tune(problem_of(unequal_clients()), SPACES, methods=METHODS, budget=4, rounds=5)


def test_every_method_gets_the_same_number_of_candidates_and_one_compiled_program(found) -> None:
    assert [len(found.of(label)) for label in METHODS] == [4, 4]
    for label in METHODS:
        compiled = [trial.compile_seconds for trial in found.of(label)]
        assert compiled[0] > 0
        assert compiled[1:] == [0, 0, 0]


def test_a_score_is_the_mean_over_clients_of_what_they_deploy_on_validation_rows(found) -> None:
    best = found.winner("apfl")
    method = dataclasses.replace(METHODS["apfl"], **best.values)
    result = pf.simulate(problem_of(unequal_clients()), method, rounds=5, eval_every=5)
    assert best.score == best.loss == pytest.approx(result.rows[-1]["personal_validation_loss"])
    assert best.measured["accuracy"] == pytest.approx(result.rows[-1]["personal_validation_accuracy"])
    scores = [trial.score for trial in found.of("apfl")]
    assert best.candidate == 1 + scores.index(min(scores))
    assert found.best["apfl"] == method
    assert list(found.table["best"]) == [trial is found.winner(trial.method) for trial in found.trials]


def test_test_rows_change_nothing_in_the_choice(found) -> None:
    clients = unequal_clients()
    for parts in clients.values():
        x, y = parts["test"]
        parts["test"] = (x + 7, (y + 1) % 3)
    method, space = ({"apfl": both["apfl"]} for both in (METHODS, SPACES))
    other = pf.tune(problem_of(clients), space, methods=method, budget=4, rounds=5)
    assert [trial.score for trial in other.trials] == [trial.score for trial in found.of("apfl")]
    assert [trial.loss for trial in other.trials] == [trial.loss for trial in found.of("apfl")]
    for parts in clients.values():
        x, y = parts["validation"]
        parts["validation"] = (x, (y + 1) % 3)
    third = pf.tune(problem_of(clients), space, methods=method, budget=4, rounds=5)
    assert [trial.score for trial in third.trials] != [trial.score for trial in found.of("apfl")]


def test_a_diverged_candidate_never_wins() -> None:
    space = {"fedavg": {"lr": [1e30, 0.1, 0.2]}}
    found = pf.tune(problem_of(unequal_clients()), space, methods={}, budget=3, rounds=8)
    assert [trial.diverged for trial in found.trials] == [True, False, False]
    assert found.trials[0].score is None
    assert winner(found).candidate > 1
    lost = pf.tune(problem_of(unequal_clients()), {"fedavg": {"lr": [1e30, 1e31]}}, budget=2, rounds=8)
    assert lost.winner("fedavg") is None
    with pytest.raises(pf.PolyfedError, match="all candidates of 'fedavg' diverged"):
        lost.best  # noqa: B018


def test_a_candidate_whose_local_models_diverge_is_counted_and_never_wins(tmp_path) -> None:
    fixed = pf.algorithms.FLIX(alpha=0.5, lr=0.1, batch=5, plm_epochs=2, plm_batch=5)
    found = pf.tune(
        problem_of(unequal_clients()),
        {"flix": {"plm_lr": [1e30, 0.1]}},
        methods={"flix": fixed},
        budget=2,
        rounds=2,
        local_models=tmp_path,
    )
    assert [trial.diverged for trial in found.trials] == [True, False]
    best = found.winner("flix")
    assert best is not None
    assert best.values == {"plm_lr": 0.1}


@pytest.mark.full
def test_repeats_average_over_seeds_in_one_program_and_a_journal_keeps_every_run(tmp_path) -> None:
    problem, space = problem_of(unequal_clients()), {"fedavg": {"lr": [0.1, 0.5]}}
    given = {"methods": {"fedavg": METHODS["fedavg"]}, "budget": 2, "rounds": 5}
    single = [pf.tune(problem, space, seed=seed, **given) for seed in (3, 4)]
    both = pf.tune(problem, space, seed=3, repeats=2, folder=tmp_path, **given)
    means = np.mean([measured(one) for one in single], axis=0)
    assert single[0].trials[0].loss != single[1].trials[0].loss
    np.testing.assert_allclose(measured(both), means, rtol=1e-6)
    assert both.trials[1].compile_seconds == 0
    assert (tmp_path / "candidates.jsonl").read_text().count("\n") == 4
    pf.tune(problem, space, seed=3, repeats=3, folder=tmp_path, resume=True, **given)
    assert (tmp_path / "candidates.jsonl").read_text().count("\n") == 6  # a third run of each


def test_a_candidate_that_fails_with_one_seed_does_not_win_by_the_other(monkeypatch) -> None:
    reached = {0.1: [0.6, 0.6], 0.2: [0.9, None], 0.3: [0.8, 0.1]}

    def runs(self, runs, say):
        scores = [reached[method.algorithm.lr][seed - 7] for method, seed in runs]
        spent = {"seconds": 1.0, "compile_seconds": 0.5}
        return [
            {"measured": {"loss": score, "accuracy": score}, "diverged": score is None, **spent} for score in scores
        ]

    monkeypatch.setattr(Search, "_runs", runs)
    space = {"fedavg": {"lr": [0.1, 0.2, 0.3]}}
    winners = []
    for repeats in (1, 2):
        found = pf.tune(problem_of(unequal_clients()), space, by="accuracy", budget=3, seed=7, repeats=repeats)
        winners.append(winner(found).values["lr"])
    assert winners == [0.2, 0.1]
    assert [trial.diverged for trial in found.trials] == [False, True, False]
    assert [trial.score for trial in found.trials] == [0.6, None, pytest.approx(0.45)]
    assert found.trials[0].seconds == 2


@pytest.mark.parametrize(
    ("accuracies", "losses", "lr"),
    [
        ([0.9, 0.9, 0.9, 0.9, 0.9], [0.3, 0.3, 0.3, 0.3, 0.3], 0.01),  # the middle of the range, not the first
        ([0.9, 0.9, 0.9, 0.9, 0.9], [0.3, 0.3, 0.3, 0.2, 0.3], 0.1),  # the better loss
        ([0.8, 0.8, 0.9, 0.9, 0.9], [0.1, 0.1, 0.3, 0.3, 0.3], 0.1),  # the middle of those that are best
        ([0.8, 0.95, 0.9, 0.9, 0.9], [0.1, 0.7, 0.3, 0.3, 0.3], 0.001),
    ],
)
def test_ties_go_to_the_better_loss_and_then_to_the_middle_of_the_range(monkeypatch, accuracies, losses, lr) -> None:
    rates = [0.0001, 0.001, 0.01, 0.1, 1.0]
    reached = {rate: {"loss": b, "accuracy": a} for rate, a, b in zip(rates, accuracies, losses, strict=True)}

    def runs(self, runs, say):
        spent = {"seconds": 1.0, "compile_seconds": 0.5}
        return [{"measured": reached[method.algorithm.lr], "diverged": False, **spent} for method, _ in runs]

    monkeypatch.setattr(Search, "_runs", runs)
    found = pf.tune(problem_of(unequal_clients()), {"fedavg": {"lr": rates}}, by="accuracy", budget=5)
    assert winner(found).values["lr"] == lr


def test_the_loss_chooses_unless_a_metric_is_named() -> None:
    problem, space = problem_of(unequal_clients()), {"fedavg": {"lr": [0.01, 0.1, 1.0]}}
    found = pf.tune(problem, space, methods={}, budget=3, rounds=5)
    assert winner(found).loss == min(trial.loss for trial in found.trials if trial.loss is not None)
    chosen = pf.tune(problem, space, methods={}, budget=3, rounds=5, by="balanced_accuracy", metric="auc")
    assert {"loss", "balanced_accuracy", "auc"} == set(winner(chosen).measured)
    assert winner(chosen).score == max(trial.score for trial in chosen.trials if trial.score is not None)
    with pytest.raises(pf.PolyfedError, match=r"tune: tune.by: unknown metric 'balanced_acuracy'.*balanced_accuracy"):
        pf.tune(problem, space, methods={}, budget=3, rounds=5, by="balanced_acuracy")
    own: Any = pf.metrics.custom("mine", lambda scores, labels: 0.0, higher_is_better=True)
    with pytest.raises(pf.PolyfedError, match=r"tune.by must be .* found the metric 'mine' of your own"):
        pf.tune(problem, space, methods={}, budget=3, rounds=5, by=own)
    with pytest.raises(pf.PolyfedError, match=r"run.metric: metric 'rmse' is for real numbers"):
        pf.tune(problem, space, methods={}, budget=3, rounds=5, metric="rmse")


def test_seeds_of_a_config_are_taken_in_their_order_and_must_be_enough() -> None:
    def seeds(repeats, **run) -> list[int]:
        sections = {"data": {"source": "digits"}, "algorithm": {"name": "fedavg"}, "run": run}
        config = make_config({**sections, "tune": {"repeats": repeats, "space": {"fedavg": {}}}})
        assert config.tune is not None
        return seeds_of(config, config.tune)

    assert seeds(2, seeds=[5, 3, 9]) == [5, 3]
    assert seeds(3, seed=4) == [4, 5, 6]
    with pytest.raises(pf.PolyfedError, match=r"tune.repeats = 3, but run.seeds has 2; list as many, or none"):
        seeds(3, seeds=[5, 3])


def test_a_regression_is_tuned_by_its_error() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    y = x @ np.array([1.0, -2.0, 0.5])
    fed = pf.Federation.from_arrays([(x[:30], y[:30]), (x[30:], y[30:])])
    problem = pf.Problem(fed, pf.models.linear(), "squared")
    found = pf.tune(problem, {"fedavg": {"lr": [0.0001, 0.1]}}, budget=2, rounds=10)
    assert found.metric == "rmse"
    assert winner(found).measured["rmse"] == pytest.approx(np.sqrt(2 * (winner(found).loss or 0)), rel=0.1)
    assert winner(found).values == {"lr": 0.1}
    assert found.edges("fedavg") == ["lr = 0.1 is the largest that was tried"]


def test_the_end_of_what_a_method_takes_is_no_edge(found) -> None:
    assert not any("alpha" in edge for edge in found.edges("apfl"))


def test_data_without_validation_rows_is_refused() -> None:
    clients = {name: {"train": parts["train"]} for name, parts in unequal_clients().items()}
    with pytest.raises(pf.PolyfedError, match=r"the data has none; hold some out, with data.validation = 0.1"):
        pf.tune(problem_of(clients), SPACES, budget=4, rounds=1)


def test_a_grid_smaller_than_the_budget_is_filled_with_draws_between_its_values() -> None:
    candidates = plan({"lr": [0.01, 0.1, 1]}, budget=8).candidates("fedavg")
    assert [origin for origin, _ in candidates] == ["grid"] * 3 + ["random"] * 5
    numbers = [found["lr"] for _, found in candidates]
    assert numbers[:3] == [0.01, 0.1, 1.0]
    assert len(set(numbers)) == 8
    assert all(isinstance(number, float) and 0.01 < number < 1 for number in numbers[3:])
    whole = values({"local_steps": [1, 5], "lr": [0.1, 1.0]}, budget=9)
    assert {found["local_steps"] for found in whole} == {1, 5}  # what is compiled in is chosen from the list


def test_a_grid_cuts_ranges_into_as_many_points_as_the_budget_allows() -> None:
    found = values({"lr": {"low": 0.001, "high": 1.0, "log": True}}, budget=4)
    assert [item["lr"] for item in found] == [0.001, 0.01, 0.1, 1.0]
    both = values({"lr": {"low": 0, "high": 1}, "local_steps": {"low": 1, "high": 9}}, budget=11)
    assert both[:4] == [{"lr": a, "local_steps": b} for a in (0.0, 0.5) for b in (1, 5, 9)][:4]
    assert len(both) == 11
    with pytest.raises(
        pf.PolyfedError, match=r"the grid has 6 candidates, more than tune.budget = 4; raise the budget"
    ):
        values({"lr": [0.1, 0.2, 0.3], "local_steps": [1, 2]}, budget=4)
    with pytest.raises(pf.PolyfedError, match=r"has 2 different candidates, fewer than tune.budget = 4"):
        values({"weighting": ["size", "uniform"]}, budget=4)


def test_random_candidates_depend_on_the_seed_and_the_label_alone() -> None:
    space = {"lr": {"low": 1e-3, "high": 1.0, "log": True}, "local_steps": [1, 5, 10]}
    one = values(space, budget=50, search="random")
    assert one == values(space, budget=50, search="random")
    assert one[:20] == values(space, budget=20, search="random")
    assert one != values(space, budget=50, search="random", seed=1)
    lr = np.array([found["lr"] for found in one])
    assert ((lr >= 1e-3) & (lr <= 1)).all()
    assert 0.3 < np.mean(lr < 10**-1.5) < 0.7  # evenly on a logarithmic scale
    assert {found["local_steps"] for found in one} == {1, 5, 10}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"budgets": 3}, r"unknown key tune.budgets; did you mean 'budget'\?"),
        ({"budget": 0}, "tune.budget must be a whole number, at least 1, found 0"),
        ({"repeats": 0}, "tune.repeats must be a whole number, at least 1, found 0"),
        ({"search": "bayes"}, "tune.search must be one of grid, random, optuna, found 'bayes'"),
        ({"space": {}}, "'fedavg' has no space, so that it would get less tuning than others"),
        ({"space": {"fedavgg": {}}}, r"tune.space.fedavgg is no method of this config; did you mean 'fedavg'\?"),
        ({"space": {"fedavg": {"lrr": [1]}}}, r"fedavg has no such hyper-parameter; did you mean 'lr'\?"),
        ({"space": {"fedavg": {"lr": []}}}, "is an empty list"),
        ({"space": {"fedavg": {"lr": 0.1}}}, r"must be a list of values or \{low, high\}"),
        ({"space": {"fedavg": {"lr": {"low": 0, "high": 1, "log": True}}}}, "with log = true, above 0"),
        ({"space": {"fedavg": {"weighting": {"low": 0, "high": 1}}}}, "only a number has a range"),
    ],
)
def test_a_mistake_in_the_section_is_named(section, message) -> None:
    sections = {"data": {"source": "digits"}, "algorithm": {"name": "fedavg"}, "tune": section}
    with pytest.raises(pf.PolyfedError, match=message):
        make_config(sections)


def test_values_that_a_method_refuses_are_named_before_anything_runs() -> None:
    with pytest.raises(pf.PolyfedError, match=r"tune.space of 'apfl': apfl: alpha must be"):
        pf.tune(problem_of(unequal_clients()), {"apfl": {"alpha": [0.5, 1.5]}}, budget=2, rounds=1)


def test_a_method_with_an_empty_space_stays_as_it_is() -> None:
    spaces = {"local": {}, "fedavg": {"lr": [0.1, 0.2]}}
    found = pf.tune(problem_of(unequal_clients()), spaces, methods={"local": A.Local(lr=0.3)}, budget=2, rounds=2)
    assert [trial.origin for trial in found.trials] == ["fixed", "grid", "grid"]
    assert found.best["local"] == A.Local(lr=0.3)


def test_optuna_has_the_same_budget_and_looks_where_earlier_candidates_did_well() -> None:
    space = {"lr": {"low": 1e-4, "high": 1.0, "log": True}, "alpha": {"low": 0.0, "high": 1.0}}
    section = {"search": "optuna", "budget": 40, "space": {"apfl": space}}
    adaptive = Adaptive(tune_plan(section, {"apfl": A.APFL}, "config"), "apfl", higher_is_better=False)
    far: list[float] = []
    seen: set[tuple[float, ...]] = set()
    while len(far) < 40:
        asked = adaptive.ask(adaptive.batch)
        losses = [abs(np.log10(one["lr"]) + 1) + abs(one["alpha"] - 0.25) for one in asked]  # best: 0.1 and 0.25
        adaptive.tell([None if loss > 2.5 else loss for loss in losses])  # too small a stepsize diverges
        far += losses
        seen |= {tuple(one.values()) for one in asked}
    assert len(far) == len(seen) == 40
    assert np.median(far[20:]) < 0.6 * np.median(far[:10])
    assert all(1e-4 <= lr <= 1 and 0 <= alpha <= 1 for lr, alpha in seen)


@pytest.mark.full
def test_a_search_by_optuna_runs_again_to_the_same_candidates_and_goes_on_from_its_journal(tmp_path) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2))
    problem = problem_of({"a": (rows, (rows[:, 0] > 0).astype(int)), "b": (rows, (rows[:, 1] > 0).astype(int))})
    spaces = {"fedavg": {"lr": {"low": 0.001, "high": 1.0, "log": True}}, "local": {"lr": [0.01, 0.1, 0.2, 0.3, 1.0]}}

    def found(**options: Any) -> pd.DataFrame:
        tuning = pf.tune(problem, spaces, budget=5, rounds=2, search="optuna", **options)
        return tuning.table.drop(columns=["seconds", "compile_seconds"])

    first = found(folder=tmp_path)
    assert first.groupby("method").size().to_dict() == {"fedavg": 5, "local": 5}
    assert set(first["origin"]) == {"optuna"}
    assert first.groupby("method")["lr"].nunique().to_dict() == {"fedavg": 5, "local": 5}
    kept = read_metrics(tmp_path / "candidates.jsonl")
    pd.testing.assert_frame_equal(found(folder=tmp_path, resume=True), first)
    again = read_metrics(tmp_path / "candidates.jsonl")
    assert [(row["key"], row["outcome"]) for row in again] == [(row["key"], row["outcome"]) for row in kept]
    with pytest.raises(pf.PolyfedError, match=r"'local': has 5 different candidates, fewer than tune\.budget = 6"):
        pf.tune(problem, {"local": spaces["local"]}, budget=6, rounds=2, search="optuna")
