"""Linear models in the space of their rows, against the same methods in the engine."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
from polyfed import data
from polyfed.papers.flix import tag_models
from polyfed.papers.flix.tag_models import INNER, Trained, laid_out, local_models, measured, trained
from polyfed.problem.metrics.tags import recall_at
from tests.conftest import few


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """Three maintainers of 12 to 16 packages, each with tags that follow from its own words."""
    random = np.random.default_rng(0)
    rows = []
    for client, size in enumerate((12, 14, 16)):
        for _ in range(size):
            words = sorted(random.choice(30, 6, replace=False).tolist())
            rows.append([f"m{client}", words, sorted({(word + client) % 7 for word in words[:2]})])
    file = tmp_path_factory.mktemp("tags") / "debtags.json"
    file.write_text(json.dumps({"words": list(map(str, range(30))), "tags": list(map(str, range(7))), "rows": rows}))
    return data.load("debtags", path=file, min_rows=10, validation=0.2, test=0.3)


@pytest.fixture(scope="module")
def problem(federation):
    return pf.Problem(federation, pf.models.linear(bias=False), "tags")


def scores(tagged, model: Trained, client: int) -> np.ndarray:
    held = tagged.splits["test"][client]
    shared = tagged.words.T @ model.shared.reshape(-1, model.shared.shape[2])
    return held.words @ shared + held.own @ model.own[client]


METHODS = {
    "FedAvg": (
        {"lr": 0.4, "server_lr": 1.0},
        lambda: pf.algorithms.FedAvg(lr=0.4, local_steps=INNER, batch="full", weighting="uniform"),
    ),
    "Reptile": (
        {"lr": 0.3, "server_lr": 0.7},
        lambda: pf.algorithms.Reptile(lr=0.3, server_lr=0.7, local_steps=INNER, batch="full", weighting="uniform"),
    ),
    "FOMAML": (
        {"lr": 2.0, "inner_lr": 0.2},
        lambda: pf.algorithms.FOMAML(lr=2.0, inner_lr=0.2, inner_steps=INNER, batch="full", weighting="uniform"),
    ),
    "FLIX": (
        {"lr": 3.0, "alpha": 0.4},
        lambda: pf.algorithms.FLIX(lr=3.0, alpha=0.4, plm_epochs=25, plm_lr=0.2, plm_batch="full"),
    ),
}


@pytest.mark.filterwarnings("ignore:flix. lr")
@pytest.mark.parametrize("name", few(METHODS, "FLIX"))
def test_every_method_ends_where_the_engine_does(name, federation, problem):
    numbers, method = METHODS[name]
    result = pf.simulate(problem, method(), rounds=12, eval_every=12)
    tagged = laid_out(federation)
    rows = tagged.rows
    local, z = np.zeros(rows.y.shape, np.float32), np.zeros(rows.y.shape, np.float32)
    for _ in range(25):  # the pure local models of FLIX: gradient descent from zero
        move = -0.2 * np.asarray(tag_models.residual(jnp.asarray(z), rows))
        local, z = local + move, np.asarray(z + np.asarray(rows.own) @ move, np.float32)
    twin = numbers | {"lr": numbers["lr"] / 3}
    other, model = trained(name, [twin, numbers], tagged, local, 12)
    for client in range(len(federation)):
        x, _ = federation.test.of(client)
        [w] = jax.tree.leaves(result.personal(client))
        expected = (x // 255).astype(float) @ np.asarray(w, float)
        np.testing.assert_allclose(scores(tagged, model, client), expected, atol=2e-4)
        assert np.abs(scores(tagged, other, client) - expected).max() > 1e-2


def test_local_models_reach_their_tolerance(federation, problem):
    tagged = laid_out(federation)
    rough, fine = local_models(tagged.rows, (1e-1, 1e-2))
    for models, tolerance in ((rough, 1e-1), (fine, 1e-2)):
        for client, name in enumerate(federation.clients):
            x, y = federation.train.of(client)
            ones = (x // 255).astype(float)
            w = ones.T @ models.coefficients[client, : len(x)].astype(float)
            z = ones @ w
            gradient = ones.T @ (1 / (1 + np.exp(-z)) - y) / len(x)
            assert np.linalg.norm(gradient) < tolerance * 1.001, name
            assert np.linalg.norm(gradient) == pytest.approx(models.norms[client], rel=1e-3)
    assert np.all(fine.iterations > rough.iterations)


def test_measurements_are_means_over_clients(federation):
    tagged = laid_out(federation)
    random = np.random.default_rng(1)
    shape = tagged.rows.y.shape
    model = Trained(*(random.normal(size=shape).astype(np.float32) for _ in range(2)))
    losses, found = [], []
    for client in range(len(federation)):
        z, y = scores(tagged, model, client), federation.test.of(client)[1].astype(float)
        losses.append(np.mean(np.sum(np.log(1 + np.exp(z)) - y * z, axis=1)))
        found.append(recall_at(5, z, y))
    assert measured(tagged, model, "test") == pytest.approx({"loss": np.mean(losses), "recall": np.mean(found)})
