"""Personal parts of a model: theta, added to the parameters that patterns of paths choose, in full or of low rank."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp

from polyfed.core.trees import Tree
from polyfed.models.parameters import map_with_path, paths


class Factors(NamedTuple):
    """theta = left @ right, for a parameter of shape (..., n) read as a matrix with n columns."""

    left: jax.Array
    right: jax.Array


Theta = dict[str, jax.Array | Factors]
"""By path, such as "0.w": what is added to that parameter."""


def chosen(params: Tree, patterns: Sequence[str]) -> list[str]:
    """The paths that match a pattern: * stands for any characters, dots included."""
    return [path for path in paths(params) if any(fnmatchcase(path, pattern) for pattern in patterns)]


def zeros(params: Tree, patterns: Sequence[str], rank: int | None) -> Theta:
    """theta = 0. A matrix is two factors where that takes fewer numbers; `drawn` must then give the left one values."""
    named = dict(zip(paths(params), jax.tree.leaves(params), strict=True))
    return {path: _zero(named[path], rank) for path in chosen(params, patterns)}


def drawn(theta: Theta, key: jax.Array) -> Theta:
    """Left factors with columns of length about 1, right ones zero: theta is still 0, but can move."""

    def part(number: int, value: jax.Array | Factors) -> jax.Array | Factors:
        if not isinstance(value, Factors):
            return value
        noise = jax.random.normal(jax.random.fold_in(key, number), value.left.shape, value.left.dtype)
        return Factors(noise / value.left.shape[0] ** 0.5, value.right)

    return {path: part(number, value) for number, (path, value) in enumerate(theta.items())}


def join(w: Tree, theta: Theta) -> Tree:
    """w + theta, on the parameters that have a theta."""

    def sum_at(path: str, leaf: jax.Array) -> jax.Array:
        return leaf + _whole(theta[path]).reshape(leaf.shape) if path in theta else leaf

    return map_with_path(sum_at, w)


def whole(theta: Theta) -> Theta:
    """theta with its products multiplied out, as matrices."""
    return {path: _whole(part) for path, part in theta.items()}


def pull_back(theta: Theta, gradient: Tree) -> Theta:
    """The gradient in theta, from that in w + theta: the same numbers or, of two factors, by the product rule."""
    named = dict(zip(paths(gradient), jax.tree.leaves(gradient), strict=True))

    def in_theta(part: jax.Array | Factors, g: jax.Array) -> jax.Array | Factors:
        if not isinstance(part, Factors):
            return g
        matrix = g.reshape(part.left.shape[0], part.right.shape[1])
        return Factors(matrix @ part.right.T, part.left.T @ matrix)

    return {path: in_theta(part, named[path]) for path, part in theta.items()}


def _zero(leaf: jax.Array, rank: int | None) -> jax.Array | Factors:
    rows, columns = prod(leaf.shape[:-1]), leaf.shape[-1] if leaf.ndim else 1
    if rank is None or leaf.ndim < 2 or rank * (rows + columns) >= rows * columns:
        return jnp.zeros_like(leaf)
    return Factors(jnp.zeros((rows, rank), leaf.dtype), jnp.zeros((rank, columns), leaf.dtype))


def _whole(part: jax.Array | Factors) -> jax.Array:
    return part.left @ part.right if isinstance(part, Factors) else part
