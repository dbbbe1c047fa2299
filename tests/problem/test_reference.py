"""Local models, reference solutions, and the constants of convex problems."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import polyfed as pf
from polyfed.problem import objective, reference
from tests.algorithms.logistic import ALPHA, WEIGHTS, logistic_problem, run
from tests.algorithms.references.flix import local_models

A = pf.algorithms


@pytest.fixture(scope="module")
def problem() -> pf.Problem:
    return logistic_problem()


@pytest.fixture(scope="module")
def own(problem) -> np.ndarray:
    return local_models(problem)


def logistic_hessian(a: np.ndarray, b: np.ndarray, w: np.ndarray, l2: float) -> np.ndarray:
    p = 1 / (1 + np.exp(b * (a @ w)))
    return (a * (p * (1 - p))[:, None]).T @ a / len(a) + l2 * np.eye(len(w))


def test_local_models_are_the_clients_own_minimisers(problem, own) -> None:
    np.testing.assert_allclose(problem.local_models().params["w"], own, atol=1e-11)
    state = run(problem, A.FLIX(alpha=WEIGHTS), 1).client_state
    np.testing.assert_allclose(state.own["w"], own, atol=1e-11)
    assert (state.grad_norm <= 1e-12).all()
    np.testing.assert_array_equal(state.alpha, ALPHA)


def test_the_constants_bound_the_hessians(problem) -> None:
    """At the origin the logistic curvature is largest, 1/4: there the bound on the smoothness is attained."""
    constants = problem.constants
    for client in range(len(problem)):
        a, b = problem.federation.train.of(client)
        at_zero, elsewhere = (
            np.linalg.eigvalsh(logistic_hessian(a, b, w, problem.l2)) for w in (np.zeros(3), np.ones(3))
        )
        assert constants.smoothness[client] == pytest.approx(at_zero[-1], rel=1e-12)
        assert constants.convexity[client] <= elsewhere[0] + 1e-12
        assert elsewhere[-1] <= constants.smoothness[client] <= constants.trace_bound[client]


@pytest.mark.parametrize("loss", ["squared", "softmax"])
def test_the_constants_of_the_other_losses_bound_their_hessians(loss) -> None:
    rng = np.random.default_rng(1)
    targets = rng.integers(0, 3, 12) if loss == "softmax" else rng.normal(size=12)
    fed = pf.Federation.from_arrays([(rng.normal(size=(12, 2)), targets)] * 2, test=0, validation=0)
    problem = pf.Problem(fed, pf.models.linear(), loss, l2=0.05)
    with jax.enable_x64(True):
        f = problem.objective(fed.clients[0], "train")
        params, unravel = ravel_pytree(problem.init("zeros"))
        hessian = jax.jit(jax.hessian(lambda w: f.value(unravel(w))))
        for point in (params, params + 0.7):
            values = np.linalg.eigvalsh(hessian(point))
            assert values[-1] <= problem.constants.smoothness[0] + 1e-12 <= problem.constants.trace_bound[0] + 1e-11
            assert problem.constants.convexity[0] <= values[0] + 1e-12
            if loss == "squared":
                assert values[-1] == pytest.approx(problem.constants.smoothness[0], rel=1e-12)
                assert values[0] == pytest.approx(problem.constants.convexity[0], rel=1e-10)


def test_a_separable_problem_without_ridge_has_no_solution() -> None:
    x = np.array([[1.0, 0.2], [2.0, -0.1], [-1.0, 0.3], [-2.0, 0.1]])
    fed = pf.Federation.from_arrays([(x, np.sign(x[:, 0]))] * 2, test=0, validation=0)
    problem = pf.Problem(fed, pf.models.linear(bias=False), "logistic")
    with pytest.raises(pf.PolyfedError, match=r"no minimiser was found.*separable data has none"):
        problem.solve(1.0)


@pytest.mark.full
def test_clients_larger_than_a_block_are_solved_too(problem, own, monkeypatch) -> None:
    """Rows are then read block by block; the solution, the local models and the gap are the same."""
    expected = problem.solve(ALPHA)
    monkeypatch.setattr(objective, "BLOCK", 7)
    other = pf.Problem(problem.federation, pf.models.linear(bias=False), "logistic", l2=0.1)
    found = other.solve(ALPHA)
    assert found.grad_norm <= 1e-12
    np.testing.assert_allclose(found.params["w"], expected.params["w"], atol=1e-11)
    result = pf.simulate(other, A.FLIX(alpha=WEIGHTS), rounds=400, eval_every=400, dtype="float64", init="ones")
    np.testing.assert_allclose(result.client_state.own["w"], own, atol=1e-11)
    assert 0 <= result.history["gap"].iloc[-1] <= 1e-13


def test_without_ridge_a_minimiser_is_found_where_there_is_one(problem) -> None:
    plain = pf.Problem(problem.federation, pf.models.linear(bias=False), "logistic")
    assert plain.solve(1.0).grad_norm <= 1e-12


def test_several_models_are_measured_as_each_alone(problem) -> None:
    """Far from the solution by the difference of values, close to it by the divergence."""
    solution = problem.solve(ALPHA)
    distance = reference.Distance(problem, solution)
    moved = [jax.tree.map(lambda leaf, by=by: leaf + by, solution.params) for by in (1.0, 1e-3, 1e-7, 0.0)]
    together = distance(moved)
    for params, found in zip(moved, together, strict=True):
        (alone,) = distance([params])
        assert found == pytest.approx(alone, rel=1e-9, abs=1e-25)
    gaps = [found["gap"] for found in together]
    assert gaps[0] > reference.CLOSE > gaps[1] > gaps[2] > gaps[3] == 0
    assert gaps[1] / gaps[2] == pytest.approx(1e8, rel=0.05)  # f - f* is quadratic there
