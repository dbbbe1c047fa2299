"""Arithmetic on parameter trees."""

from __future__ import annotations

import operator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from polyfed.core.schedules import Real

Tree = Any
"""A pytree of arrays: parameters, gradients, states."""


def add(a: Tree, b: Tree) -> Tree:
    return jax.tree.map(operator.add, a, b)


def subtract(a: Tree, b: Tree) -> Tree:
    return jax.tree.map(operator.sub, a, b)


def scale(factor: Any, a: Tree) -> Tree:
    return jax.tree.map(lambda x: factor * x, a)


def descend(a: Tree, step: Any, direction: Tree) -> Tree:
    """a - step * direction."""
    return jax.tree.map(lambda x, d: x - step * d, a, direction)


def tied(a: Tree, *others: Tree) -> Tree:
    """a, every part of which waits for all the other parts, and for the others.

    On a CPU, XLA updates weights in place only where it sees that whatever reads them comes before; else every step
    copies them. A gradient whose parts wait for each other shows it: each has 0 times a number of the others added.
    """

    def waiting(a: Tree, others: Any) -> Tree:
        seen = [jnp.ravel(leaf)[0] for leaf in jax.tree.leaves((a, others)) if leaf.size]
        zero = 0 * lax.stop_gradient(sum(seen[1:], seen[0]))
        return jax.tree.map(lambda leaf: leaf + zero.astype(leaf.dtype), a)

    if len(jax.tree.leaves((a, others))) < 2:
        return a
    return lax.platform_dependent(a, others, cpu=waiting, default=lambda a, _: a)


def descend_together(*steps: tuple[Tree, Real, Tree], after: Tree = None) -> tuple[Tree, ...]:
    """a - step * direction of each (a, step, direction), all at once: every direction, and what is to come before, is
    known before the first of them moves."""
    directions = tied(tuple(direction for _, _, direction in steps), after)
    return tuple(descend(a, step, d) for (a, step, _), d in zip(steps, directions, strict=True))


def mix(weight: Any, a: Tree, b: Tree) -> Tree:
    """weight * a + (1 - weight) * b."""
    return jax.tree.map(lambda x, y: weight * x + (1 - weight) * y, a, b)


def zeros_like(a: Tree) -> Tree:
    return jax.tree.map(jnp.zeros_like, a)


def dot(a: Tree, b: Tree) -> jax.Array:
    return sum(jax.tree.leaves(jax.tree.map(lambda x, y: jnp.sum(x * y), a, b)), start=jnp.zeros(()))


def squared_norm(a: Tree) -> jax.Array:
    return dot(a, a)


def where(condition: jax.Array, a: Tree, b: Tree) -> Tree:
    """a where the scalar condition holds, else b."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def finite(a: Tree) -> jax.Array:
    """Whether every floating-point number in the tree is finite."""
    checks = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(a) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.all(jnp.stack(checks)) if checks else jnp.asarray(True)


def count(a: Tree) -> int:
    """The number of numbers in the tree."""
    return sum(x.size for x in jax.tree.leaves(a))


def length(a: Tree) -> int:
    """The length of the arrays' leading axis; 0 where there is no array."""
    return next((len(x) for x in jax.tree.leaves(a)), 0)


def bits(a: Tree) -> int:
    """The bits that the tree takes on the wire, uncompressed."""
    return sum(8 * x.size * x.dtype.itemsize for x in jax.tree.leaves(a))
