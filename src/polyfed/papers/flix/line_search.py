"""Gradient descent with a line search, for the papers' small nets: all rows, no randomness."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from polyfed.core import trees
from polyfed.core.trees import Tree

SUFFICIENT, SHRINK, GROWTH = 1e-4, 0.5, 1.25
"""Armijo's constant; the factor of a refused step, and of an accepted one for the search that follows."""
SHORTEST, MOST = 1e-12, 50_000
"""The step at which a search gives up, and the most iterations of a descent."""


class Descent(NamedTuple):
    """Where a descent stands; `step` is the length that is tried next."""

    x: Tree
    value: jax.Array
    grad: Tree
    grad_norm: jax.Array
    step: jax.Array
    iterations: jax.Array


def line_search_descent(
    function: Callable[[Tree], jax.Array], begin: Tree, tolerance: jax.Array | float, most: int = MOST
) -> Descent:
    """x <- x - t grad f(x) until |grad f(x)| < tolerance, t by Armijo's backtracking in every iteration.

    t is halved until f(x - t grad) <= f(x) - 1e-4 t |grad|^2; the next search begins at 1.25 t, the first at 1. A turn
    of the loop is one trial, accepted or not, so that under vmap nobody waits for the search of another. A descent that
    ends otherwise (after `most` iterations, or where no step lowers f) shows it in `grad_norm`.
    """
    value_and_grad = jax.value_and_grad(function)

    def at(x: Tree, step: jax.Array, iterations: jax.Array) -> Descent:
        value, grad = value_and_grad(x)
        return Descent(x, value, grad, jnp.sqrt(trees.squared_norm(grad)), step, iterations)

    def attempt(now: Descent) -> Descent:
        there = at(trees.descend(now.x, now.step, now.grad), GROWTH * now.step, now.iterations + 1)
        enough = there.value <= now.value - SUFFICIENT * now.step * now.grad_norm**2
        return trees.where(enough, there, now._replace(step=SHRINK * now.step))

    def unfinished(now: Descent) -> jax.Array:
        return (now.grad_norm >= tolerance) & (now.iterations < most) & (now.step > SHORTEST)

    return lax.while_loop(unfinished, attempt, at(begin, jnp.ones(()), jnp.zeros((), jnp.int32)))
