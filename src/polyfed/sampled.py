"""Gradients on batches: A_i and C_i of Scafflix's Assumption 3, and their variance, measured on a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from polyfed import theory
from polyfed.objective import Batch, Examples
from polyfed.reference import CURVATURE, Reference
from polyfed.trees import mix

if TYPE_CHECKING:
    from polyfed.problem import Problem


def sampled_constants(problem: Problem, batch: int, solution: Reference | None) -> tuple[np.ndarray, np.ndarray]:
    """A_i and C_i of every client for batches drawn with replacement; C_i is 0 unless the solution is given.

    Without replacement the variance of a batch's gradient is smaller, so that the constants hold there, too.
    """
    assert problem.model.design is not None
    curvature = CURVATURE[problem.loss.name]
    found = []
    for client in range(len(problem)):
        rows = problem.model.design(problem.federation.train.of(client)[0])
        L = curvature * np.sum(rows**2, axis=1) + problem.l2
        gradients = np.zeros((len(rows), 1)) if solution is None else _gradients(problem, client, solution)
        found.append(theory.expected_smoothness(L, gradients, min(batch, len(rows))))
    return np.array([constants.A for constants in found]), np.array([constants.C for constants in found])


def gradient_variance(problem: Problem, client: int, params: Any) -> float:
    """E |gradient of one row - gradient|^2 of a client at `params`: a batch of b rows, drawn with replacement, has "
    "1/b."""
    rows = _row_gradients(problem, client, params)
    return float(np.mean(np.sum((rows - rows.mean(axis=0)) ** 2, axis=1)))


def _gradients(problem: Problem, client: int, solution: Reference) -> np.ndarray:
    """The gradient of each of a client's examples at its personal model of the solution, a row each."""
    model: Any = solution.params
    if solution.local_models is not None:
        own = jax.tree.map(lambda leaf: leaf[client], solution.local_models.params)
        with jax.enable_x64(True):
            model = mix(solution.alpha[client], model, own)
    return _row_gradients(problem, client, model)


def _row_gradients(problem: Problem, client: int, params: Any) -> np.ndarray:
    with jax.enable_x64(True):
        rows = slice(*problem.federation.train.offsets[client : client + 2])
        x, y = (jnp.asarray(array[rows]) for array in problem.examples("train"))
        model: Any = jax.tree.map(jnp.asarray, params)

        def one(x: jax.Array, y: jax.Array) -> jax.Array:
            def loss(params: Any) -> jax.Array:
                batch = Batch(None, jnp.ones(1))
                return problem.batch_loss(params, Examples(x[None], y[None]), batch) + problem.ridge(params)

            return ravel_pytree(jax.grad(loss)(model))[0]

        return np.asarray(jax.jit(jax.vmap(one))(x, y))
