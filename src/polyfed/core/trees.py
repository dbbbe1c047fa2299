"""Arithmetic on parameter trees."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, overload

import jax
import jax.numpy as jnp
from jax import lax

Tree = Any
"""A pytree of arrays: parameters, gradients, states. Which containers hold them is the model's or the method's choice,
and no type can say it."""
Scalar = float | jax.Array


@overload
def leafwise(function: Callable[[jax.Array], jax.Array], a: Tree) -> Tree: ...
@overload
def leafwise(function: Callable[[jax.Array, jax.Array], jax.Array], a: Tree, b: Tree, /) -> Tree: ...
def leafwise(function: Callable[..., jax.Array], a: Tree, *others: Tree) -> Tree:
    """`jax.tree.map` of arrays, with types."""
    return jax.tree.map(function, a, *others)


def add(a: Tree, b: Tree) -> Tree:
    return jax.tree.map(operator.add, a, b)


def subtract(a: Tree, b: Tree) -> Tree:
    return jax.tree.map(operator.sub, a, b)


def scale(factor: Scalar, a: Tree) -> Tree:
    return leafwise(lambda x: factor * x, a)


def descend(a: Tree, step: Scalar, direction: Tree) -> Tree:
    """a - step * direction."""
    return leafwise(lambda x, d: x - step * d, a, direction)


def tied(a: Tree, *others: Tree) -> Tree:
    """a, each of whose leaves waits for all leaves of a and of the others.

    On a CPU, XLA updates weights in place only where it can see that everything that reads them comes first; otherwise
    every step copies them. It sees this where the leaves of a gradient wait for each other: 0 times a number of the
    others is added to each of them.
    """

    def waiting(a: Tree, others: Tree) -> Tree:
        seen = [jnp.ravel(leaf)[0] for leaf in jax.tree.leaves((a, others)) if leaf.size]
        zero = 0 * lax.stop_gradient(sum(seen[1:], seen[0]))
        return leafwise(lambda leaf: leaf + zero.astype(leaf.dtype), a)

    def as_given(a: Tree, others: Tree) -> Tree:
        return a

    if len(jax.tree.leaves((a, others))) < 2:
        return a
    return lax.platform_dependent(a, others, cpu=waiting, default=as_given)


def descend_together(*steps: tuple[Tree, Scalar, Tree], after: Tree = None) -> tuple[Tree, ...]:
    """a - step * direction of each (a, step, direction), all at once.

    Every direction, and what is to come before, is known before the first of them moves.
    """
    directions = tied(tuple(direction for _, _, direction in steps), after)
    return tuple(descend(a, step, d) for (a, step, _), d in zip(steps, directions, strict=True))


def mix(weight: Scalar, a: Tree, b: Tree) -> Tree:
    """weight * a + (1 - weight) * b."""
    return leafwise(lambda x, y: weight * x + (1 - weight) * y, a, b)


def zeros_like(a: Tree) -> Tree:
    return jax.tree.map(jnp.zeros_like, a)


def dot(a: Tree, b: Tree) -> jax.Array:
    return sum(jax.tree.leaves(leafwise(lambda x, y: jnp.sum(x * y), a, b)), start=jnp.zeros(()))


def squared_norm(a: Tree) -> jax.Array:
    return dot(a, a)


def where(condition: jax.Array, a: Tree, b: Tree) -> Tree:
    """a where the scalar condition holds, else b."""
    return leafwise(lambda x, y: jnp.where(condition, x, y), a, b)


def finite(a: Tree) -> jax.Array:
    """Whether every floating-point number in the tree is finite."""
    checks = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(a) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.all(jnp.stack(checks)) if checks else jnp.asarray(True)


def nonzero(a: Tree) -> jax.Array:
    """Whether any number in the tree is not zero."""
    return jnp.any(jnp.stack([jnp.any(x != 0) for x in jax.tree.leaves(a)]))


def count(a: Tree) -> int:
    """How many numbers the tree holds."""
    return sum(x.size for x in jax.tree.leaves(a))


def length(a: Tree) -> int:
    """The length of the arrays' leading axis; 0 where there is no array."""
    return next((len(x) for x in jax.tree.leaves(a)), 0)


def bits(a: Tree) -> int:
    """The bits that the tree takes on the wire, uncompressed."""
    return sum(8 * x.size * x.dtype.itemsize for x in jax.tree.leaves(a))
