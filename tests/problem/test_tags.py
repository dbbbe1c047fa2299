"""The loss of tags: rows that have several labels at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import polyfed as pf

CLIENTS, ROWS, TAGS = 4, 30, 3


def rows(seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    draws = np.random.default_rng(seed)
    teacher = draws.normal(size=(4, TAGS))
    pairs = []
    for _ in range(CLIENTS):
        x = draws.normal(size=(ROWS, 4))
        pairs.append((x, (x @ teacher + draws.logistic(size=(ROWS, TAGS)) > 0).astype(int)))
    return pairs


@pytest.fixture
def tags() -> pf.Problem:
    fed = pf.Federation.from_arrays(rows(), validation=0, test=0.2)
    return pf.Problem(fed, pf.models.linear(bias=False), "tags", l2=0.1)


def test_the_loss_is_the_sum_of_the_tags_cross_entropies(tags) -> None:
    params = np.random.default_rng(1).normal(size=(4, TAGS))
    x, y = tags.federation.train.of(2)
    chance = expit(x @ params)
    expected = -np.mean(np.sum(y * np.log(chance) + (1 - y) * np.log(1 - chance), axis=1)) + 0.05 * np.sum(params**2)
    given = jax.tree.unflatten(jax.tree.structure(tags.init()), [params])
    assert tags.value(given, tags.federation.clients[2]) == pytest.approx(expected, rel=1e-12)


def test_its_optimum_is_a_logistic_regression_for_each_tag(tags) -> None:
    [found] = jax.tree.leaves(tags.solve().params)
    x, y = tags.federation.train.x, tags.federation.train.y
    for tag in range(TAGS):
        theirs = LogisticRegression(C=1 / (0.1 * len(y)), fit_intercept=False, tol=1e-12, max_iter=10_000)
        np.testing.assert_allclose(found[:, tag], theirs.fit(x, y[:, tag]).coef_[0], atol=1e-6)


@pytest.mark.parametrize("model", [pf.models.linear(), pf.models.mlp([8])])
def test_it_trains_and_the_history_has_its_cheap_metric(tags, model) -> None:
    problem = pf.Problem(tags.federation, model, "tags")
    result = pf.simulate(problem, pf.algorithms.FedAvg(lr=0.3), rounds=5)
    history = result.history
    assert history["global_train_loss"].iloc[-1] < 0.8 * history["global_train_loss"].iloc[0]
    precision = pf.metrics.METRICS["precision_at_5"]
    for client, measured in enumerate(result.evaluate("test")["global_precision_at_5"]):
        x, y = problem.federation.test.of(client)
        outputs = np.asarray(problem.model.apply(result.global_params, jnp.asarray(x, jnp.float32)))
        assert measured == pytest.approx(precision(expit(outputs), y), abs=1e-6)


def test_tags_come_from_npz_and_populations_too(tags, tmp_path) -> None:
    pairs = rows()
    np.savez(
        tmp_path / "tags.npz",
        x=np.concatenate([x for x, _ in pairs]),
        y=np.concatenate([y for _, y in pairs]).astype(np.float32),
        client=np.repeat(np.arange(CLIENTS), ROWS),
    )
    fed = pf.Federation.from_npz(tmp_path / "tags.npz", validation=0, test=0.2)
    assert pf.Problem(fed, pf.models.linear(), "tags").targets(1, "train").shape == (24, TAGS)
    many = pf.Problem(pf.Population.of(fed), pf.models.linear(), "tags")
    one = pf.Problem(fed, pf.models.linear(), "tags")
    history = [pf.simulate(p, pf.algorithms.FedAvg(lr=0.3), rounds=2).history for p in (one, many)]
    np.testing.assert_allclose(history[0]["global_test_loss"], history[1]["global_test_loss"], rtol=1e-5)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.array([0, 1, 1]), r"found targets of shape \(rows\)"),
        (np.array([[0, 2], [1, 0], [1, 1]]), "needs targets 0 and 1, found 2"),
        (np.array([[0.0, 0.5], [1, 0], [1, 1]]), "needs targets 0 and 1, found 0.5"),
    ],
)
def test_other_targets_are_refused(y: np.ndarray, message: str) -> None:
    fed = pf.Federation.from_arrays([(np.ones((3, 2)), y)], validation=0, test=0)
    with pytest.raises(pf.PolyfedError, match=message):
        pf.Problem(fed, pf.models.linear(), "tags")


def test_tags_under_the_loss_for_classes_are_told_which_loss_is_theirs() -> None:
    rows = np.random.default_rng(0).normal(size=(12, 2))
    tagged = pf.Federation.from_arrays([(rows, np.tile([[0, 1, 1], [1, 0, 0]], (6, 1)))])
    with pytest.raises(pf.PolyfedError, match="for several tags a row, take loss 'tags'"):
        pf.Problem(tagged, pf.models.linear(), "softmax")
