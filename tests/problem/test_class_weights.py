"""Class weights: what is trained, and what is measured."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_class_weight

import polyfed as pf
from polyfed.engine.identity import run_identity
from polyfed.engine.simulation import Simulation
from polyfed.studies.config import read_config
from tests.conftest import few

CLIENTS, ROWS, RIDGE = 4, 60, 0.1


def federation(classes: int) -> pf.Federation:
    draws = np.random.default_rng(classes)
    teacher = draws.normal(size=(3, classes))
    pairs = []
    for _ in range(CLIENTS):
        x = draws.normal(size=(ROWS, 3))
        pairs.append((x, np.argmax(x @ teacher + draws.gumbel(size=(ROWS, classes)) + 2 * np.eye(classes)[0], axis=1)))
    return pf.Federation.from_arrays(pairs, validation=0, test=0.2, classes=classes)


def made(loss: str, weights: Any, classes: int = 3) -> pf.Problem:
    return pf.Problem(federation(classes), pf.models.linear(bias=False), loss, RIDGE, weights)


def weights_of(problem: pf.Problem) -> np.ndarray:
    assert problem.class_weight is not None
    return problem.class_weight


@pytest.mark.parametrize(
    ("loss", "classes", "given"),
    few(
        [(*kind, given) for kind in (("logistic", 2), ("softmax", 3)) for given in ("balanced", "own")],
        ("logistic", 2, "own"),
        ("softmax", 3, "balanced"),
    ),
)
def test_the_optimum_is_scikit_learns(loss: str, classes: int, given: str) -> None:
    own = [0.5, 3.0, 1.5][:classes]
    problem = made(loss, "balanced" if given == "balanced" else own, classes)
    x, y = problem.federation.train.x, problem.federation.train.y
    theirs = LogisticRegression(
        C=1 / (RIDGE * len(y)),
        fit_intercept=False,
        class_weight="balanced" if given == "balanced" else dict(enumerate(own)),
        tol=1e-10,
        max_iter=10_000,
    ).fit(x, y)
    [found] = jax.tree.leaves(problem.solve().params)
    np.testing.assert_allclose(np.reshape(found, (3, -1)).T, theirs.coef_, atol=1e-6)
    trained = pf.simulate(
        problem,
        pf.algorithms.FedAvg(lr=0.5, batch="full", local_steps=1),
        rounds=400,
        eval_every=400,
        dtype="float64",
    )
    [params] = jax.tree.leaves(trained.global_params)
    np.testing.assert_allclose(np.reshape(params, (3, -1)).T, theirs.coef_, atol=1e-6)


def test_balanced_weights_are_scikit_learns_over_all_clients_training_rows() -> None:
    problem, fed = made("softmax", "balanced"), federation(3)
    y = fed.train.y
    np.testing.assert_allclose(weights_of(problem), compute_class_weight("balanced", classes=np.arange(3), y=y))
    many = pf.Problem(pf.Population.of(fed), pf.models.linear(), "softmax", 0.0, "balanced")
    np.testing.assert_array_equal(weights_of(many), weights_of(problem))
    some = problem.select([1, 2])
    np.testing.assert_array_equal(weights_of(some), weights_of(problem))


def test_a_class_without_training_rows_does_not_count_as_one() -> None:
    y = np.array([0, 0, 0, 2])
    fed = pf.Federation.from_arrays([(np.ones((4, 2)), y)], validation=0, test=0, classes=4)
    weights = weights_of(pf.Problem(fed, pf.models.linear(), class_weight="balanced"))
    expected = compute_class_weight("balanced", classes=np.array([0, 2]), y=y)
    np.testing.assert_allclose(weights, [expected[0], 1, expected[1], 1])


def test_the_objective_is_weighted_and_the_loss_is_not() -> None:
    weights = [0.5, 3.0, 1.5]
    weighted, plain = made("softmax", weights), made("softmax", None)
    start = np.random.default_rng(0).normal(size=(3, 3))
    init = jax.tree.unflatten(jax.tree.structure(weighted.init()), [start])
    rows = [
        pf.simulate(p, pf.algorithms.FedAvg(lr=0.1), rounds=0, init=init, dtype="float64").rows[0]
        for p in (weighted, plain)
    ]
    assert rows[0]["global_train_loss"] == rows[1]["global_train_loss"]
    total = []
    for client in range(CLIENTS):
        x, y = weighted.federation.train.of(client)
        logits = x @ start
        losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(y)), y]
        total.append(np.mean(np.array(weights)[y] * losses))
        name = weighted.federation.clients[client]
        assert weighted.value(init, name) == pytest.approx(total[-1] + RIDGE / 2 * np.sum(start**2), rel=1e-12)
    assert rows[0]["global_train_weighted_loss"] == pytest.approx(np.mean(total), rel=1e-12)
    assert rows[0]["objective"] == pytest.approx(np.mean(total) + RIDGE / 2 * np.sum(start**2), rel=1e-12)
    assert "global_train_weighted_loss" not in rows[1]


def test_theorys_constants_bound_the_weighted_hessian() -> None:
    weights = np.array([0.5, 6.0])
    problem = made("logistic", weights, 2)
    before = problem.federation.train.x.copy()
    smoothness = problem.constants.smoothness
    np.testing.assert_array_equal(problem.federation.train.x, before)
    for client in range(CLIENTS):
        x, y = problem.federation.train.of(client)
        hessian = 0.25 * (weights[y] * x.T) @ x / len(y)  # at zero, where a logistic row bends most
        assert smoothness[client] == pytest.approx(np.linalg.eigvalsh(hessian)[-1] + RIDGE, rel=1e-12)
    weighted, plain = (p.sampled_constants(5)[0] for p in (problem, made("logistic", None, 2)))
    assert np.all(weighted > plain)


@pytest.mark.parametrize(
    ("loss", "weights", "message"),
    [
        ("softmax", [1.0, 2.0], "a number for each of 3 classes, found 2 numbers"),
        ("softmax", [1.0, 0.0, 2.0], "above 0 and finite, found 0 for class 1"),
        ("softmax", [1.0, float("nan"), 2.0], "above 0 and finite, found nan for class 1"),
        ("softmax", "even", "must be 'balanced' or a list of numbers, found 'even'"),
        ("softmax", {"a": 1}, "must be 'balanced' or a list of numbers"),
        ("squared", "balanced", "class_weight is for classes, and loss 'squared' predicts real numbers"),
    ],
)
def test_mistakes_are_named(loss: str, weights: Any, message: str) -> None:
    fed = federation(3)
    if loss == "squared":
        fed = pf.Federation.from_arrays([(np.ones((3, 2)), np.array([0.1, 0.2, 0.3]))], validation=0, test=0)
    with pytest.raises(pf.PolyfedError, match=message):
        pf.Problem(fed, pf.models.linear(), loss, 0.0, weights)


def test_weights_are_part_of_what_a_run_is() -> None:
    identities = [
        run_identity(made("softmax", weights), pf.algorithms.FedAvg(), 1.0, 0, None, "float32")
        for weights in (None, "balanced", [1.0, 2.0, 3.0])
    ]
    assert identities[2]["class_weight"] == [1.0, 2.0, 3.0]
    assert "class_weight" not in identities[0]
    assert identities[1] != identities[2]


def test_privacy_covers_no_class_counts() -> None:
    with pytest.raises(pf.PolyfedError, match="'balanced' follows from all clients' labels"):
        Simulation(made("softmax", "balanced"), pf.algorithms.FedAvg(), privacy=pf.Privacy(clip=1.0, noise=1.0))


def test_a_config_knows_them(tmp_path) -> None:
    file = tmp_path / "study.toml"
    text = '[data]\nsource = "digits"\nclients = 4\n[problem]\nclass_weight = {}\n[algorithm]\nname = "fedavg"\n'
    file.write_text(text.format('"balanced"'))
    config = read_config(file)
    y = config.problem.federation.train.y
    expected = compute_class_weight("balanced", classes=np.arange(10), y=y)
    np.testing.assert_allclose(weights_of(config.problem), expected)
    assert config.resolved(config.methods[0])["problem"]["class_weight"] == "balanced"
    file.write_text(text.format('"even"'))
    with pytest.raises(pf.PolyfedError, match=r"problem\.class_weight must be 'balanced' or a list"):
        read_config(file)
