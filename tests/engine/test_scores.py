"""Scores of clients' rows, and the metrics of them: the same wherever states and rows are."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn import metrics as theirs

import polyfed as pf
from polyfed.engine import judge as judging
from polyfed.engine import scores as scoring
from polyfed.engine.simulation import Simulation
from tests.conftest import few

SIZES = (6, 120, 9, 12, 5)
"""One far larger than the others, so that not all fit in a block."""
METHOD = pf.algorithms.APFL(lr=0.1, local_steps=3, batch=4)


def clients(classes: int = 2, sizes: tuple[int, ...] = SIZES) -> list[tuple[np.ndarray, np.ndarray]]:
    draws = np.random.default_rng(0)
    teacher = draws.normal(size=(3, classes))
    pairs = []
    for size in sizes:
        x = draws.normal(size=(size, 3))
        pairs.append((x, np.argmax(x @ teacher + draws.gumbel(size=(size, classes)), axis=1)))
    pairs[0][1][:] = 1  # a client of one class
    return pairs


def made(loss: str, classes: int = 2) -> pf.Problem:
    fed = pf.Federation.from_arrays(clients(classes), validation=0.2, test=0.3, classes=classes)
    return pf.Problem(fed, pf.models.linear(), loss)


@pytest.fixture(scope="module")
def two() -> pf.Problem:
    return made("logistic")


@pytest.fixture(scope="module")
def three() -> pf.Problem:
    return made("softmax", 3)


@pytest.fixture(scope="module")
def trained(two) -> pf.Result:
    return run(two)


def run(problem: pf.Problem, method: Any = METHOD, **options: Any) -> pf.Result:
    return pf.simulate(problem, method, rounds=3, participation=0.5, eval_every=3, dtype="float64", **options)


def by_client(simulation: Simulation, *args: Any, **options: Any) -> dict[int, dict[str, Any]]:
    listed: dict[int, dict[str, Any]] = {}
    for block in simulation.scores(*args, **options):
        for place, client in enumerate(block.clients.tolist()):
            assert client not in listed
            listed[client] = {"labels": block.labels[place]} | {m: s[place] for m, s in block.scores.items()}
    return listed


def test_scores_are_those_of_the_models_on_the_clients_rows(two, three) -> None:
    for problem in (two, three):
        result = run(problem)
        found = by_client(result.simulation, "test")
        assert sorted(found) == list(range(len(SIZES)))
        with jax.enable_x64(True):
            for client, rows in found.items():
                x, y = problem.federation.test.of(client)
                np.testing.assert_array_equal(rows["labels"], y)
                for name, params in (("personal", result.personal(client)), ("global", result.global_params)):
                    outputs = np.asarray(problem.model.apply(params, jnp.asarray(x)))
                    expected = expit(outputs) if problem is two else softmax(outputs, axis=1)
                    np.testing.assert_allclose(rows[name], expected, atol=1e-12)


def test_two_logits_are_scored_by_the_second(two) -> None:
    problem = made("softmax")
    result = run(problem, pf.algorithms.FedAvg(lr=0.1))
    x, y = problem.federation.test.of(3)
    with jax.enable_x64(True):
        outputs = np.asarray(problem.model.apply(result.global_params, jnp.asarray(x)))
    rows = by_client(result.simulation)[3]
    np.testing.assert_allclose(rows["global"], softmax(outputs, axis=1)[:, 1], atol=1e-12)
    np.testing.assert_array_equal(rows["labels"], y)
    [block, *_] = result.simulation.scores()
    assert block.scores["personal"] is block.scores["global"]  # clients deploy the global model


@pytest.mark.parametrize("elsewhere", few(["one device", "disk", "on demand"], "disk"))
def test_scores_are_the_same_wherever_states_and_rows_are(three, elsewhere: str) -> None:
    problem, options = three, {"one device": {"devices": 1, "chunk": 2}, "disk": {"store": "disk"}}.get(elsewhere, {})
    if elsewhere == "on demand":
        problem = pf.Problem(pf.Population.of(three.federation), pf.models.linear(), "softmax")
    one, other = run(three, devices=2).simulation, run(problem, **options).simulation
    for finetune, models in ((None, {"personal", "global"}), (pf.FineTune(steps=2), {"finetuned"})):
        expected, found = (by_client(simulation, "test", finetune) for simulation in (one, other))
        assert sorted(found) == sorted(expected) == list(range(len(SIZES)))
        for client, rows in found.items():
            assert rows.keys() == {"labels"} | models
            for name, values in rows.items():
                np.testing.assert_allclose(values, expected[client][name], atol=1e-10)


@pytest.mark.full
def test_measured_and_scored_agree_also_with_adaptation() -> None:
    problem = pf.Problem(pf.Federation.from_arrays(clients(3, (9, 12)), test=0.3, classes=3), pf.models.linear())
    method, adapted = pf.algorithms.PerFedAvg(lr=0.1, local_steps=2, batch=4), []
    for options in ({}, {"adapt_on_test": True}):
        result = run(problem, method, **options)
        tuned = pf.FineTune(steps=3)
        table = result.evaluate("test", tuned, ["log_loss"])
        for model in ("personal", "global", "finetuned"):
            np.testing.assert_allclose(table[f"{model}_log_loss"], table[f"{model}_loss"], rtol=1e-7)
        adapted.append(table["personal_log_loss"])
    assert not np.allclose(*adapted, rtol=1e-3)


def test_a_sample_of_clients_is_scored_where_a_sample_is_evaluated(three) -> None:
    simulation = run(three, eval_clients=3).simulation
    assert sorted(by_client(simulation)) == simulation.evaluated.tolist()


def test_blocks_are_bounded(monkeypatch) -> None:
    """However many clients: the scores of few are held at a time, on the devices and here."""
    draws = np.random.default_rng(0)
    fed = pf.Federation.from_arrays([(draws.normal(size=(10, 3)), draws.integers(0, 3, 10)) for _ in range(200)])
    problem = pf.Problem(pf.Population.of(fed), pf.models.linear(), "softmax")
    simulation = Simulation(problem, METHOD, participation=0.1)
    monkeypatch.setattr(scoring, "BLOCK_BYTES", 10 * 2 * 2 * 3 * 4)  # of ten clients with 2 test rows, two models
    blocks = [len(block.clients) for block in simulation.scores()]
    assert sum(blocks) == 200
    assert max(blocks) == 10 * simulation.layout.devices
    monkeypatch.setattr(judging, "POOLED_BYTES", 1000)
    tables = []
    monkeypatch.setattr(judging, "_Tables", lambda *given: tables.append(judging_tables(*given)) or tables[-1])
    found = judging.judge(simulation, ["accuracy"])
    assert tables[0]._held is None
    assert np.isnan(found.aggregates["global"]["accuracy"].pooled)
    assert found.aggregates["global"]["accuracy"].mean == pytest.approx(found.values["global"]["accuracy"].mean())


judging_tables = judging._Tables

SKLEARN = {
    "auc": lambda s, y: theirs.roc_auc_score(y, s) if len(set(y.tolist())) == 2 else np.nan,
    "log_loss": lambda s, y: theirs.log_loss(y, s, labels=[0, 1]),
    "balanced_accuracy": lambda s, y: theirs.balanced_accuracy_score(y, s > 0.5),
    "brier": lambda s, y: theirs.brier_score_loss(y, s, labels=[0, 1]),
}


@pytest.mark.parametrize("name", SKLEARN)
def test_per_client_averaged_both_ways_and_pooled_as_scikit_learn(two, trained, name: str) -> None:
    result = trained
    scores = by_client(result.simulation, "test", constant=True)
    table = result.evaluate("test", metrics=[name])
    aggregates = result.aggregate("test", metrics=[name]).set_index("model")
    assert list(aggregates.index) == ["personal", "global", "constant"]
    for model in aggregates.index:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a client of one class
            each = np.array([SKLEARN[name](scores[i][model], scores[i]["labels"]) for i in range(len(SIZES))])
        np.testing.assert_allclose(table[f"{model}_{name}"], each, atol=1e-12)
        has = ~np.isnan(each)
        rows = np.array([len(scores[i]["labels"]) for i in range(len(SIZES))])
        pooled = [np.concatenate([scores[i][key] for i in range(len(SIZES))]) for key in (model, "labels")]
        line = aggregates.loc[model]
        assert line["mean"] == pytest.approx(each[has].mean(), abs=1e-12)
        assert line["size_weighted_mean"] == pytest.approx(np.average(each[has], weights=rows[has]), abs=1e-12)
        assert line["pooled"] == pytest.approx(SKLEARN[name](*pooled), abs=1e-12)
        assert line["undefined"] == tuple(np.array(two.federation.clients)[~has])
    if name == "auc":
        assert two.federation.clients[0] in aggregates.loc["global"]["undefined"]


def test_ones_own_metric_stands_beside_the_others(two) -> None:
    own = pf.metrics.custom("mean_score", lambda scores, labels: scores.mean(), higher_is_better=True)
    result = run(two, pf.algorithms.FedAvg(lr=0.1))
    table = result.evaluate("validation", metrics=[own, "auc"])
    found = by_client(result.simulation, "validation")
    np.testing.assert_allclose(table["global_mean_score"], [found[i]["global"].mean() for i in range(len(SIZES))])
    with pytest.raises(pf.PolyfedError, match="metric 'auc' is given more than once"):
        result.evaluate(metrics=["auc", "auc"])


def test_the_constant_predictor_says_what_the_clients_own_training_rows_say(two, three) -> None:
    for problem in (two, three):
        found = by_client(run(problem).simulation, "test", constant=True)
        for client, rows in found.items():
            labels = problem.federation.train.of(client)[1]
            count = np.bincount(labels, minlength=3 if problem is three else 2).astype(float)
            if not count.all():  # a class without a row: one row that is of all classes alike
                count += 1 / len(count)
            shares = count / count.sum()
            expected = shares if problem is three else shares[1]
            np.testing.assert_allclose(rows["constant"], np.broadcast_to(expected, rows["constant"].shape), atol=1e-15)
            assert np.isfinite(np.log(rows["constant"])).all()


def test_the_constant_of_real_numbers_is_their_mean_and_of_tags_their_shares() -> None:
    draws = np.random.default_rng(0)
    x = draws.normal(size=(20, 2))
    real = pf.Federation.from_arrays([(x, draws.normal(size=20)), (x, draws.normal(size=20))])
    problem = pf.Problem(real, pf.models.linear(), "squared")
    table = run(problem, pf.algorithms.FedAvg(lr=0.1)).evaluate(metrics=["squared_error", "r2"])
    means = [real.train.of(i)[1].mean() for i in range(2)]
    expected = [np.mean((real.test.of(i)[1] - means[i]) ** 2) for i in range(2)]
    np.testing.assert_allclose(table["constant_squared_error"], expected, atol=1e-12)
    tags = np.stack([draws.random(20) < 0.5, np.zeros(20), np.ones(20)], axis=1).astype(float)
    fed = pf.Federation.from_arrays([(x, tags)], validation=0, test=0)
    shares = pf.metrics.constant_scores(pf.Problem(fed, pf.models.linear(), "tags"), 0)
    np.testing.assert_allclose(shares, [tags[:, 0].mean(), 0.5 / 21, 20.5 / 21], atol=1e-15)


def test_a_model_whose_scores_are_not_finite_has_no_mean(two) -> None:
    result = run(two, pf.algorithms.FedAvg(lr=0.1))
    simulation = result.simulation
    state = simulation.state()
    broken = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), state.server)
    simulation.restore(dataclasses.replace(state, server=broken), simulation.counters, 0.0)
    found = judging.judge(simulation, ["accuracy"])
    assert np.isnan(found.values["global"]["accuracy"]).all()
    assert np.isnan(found.aggregates["global"]["accuracy"].mean)
    assert np.isfinite(found.aggregates["constant"]["accuracy"].mean)


@pytest.mark.full
def test_a_label_for_each_position_is_a_row_for_each() -> None:
    draws = np.random.default_rng(0)
    pairs = [(draws.integers(0, 4, (n, 5)).astype(np.int32), draws.integers(0, 4, (n, 5))) for n in (6, 9)]
    problem = pf.Problem(pf.Federation.from_arrays(pairs, classes=4), pf.models.lstm(hidden=4, embedding=2), "softmax")
    result = pf.simulate(problem, pf.algorithms.FedAvg(lr=0.1, batch=2), rounds=1, dtype="float64")
    table = result.evaluate(metrics=["log_loss"])
    np.testing.assert_allclose(table["global_log_loss"], table["global_loss"], rtol=1e-9)
    shapes = [scores.shape for scores in next(result.simulation.scores()).scores["global"]]
    assert shapes == [(5 * rows, 4) for rows in table["rows"]]
