"""Constants of gradients on batches, from a problem's data: A_i and C_i of Scafflix's Assumption 3, and variances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

from polyfed import theory
from polyfed.core.trees import Tree, mix
from polyfed.problem.objective import Batch, Batching, Examples
from polyfed.problem.reference import CURVATURE, Reference

if TYPE_CHECKING:
    from polyfed.problem.problem import Problem
    from polyfed.problem.task import Task


def sampled_constants(
    problem: Problem, batching: Batching, solution: Reference | None
) -> tuple[np.ndarray, np.ndarray]:
    """A_i and C_i of every client for gradients on batches; C_i is 0 unless the solution is given.

    Without replacement the constants are those of the shortest batch of a pass: as many rows, drawn with replacement,
    have a gradient that varies at least as much, and so do those of the longer batches.
    """
    assert problem.model.design is not None
    curvature = CURVATURE[problem.loss.name]
    constants = []
    for client in range(len(problem)):
        rows = problem.model.design(problem.federation.train.of(client)[0])
        norms = np.sum(rows**2, axis=1)
        if problem.class_weight is not None:
            norms *= problem.task.row_weights(problem.targets(client, "train"), problem.class_weight)
        L = curvature * norms + problem.l2
        gradients = np.zeros((len(rows), 1)) if solution is None else _gradients(problem, client, solution)
        constants.append(theory.expected_smoothness(L, gradients, batching.fewest(len(rows))))
    return np.array([client.A for client in constants]), np.array([client.C for client in constants])


def _gradients(problem: Problem, client: int, solution: Reference) -> np.ndarray:
    """The gradient of each of a client's examples at its personal model of the solution, a row each."""
    with jax.enable_x64(True):
        rows = slice(*problem.federation.train.offsets[client : client + 2])
        x, y = (jnp.asarray(array[rows]) for array in problem.examples("train"))
        model = jax.tree.map(jnp.asarray, solution.params)
        if solution.local_models is not None:
            own = jax.tree.map(lambda leaf: jnp.asarray(leaf[client]), solution.local_models.params)
            model = mix(solution.alpha[client], model, own)

        return np.asarray(jax.jit(jax.vmap(lambda x, y: _row_gradient(problem.task, model, x, y)))(x, y))


def gradient_variances(problem: Problem, models: Tree) -> np.ndarray:
    """E |gradient of one row - gradient|^2 of every client at its models, of shape (clients, points).

    `models` has these two axes first. A batch of b rows that are drawn with replacement has 1/b of the variance.
    """
    part = problem.federation.train
    longest = int(np.max(part.sizes))
    with jax.enable_x64(True):
        x, y = (jnp.asarray(array) for array in problem.examples("train"))

        def of_client(given: tuple[jax.Array, jax.Array, Tree]) -> jax.Array:
            start, size, points = given
            place = jnp.arange(longest)
            rows, inside = start + jnp.minimum(place, size - 1), place < size

            def variance(params: Tree) -> jax.Array:
                gradients = jax.vmap(lambda row: _row_gradient(problem.task, params, x[row], y[row]))(rows)
                return inside @ jnp.sum((gradients - inside @ gradients / size) ** 2, axis=1) / size

            return lax.map(variance, points)

        given = (jnp.asarray(part.offsets[:-1]), jnp.asarray(part.sizes), jax.tree.map(jnp.asarray, models))
        return np.asarray(jax.jit(lambda given: lax.map(of_client, given))(given))


def _row_gradient(task: Task, params: Tree, x: jax.Array, y: jax.Array) -> jax.Array:
    """The gradient of one example's objective, as a vector."""

    def loss(params: Tree) -> jax.Array:
        batch = Batch(None, jnp.ones(1))
        return task.batch_loss(params, Examples(x[None], y[None]), batch) + task.ridge(params)

    return ravel_pytree(jax.grad(loss)(params))[0]
