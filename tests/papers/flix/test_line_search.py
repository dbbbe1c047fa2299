"""Gradient descent with a line search, against a plain loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from polyfed.papers.flix.line_search import line_search_descent
from polyfed.problem.problem import precision


@pytest.fixture(autouse=True)
def double():
    with precision("float64"):
        yield


def armijo(curvature, x, tolerance):
    """Gradient descent on sum(curvature x^2) / 2, the step halved until the value falls enough."""
    step, iterations = 1.0, 0
    while np.linalg.norm(curvature * x) >= tolerance:
        grad = curvature * x
        while True:
            trial = x - step * grad
            if curvature @ trial**2 / 2 <= curvature @ x**2 / 2 - 1e-4 * step * grad @ grad:
                break
            step /= 2
        x, step, iterations = trial, 1.25 * step, iterations + 1
    return x, iterations


@pytest.mark.parametrize("largest", [0.3, 7.0, 90.0])
def test_a_descent_takes_the_steps_of_a_plain_backtracking_loop(largest):
    curvature, begin = np.array([0.2, largest]), np.array([3.0, -1.0])
    descent = line_search_descent(lambda x: jnp.asarray(curvature) @ x**2 / 2, jnp.asarray(begin), 1e-6)
    x, iterations = armijo(curvature, begin, 1e-6)
    assert iterations > 10
    assert int(descent.iterations) == iterations
    np.testing.assert_allclose(np.asarray(descent.x), x, rtol=1e-9, atol=1e-15)
    assert float(descent.grad_norm) == pytest.approx(np.linalg.norm(curvature * x), rel=1e-9)
    assert float(descent.grad_norm) < 1e-6


def test_side_by_side_descents_are_those_of_each_alone():
    curvatures = jnp.array([[0.2, 0.3], [1.0, 40.0], [5.0, 5.0]])

    def descend(curvature):
        return line_search_descent(lambda x: curvature @ x**2 / 2, jnp.array([3.0, -1.0]), 1e-3)

    together = jax.vmap(descend)(curvatures)
    separate = [descend(curvature) for curvature in curvatures]
    assert together.iterations.tolist() == [int(descent.iterations) for descent in separate]
    assert len(set(together.iterations.tolist())) == 3
    np.testing.assert_allclose(together.x, np.stack([descent.x for descent in separate]), rtol=1e-12)


def test_a_descent_that_cannot_go_on_stops_and_shows_it():
    uphill = line_search_descent(lambda x: lax.stop_gradient(2 * x) - x, jnp.asarray(3.0), 1e-2)
    assert (float(uphill.x), int(uphill.iterations), float(uphill.grad_norm)) == (3.0, 0, 1.0)
    capped = line_search_descent(lambda x: x, jnp.asarray(3.0), 1e-2, most=7)
    assert int(capped.iterations) == 7
    nowhere = line_search_descent(lambda x: x**2, jnp.asarray(0.001), 1e-2)
    assert int(nowhere.iterations) == 0
