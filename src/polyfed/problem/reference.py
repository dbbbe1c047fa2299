"""Reference solutions of convex problems: constants, pure local models, and the minimiser of the mixture objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from polyfed.core import trees
from polyfed.core.errors import PolyfedError
from polyfed.core.trees import Tree
from polyfed.problem import newton
from polyfed.problem.mixture_objective import Mixture, TrainingRows, mixture_objective

if TYPE_CHECKING:
    from polyfed.problem.problem import Problem

CURVATURE = {"logistic": 0.25, "softmax": 0.5, "tags": 0.25, "squared": 1.0}
"""The largest second derivative of each loss in the model's output."""
CLOSE = 1e-5
"""At a smaller f - f*, rounding shows in the difference of the values."""


@dataclass(frozen=True)
class Constants:
    """Of every client: smoothness L_i, strong convexity mu_i, and the trace bound on L_i."""

    smoothness: np.ndarray
    convexity: np.ndarray
    trace_bound: np.ndarray


@dataclass(frozen=True)
class LocalModels:
    """x_i* = argmin f_i of every client (a leading client axis), and the gradient norms that were reached."""

    params: Tree
    grad_norms: np.ndarray


@dataclass(frozen=True)
class Reference:
    """The minimiser x* of (1/n) sum_i f_i(alpha_i x + (1 - alpha_i) x_i*), its value f* and the gradient norm there."""

    params: Tree
    value: float
    grad_norm: float
    alpha: np.ndarray
    local_models: LocalModels | None


def constants(problem: Problem) -> Constants:
    """L_i = c lambda_max(A'A)/n_i + l2 with c the loss's curvature; mu_i = l2, plus lambda_min(A'A)/n_i if squared."""
    design = problem.model.design
    if design is None:
        raise PolyfedError("smoothness constants are known for linear models only; give the stepsize")
    curvature, squared = CURVATURE[problem.loss.name], problem.loss.name == "squared"
    bounds = []
    for client in range(len(problem)):
        rows = design(problem.federation.train.of(client)[0])
        if problem.class_weight is not None:
            weights = problem.task.row_weights(problem.targets(client, "train"), problem.class_weight)
            rows = rows * np.sqrt(weights)[:, None]
        gram = rows.T @ rows if rows.shape[0] >= rows.shape[1] or squared else rows @ rows.T
        eigenvalues = np.linalg.eigvalsh(gram) / len(rows)
        lowest = max(eigenvalues[0], 0.0) if squared else 0.0
        bounds.append((curvature * eigenvalues[-1], lowest, curvature * np.sum(rows**2) / len(rows)))
    largest, lowest, trace = np.array(bounds).T
    return Constants(largest + problem.l2, lowest + problem.l2, trace + problem.l2)


def local_models(problem: Problem, tolerance: float) -> LocalModels:
    """Every client's own minimiser, by Newton's method in float64."""
    with jax.enable_x64(True):
        minima, params = _own_minima(TrainingRows.of(problem), problem.init("zeros"), tolerance)
    return LocalModels(jax.tree.map(np.asarray, params), np.asarray(minima.grad_norm))


@jax.jit
def _own_minima(rows: TrainingRows, start: Tree, tolerance: float) -> tuple[newton.Minimum, Tree]:
    flat, unravel = ravel_pytree(start)

    def of_client(client: jax.Array) -> newton.Minimum:
        f = rows.objective(client)
        return newton.minimize(
            lambda x: f.value(unravel(x)), lambda x: ravel_pytree(f.grad(unravel(x)))[0], flat, tolerance
        )

    minima = jax.lax.map(of_client, jnp.arange(len(rows.sizes)), batch_size=16)
    return minima, jax.vmap(unravel)(minima.x)


def solve(problem: Problem, alpha: np.ndarray, local: LocalModels | None, tolerance: float) -> Reference:
    """Newton's method on the mixture objective, in float64; refuses a problem without a minimiser."""
    with jax.enable_x64(True):
        f = mixture_objective(problem, alpha, None if local is None else local.params)
        # The curvature shrinks with alpha^2, so the gradient must be smaller for x to be as close.
        sharp = tolerance * float(np.mean(alpha**2))
        minimum, params, value, bend = _minimum(f, problem.init("zeros"), sharp)
        norm, size = float(minimum.grad_norm), float(jnp.linalg.norm(minimum.x))
        flat = size > 1 and float(bend) < 1e-9 * float(np.mean(alpha**2))  # the infimum lies at infinity
        if not norm <= tolerance or flat:
            raise PolyfedError(
                f"no minimiser was found: after {int(minimum.steps)} Newton steps the gradient's norm is {norm:.1e} "
                f"and the parameters' is {size:.1e}; without a ridge, separable data has none (l2 = {problem.l2:g})"
            )
        return Reference(jax.tree.map(np.asarray, params), float(value), norm, alpha, local)


@jax.jit
def _minimum(f: Mixture, start: Tree, tolerance: float) -> tuple[newton.Minimum, Tree, jax.Array, jax.Array]:
    """Where Newton's method ended, as parameters; f there, and how f bends along the way there."""
    flat, unravel = ravel_pytree(start)

    def gradient(x: jax.Array) -> jax.Array:
        return ravel_pytree(f.gradient(unravel(x)))[0]

    dense = jax.eval_shape(lambda x: f.hessian(x, unravel), flat) is not None
    hessian = (lambda x: f.hessian(x, unravel)) if dense else None
    minimum = newton.minimize(lambda x: f.value(unravel(x)), gradient, flat, tolerance, most=40, hessian=hessian)
    direction = minimum.x / jnp.maximum(jnp.linalg.norm(minimum.x), 1.0)
    bend = jnp.vdot(direction, jax.jvp(gradient, (minimum.x,), (direction,))[1])
    params = unravel(minimum.x)
    return minimum, params, f.value(params), bend


class Distance:
    """How far global models are from the reference: f - f*, |grad|^2, mean squared distance of the deployed models.

    Far away, f - f* is the difference of the two values. Close by, where a difference of values would be lost in
    rounding, it is the Bregman divergence of f, which is the same since grad f(x*) = 0: the integral over s in [0, 1]
    of (1 - s) v' H(x* + s v) v with v = x - x*. That is a sum of terms that are not negative.
    """

    def __init__(self, problem: Problem, reference: Reference) -> None:
        self.reference = reference
        with jax.enable_x64(True):
            local = None if reference.local_models is None else reference.local_models.params
            f = mixture_objective(problem, reference.alpha, local)
            end = jax.tree.map(jnp.asarray, reference.params)
            self._measure = partial(_measured, f, end, jnp.asarray(reference.value), jnp.asarray(reference.alpha))
            self._divergence = partial(_divergence, f, end)

    def __call__(self, params: Sequence[Tree]) -> list[dict[str, float]]:
        """Of each of these global models: `gap`, `grad_norm2` and `distance`. Many share the passes over the rows."""
        with jax.enable_x64(True):
            stacked = jax.tree.map(
                lambda *leaves: jnp.stack([jnp.asarray(leaf, jnp.float64) for leaf in leaves]), *params
            )
            gap, grad_norm2, distance = map(np.asarray, self._measure(stacked))
            far = gap > CLOSE
            if not far.all():
                gap = np.where(far, gap, self._divergence(stacked))
        return [
            {"gap": float(one), "grad_norm2": float(two), "distance": float(three)}
            for one, two, three in zip(gap, grad_norm2, distance, strict=True)
        ]


@jax.jit
@partial(jax.vmap, in_axes=(None, None, None, None, 0))
def _measured(
    f: Mixture, end: Tree, value: jax.Array, alpha: jax.Array, x: Tree
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """f - f*, |grad|^2, and the mean squared distance of the deployed models, of each x."""
    spread = jnp.mean(alpha**2) * trees.squared_norm(trees.subtract(x, end))
    return f.value(x) - value, trees.squared_norm(f.gradient(x)), spread


@jax.jit
@partial(jax.vmap, in_axes=(None, None, 0))
def _divergence(f: Mixture, end: Tree, x: Tree) -> jax.Array:
    return f.divergence(end, trees.subtract(x, end))
