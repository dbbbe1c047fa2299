"""Newton's method for convex functions of a flat vector, to the precision of the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Minimum(NamedTuple):
    """Where Newton's method ended."""

    x: jax.Array
    grad_norm: jax.Array
    steps: jax.Array


class _State(NamedTuple):
    x: jax.Array
    value: jax.Array
    grad: jax.Array
    steps: jax.Array
    stuck: jax.Array


def minimize(
    function: Callable[[jax.Array], jax.Array],
    gradient: Callable[[jax.Array], jax.Array],
    start: jax.Array,
    tolerance: jax.Array | float,
    most: int = 100,
    hessian: Callable[[jax.Array], jax.Array | None] | None = None,
) -> Minimum:
    """Damped Newton steps until |grad| <= tolerance, no step improves any more, or `most` steps were taken.

    A step solves H d = -grad by conjugate gradients, which need no Hessian but its products and no full rank, and is
    halved until the value falls; close to the minimum, where values no longer tell, until the gradient's norm does.
    Works inside jit and vmap: many clients at once. The gradient is given, since a function that reads its rows block
    by block cannot be differentiated backwards through that loop; forwards, as the products need, it can.

    Where the `hessian` is given, its eigenvectors solve that system instead. Not inside a program over several CPU
    devices: LAPACK's routines do not return there.
    """
    size = start.shape[0]

    def direction(x: jax.Array, grad: jax.Array) -> jax.Array:
        if hessian is not None:
            return -_pseudo_solve(hessian(x), grad)

        def times(v: jax.Array) -> jax.Array:
            return jax.jvp(gradient, (x,), (v,))[1]

        return -conjugate_gradients(times, grad, 1e-10, 4 * size + 50)

    def step(state: _State) -> _State:
        move = direction(state.x, state.grad)
        slope = jnp.vdot(state.grad, move)
        move = jnp.where(jnp.isfinite(slope) & (slope < 0), move, -state.grad)
        slope = jnp.vdot(state.grad, move)

        def good(length: jax.Array) -> jax.Array:
            x = state.x + length * move
            value = function(x)
            falls = value <= state.value + 1e-4 * length * slope
            equal = value <= state.value + 4 * jnp.finfo(x.dtype).eps * (1 + jnp.abs(state.value))
            return falls | (equal & (jnp.linalg.norm(gradient(x)) <= 0.9 * jnp.linalg.norm(state.grad)))

        def shorten(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            length, _ = carry
            return 0.5 * length, good(0.5 * length)

        one = jnp.ones((), state.x.dtype)
        length, fine = lax.while_loop(lambda c: ~c[1] & (c[0] > 1e-10), shorten, (one, good(one)))
        x = jnp.where(fine, state.x + length * move, state.x)
        grad = gradient(x)
        return _State(x, function(x), grad, state.steps + 1, ~fine)

    def unfinished(state: _State) -> jax.Array:
        return (jnp.linalg.norm(state.grad) > tolerance) & (state.steps < most) & ~state.stuck

    begin = _State(start, function(start), gradient(start), jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    end = lax.while_loop(unfinished, step, begin)
    return Minimum(end.x, jnp.linalg.norm(end.grad), end.steps)


def _pseudo_solve(matrix: jax.Array | None, target: jax.Array) -> jax.Array:
    """The shortest least-squares solution of matrix x = target, for a positive semidefinite matrix."""
    assert matrix is not None
    values, vectors = jnp.linalg.eigh(matrix)
    known = values > 1e-13 * values[-1]
    return vectors @ (jnp.where(known, 1 / jnp.where(known, values, 1), 0) * (vectors.T @ target))


class _Conjugate(NamedTuple):
    x: jax.Array
    residual: jax.Array
    direction: jax.Array
    norm2: jax.Array
    steps: jax.Array


def conjugate_gradients(
    times: Callable[[jax.Array], jax.Array], target: jax.Array, tolerance: float, most: int
) -> jax.Array:
    """x with |A x - target| <= tolerance |target|, for a positive semidefinite A that is known by its products."""
    goal = tolerance**2 * jnp.vdot(target, target)

    def step(state: _Conjugate) -> _Conjugate:
        product = times(state.direction)
        curvature = jnp.vdot(state.direction, product)
        length = jnp.where(curvature > 0, state.norm2 / jnp.where(curvature > 0, curvature, 1), 0)
        residual = state.residual - length * product
        norm2 = jnp.vdot(residual, residual)
        direction = residual + (norm2 / state.norm2) * state.direction
        steps = jnp.where(curvature > 0, state.steps + 1, most)
        return _Conjugate(state.x + length * state.direction, residual, direction, norm2, steps)

    def unfinished(state: _Conjugate) -> jax.Array:
        return (state.norm2 > goal) & (state.steps < most)

    begin = _Conjugate(jnp.zeros_like(target), target, target, jnp.vdot(target, target), jnp.zeros((), jnp.int32))
    return lax.while_loop(unfinished, step, begin).x
