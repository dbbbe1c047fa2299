"""Problems: values, gradients, losses and what they refuse."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
from polyfed.problem import objective
from polyfed.problem.objective import Batch, Examples, Objective


def binary(labels: tuple[float, float], rows: int = 12) -> pf.Federation:
    rng = np.random.default_rng(0)
    clients = []
    for _ in range(3):
        x = rng.normal(size=(rows, 4))
        clients.append((x, np.where(x[:, 0] > 0, labels[1], labels[0])))
    return pf.Federation.from_arrays(clients, test=0, validation=0)


def test_logistic_value_and_gradient_are_the_formulas() -> None:
    problem = pf.Problem(binary((-1.0, 1.0)), pf.models.linear(bias=False), "logistic", l2=0.3)
    w = np.array([0.5, -1.0, 2.0, 0.1])
    a, b = problem.federation.train.of(1)
    margins = b * (a @ w)
    value = np.mean(np.log1p(np.exp(-margins))) + 0.15 * w @ w
    gradient = -(a * (b / (1 + np.exp(margins)))[:, None]).mean(axis=0) + 0.3 * w
    name = problem.federation.clients[1]
    assert problem.value({"w": w}, name) == pytest.approx(value, abs=1e-14)
    np.testing.assert_allclose(problem.grad({"w": w}, name)["w"], gradient, atol=1e-14)


def test_a_batch_is_the_mean_over_its_rows() -> None:
    problem = pf.Problem(binary((-1.0, 1.0)), pf.models.linear(bias=False), "logistic", l2=0.3)
    w, name, rows = np.array([0.5, -1.0, 2.0, 0.1]), problem.federation.clients[1], [3, 0, 7]
    a, b = (part[rows] for part in problem.federation.train.of(1))
    margins = b * (a @ w)
    value = np.mean(np.log1p(np.exp(-margins))) + 0.15 * w @ w
    gradient = -(a * (b / (1 + np.exp(margins)))[:, None]).mean(axis=0) + 0.3 * w
    assert problem.value({"w": w}, name, rows=rows) == pytest.approx(value, abs=1e-14)
    np.testing.assert_allclose(problem.grad({"w": w}, name, rows=rows)["w"], gradient, atol=1e-14)
    with pytest.raises(pf.PolyfedError, match="rows must be numbers from 0 to 11"):
        problem.value({"w": w}, name, rows=[3, 12])


def test_squared_is_half_the_squared_residual() -> None:
    fed = pf.data.load("quadratics", clients=3, dim=4, seed=1)
    problem = pf.Problem(fed, pf.models.linear(bias=False), "squared")
    x, y = fed.train.of(2)
    w = np.ones(4)
    assert problem.value({"w": w}, fed.clients[2]) == pytest.approx(0.5 * np.mean((x @ w - y) ** 2), abs=1e-14)


@pytest.mark.parametrize("labels", [(-1.0, 1.0), (-1, 1), (0, 1), (1, 2), (0.0, 1.0)])
def test_two_labels_of_any_kind_mean_the_same_to_the_logistic_loss(labels) -> None:
    w = {"w": np.array([0.5, -1.0, 2.0, 0.1])}
    plain = pf.Problem(binary((-1.0, 1.0)), pf.models.linear(bias=False), "logistic")
    other = pf.Problem(binary(labels), pf.models.linear(bias=False), "logistic")
    for name in plain.federation.clients:
        assert other.value(w, name) == plain.value(w, name)


def test_three_labels_are_refused_by_the_logistic_loss(federation) -> None:
    with pytest.raises(pf.PolyfedError, match=r"logistic.*two labels, found 3: 0, 1, 2"):
        pf.Problem(federation, pf.models.linear(), "logistic")


def test_real_targets_are_refused_by_the_softmax_loss() -> None:
    with pytest.raises(pf.PolyfedError, match="real numbers: use loss 'squared'"):
        pf.Problem(pf.data.load("quadratics"), pf.models.linear(), "softmax")
    with pytest.raises(pf.PolyfedError, match=r"\+-1: use loss 'logistic'"):
        pf.Problem(binary((-1.0, 1.0)), pf.models.linear(), "softmax")


def test_a_misspelt_loss_gets_a_suggestion(federation) -> None:
    with pytest.raises(pf.PolyfedError, match="did you mean 'softmax'"):
        pf.Problem(federation, pf.models.linear(), "sofmax")


@pytest.mark.parametrize("l2", [-0.1, float("nan"), float("inf"), "much", True])
def test_a_ridge_that_is_none_is_refused(federation, l2) -> None:
    with pytest.raises(pf.PolyfedError, match="l2"):
        pf.Problem(federation, pf.models.linear(), "softmax", l2=l2)


def test_a_model_with_the_wrong_outputs_is_refused(federation) -> None:
    wrong = (lambda key: jnp.zeros((4, 7)), lambda params, x: x @ params)
    with pytest.raises(pf.PolyfedError, match=r"needs outputs of shape \(rows, 3\), the model gives \(rows, 7\)"):
        pf.Problem(federation, wrong, "softmax")


def test_a_client_larger_than_a_block_is_read_block_by_block(monkeypatch) -> None:
    """The same value and gradient whether the rows are taken at once or in blocks of five."""
    problem = pf.Problem(binary((-1.0, 1.0), rows=23), pf.models.linear(bias=False), "logistic", l2=0.3)
    w, name = {"w": np.array([0.5, -1.0, 2.0, 0.1])}, problem.federation.clients[0]
    value, gradient = problem.value(w, name), problem.grad(w, name)
    monkeypatch.setattr(objective, "BLOCK", 5)
    assert problem.value(w, name) == pytest.approx(value, abs=1e-15)
    np.testing.assert_allclose(problem.grad(w, name)["w"], gradient["w"], atol=1e-15)


def test_a_padded_batch_is_the_mean_of_its_real_rows(problem) -> None:
    x, y = problem.federation.train.of(1)
    examples = Examples(jnp.asarray(x, jnp.float32), jnp.asarray(y))
    params = {"w": jnp.ones((4, 3)), "b": jnp.zeros(3)}
    f = Objective(
        problem.task, examples, jnp.int32(0), jnp.int32(len(y)), len(y), jnp.int32(0), jnp.int32(0), jax.random.key(0)
    )
    padded = Batch(jnp.array([3, 5, 0, 0]), jnp.array([1.0, 1.0, 0.0, 0.0]))
    exact = Batch(jnp.array([3, 5]), jnp.ones(2))
    assert float(f.value(params, padded)) == pytest.approx(float(f.value(params, exact)), abs=1e-6)


def test_bytes_are_read_as_shares_of_255() -> None:
    rng = np.random.default_rng(0)
    images = [(rng.integers(0, 256, (9, 4, 4), dtype=np.uint8), rng.integers(0, 2, 9)) for _ in range(2)]
    real = [((x / 255).astype(np.float32), y) for x, y in images]
    w = {"w": np.float32(rng.normal(size=(16, 2))), "b": np.zeros(2, np.float32)}
    stored, scaled = (
        pf.Problem(pf.Federation.from_arrays(data, test=0, validation=0), pf.models.linear(), "softmax")
        for data in (images, real)
    )
    assert stored.federation.train.x.dtype == np.uint8
    for name in stored.federation.clients:
        assert stored.value(w, name) == pytest.approx(scaled.value(w, name), rel=1e-6)


def test_a_client_without_rows_in_a_split_is_named() -> None:
    problem = pf.Problem(binary((-1.0, 1.0)), pf.models.linear(bias=False), "logistic")
    with pytest.raises(pf.PolyfedError, match="client 'client-000' has no test rows"):
        problem.value({"w": np.zeros(4)}, "client-000", "test")


def client_of(problem: pf.Problem, size: int) -> Objective:
    """The objective of a client with so many rows."""
    examples, zero = Examples(jnp.zeros((size, 4)), jnp.zeros(size, jnp.int32)), jnp.int32(0)
    return Objective(problem.task, examples, zero, jnp.int32(size), size, zero, zero, jax.random.key(0))


def test_with_replacement_batches_repeat_and_without_they_do_not(problem) -> None:
    """Count how often each row is read in one pass over a client of 17 rows."""
    size, f = 17, client_of(problem, 17)

    def count(seen, batch):
        return seen.at[batch.rows].add(batch.weights)

    for replace, even, steps, epochs in ((False, False, 1, 3), (False, True, 1, 3), (True, False, 40, None)):
        batching = objective.Batching(4, steps, epochs, replace, even)
        seen, taken = f.train(count, jnp.zeros(size), jax.random.key(1), batching)
        if replace:
            assert int(taken) == 40
            assert float(seen.sum()) == 160
            assert float(seen.std()) > 1
        else:
            assert int(taken) == 3 * 5
            np.testing.assert_array_equal(seen, 3)


@pytest.mark.parametrize(
    ("replace", "even", "sizes"),
    [(False, False, [4, 4, 4, 4, 1]), (True, False, [4, 4, 4, 4, 4]), (False, True, [4, 4, 3, 3, 3])],
)
def test_batches_that_are_drawn_ahead_are_those_drawn_step_by_step(problem, monkeypatch, replace, even, sizes) -> None:
    """Rows and weights of nine batches of 4: a pass over 17 rows and a part of the second."""

    def batches() -> tuple[np.ndarray, np.ndarray]:
        def note(carry, batch):
            rows, weights, step = carry
            return rows.at[step].set(batch.rows), weights.at[step].set(batch.weights), step + 1

        start = (jnp.zeros((9, 4), jnp.int32), jnp.zeros((9, 4)), 0)
        rows, weights, _ = client_of(problem, 17).train(
            note, start, jax.random.key(1), objective.Batching(4, 9, None, replace, even)
        )[0]
        return np.asarray(rows), np.asarray(weights)

    ahead = batches()
    monkeypatch.setattr(objective, "AHEAD", 0)
    for found, expected in zip(ahead, batches(), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert len({tuple(rows) for rows in ahead[0]}) == 9
    assert ahead[1].sum(axis=1).tolist() == (2 * sizes)[:9]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pf.models.mlp([]), "hidden must be"),
        (lambda: pf.models.mlp([10, 0]), "hidden must be"),
        (lambda: pf.models.MODELS["mlp"](5), "hidden must be"),
        (lambda: pf.models.MODELS["linear"](3), "bias must be"),
        (lambda: pf.models.mlp([10], activation="rellu"), "did you mean 'relu'"),
    ],
)
def test_a_model_that_cannot_be_is_refused(make, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        make()


@pytest.mark.parametrize(("labels", "notes"), [((1, 2), ["labels 1 -> 0, 2 -> 1 (the positive class)"]), ((-1, 1), [])])
def test_labels_that_were_mapped_are_noted(labels, notes) -> None:
    rows = [(np.eye(4), np.array([labels[0], labels[1]] * 2, float))] * 2
    fed = pf.Federation.from_arrays(rows, test=0, validation=0)
    assert pf.Problem(fed, pf.models.linear(), "logistic").notes == notes
