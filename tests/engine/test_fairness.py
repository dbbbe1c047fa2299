"""Fairness: the figures of the clients' metrics, and the weight of each client's data in the server's averages."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from polyfed.engine import fairness
from polyfed.engine.simulation import Simulation
from polyfed.studies import evaluation as evaluate
from tests.algorithms.comparison import INIT, SEED, START, cohort
from tests.algorithms.references.fedbc import fedbc
from tests.algorithms.references.shared import clients_of

A = pf.algorithms
WORK = {"lr": 0.3, "local_steps": 3}


def test_the_indices_are_those_of_their_definitions() -> None:
    values = np.random.default_rng(0).uniform(size=17)
    pairs = np.abs(values[:, None] - values[None, :]).sum()
    assert fairness.gini(values) == pytest.approx(pairs / (2 * 17**2 * values.mean()))
    assert fairness.jain(values) == pytest.approx(values.mean() ** 2 / np.mean(values**2))
    one = np.array([0.0, 0.0, 3.0, 0.0])
    assert (fairness.gini(one), fairness.jain(one)) == (0.75, 0.25)
    for same in (np.full(5, 0.3), np.zeros(5)):
        assert (fairness.gini(same), fairness.jain(same)) == (pytest.approx(0, abs=1e-15), pytest.approx(1))


def test_the_smallest_and_the_largest_client_go_by_training_rows() -> None:
    values, rows = np.array([0.2, 0.9, np.nan, 0.4, 0.6]), np.array([7, 50, 3, 7, 20])
    found = fairness.disparity(values, rows)  # the client with 3 rows was not measured
    assert found["smallest"] == pytest.approx(0.3)
    assert found["largest"] == 0.9
    assert found["variance"] == pytest.approx(np.var([0.2, 0.9, 0.4, 0.6]))
    assert set(fairness.disparity(np.full(2, np.nan), np.ones(2)).values()) == {None}


def test_attention_sets_the_weights_against_the_data() -> None:
    found = fairness.attention(np.array([0.5, 0.3, 0.2]), np.array([10, 30, 60]))
    assert found["smallest_weight"] == 0.5
    assert found["smallest_data"] == pytest.approx(0.1)
    assert (found["largest_weight"], found["largest_data"]) == (0.2, pytest.approx(0.6))
    assert found["weight_jain"] == pytest.approx(1 / (3 * 0.38))
    assert found["data_jain"] == pytest.approx(1 / (3 * 0.46))


def advanced(problem, method, rounds=4, **options) -> Simulation:
    simulation = Simulation(problem, method, **{"seed": SEED, "init": INIT, "dtype": "float64", **options})
    simulation.prepare()
    simulation.advance(rounds)
    return simulation


def shares(simulation: Simulation) -> np.ndarray:
    assert simulation.server_weights is not None
    return simulation.server_weights


def test_weights_by_size_and_uniform_weights(problem) -> None:
    sizes = np.array(problem.federation.train.sizes)
    by_size = advanced(problem, A.FedAvg(**WORK))
    np.testing.assert_allclose(shares(by_size), sizes / sizes.sum(), atol=1e-12)
    uniform = advanced(problem, A.FedAvg(**WORK, weighting="uniform"), devices=1, chunk=4)
    np.testing.assert_allclose(shares(uniform), np.full(6, 1 / 6), atol=1e-12)
    assert advanced(problem, A.Local(**WORK)).server_weights is None
    assert Simulation(problem, A.FedAvg()).server_weights is None


def test_sampled_clients_share_each_rounds_average(problem) -> None:
    sizes, members = np.array(problem.federation.train.sizes), cohort(3, problem)
    expected = np.zeros(6)
    for round in range(4):
        expected[members(round)] += sizes[members(round)] / sizes[members(round)].sum() / 4
    found = advanced(problem, A.FedAvg(**WORK), participation=3)
    np.testing.assert_allclose(shares(found), expected, atol=1e-12)


def test_fedbcs_weights_are_its_multipliers(problem) -> None:
    expected = fedbc(
        problem, 4, 3, None, cohort(3, problem), tolerance=[0.0] * 6, tolerance_lr=0.2, seed=SEED, start=START
    )
    method = A.FedBC(**WORK, batch="full", dual_lr=0.2)
    found = advanced(problem, method, participation=3)
    total = np.zeros(6)
    for round in expected["shares"]:
        for i, share in round.items():
            total[i] += share / 4
    np.testing.assert_allclose(shares(found), total, atol=1e-10)


def test_qfedavgs_weights_are_the_powers_of_the_losses(problem) -> None:
    losses = np.array([client.loss(START) for client in clients_of(problem)])
    found = advanced(problem, A.QFedAvg(**WORK, q=2.0), rounds=1)
    np.testing.assert_allclose(shares(found), losses**2 / np.sum(losses**2), atol=1e-10)


def test_a_resumed_run_knows_the_weights_of_its_first_part(problem, tmp_path) -> None:
    options = {"participation": 2, "seed": SEED, "dtype": "float64", "eval_every": 6}
    whole = pf.simulate(problem, A.FedAvg(**WORK), rounds=6, **options)
    pf.simulate(problem, A.FedAvg(**WORK), rounds=2, checkpoint=tmp_path, **options)
    resumed = pf.simulate(problem, A.FedAvg(**WORK), rounds=6, resume=tmp_path, **options)
    np.testing.assert_allclose(shares(resumed.simulation), shares(whole.simulation), atol=1e-12)


def test_a_history_and_a_summary_have_the_disparity_of_every_model(problem) -> None:
    result = pf.simulate(problem, A.FedBC(**WORK), rounds=3, dtype="float64", finetune=pf.FineTune(steps=2))
    rows = np.array(problem.federation.train.sizes)
    metrics = result.metrics(pf.FineTune(steps=2))
    for model in ("personal", "global", "finetuned"):
        values = metrics[model]["test"]["accuracy"]
        last = result.rows[-1]
        assert last[f"{model}_test_accuracy_variance"] == pytest.approx(np.var(values))
        assert last[f"{model}_test_accuracy_smallest"] == values[np.argmin(rows)]
        assert last[f"{model}_test_accuracy_largest"] == values[np.argmax(rows)]
    summary = evaluate.summarize(problem, metrics, "accuracy", result.simulation.server_weights)
    found = summary["models"]["global"]["test"]["accuracy"]
    assert found["jain"] == pytest.approx(fairness.jain(metrics["global"]["test"]["accuracy"]))
    assert summary["attention"] is not None
    assert summary["attention"]["largest_data"] == pytest.approx(17 / 60)
    table = evaluate.client_rows(problem, metrics, None, result.simulation.server_weights)
    assert np.array([row["server_weight"] for row in table], float).sum() == pytest.approx(1)


@pytest.mark.parametrize("missing", [[], [(0, 2), (1, 2), (2, 2)], [(0, 2), (1, 4)], [(0, k) for k in range(6)]])
def test_the_spreads_of_several_runs_are_those_of_each(missing: list[tuple[int, int]]) -> None:
    values = np.random.default_rng(0).uniform(size=(3, 6))
    for place in missing:
        values[place] = np.nan
    rows = np.array([7, 50, 3, 7, 20, 3])
    expected = []
    for own in values:
        there = ~np.isnan(own)
        if not there.any():
            expected.append({"variance": None, "smallest": None, "largest": None})
            continue
        own, sizes = own[there], rows[there]
        extremes = (own[sizes == sizes.min()].mean(), own[sizes == sizes.max()].mean())
        expected.append(dict(zip(("variance", "smallest", "largest"), (own.var(), *extremes), strict=True)))
    for found, wanted in zip(fairness.spreads(list(values), [rows] * 3), expected, strict=True):
        assert found == pytest.approx(wanted)
    other = fairness.spreads(list(values), [rows, rows[::-1], rows])[1]
    assert other == fairness.spread(values[1], rows[::-1])
