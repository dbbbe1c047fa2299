"""The names and the shapes of a model's parameters; nothing is computed."""

from __future__ import annotations

from collections.abc import Callable

import jax

from polyfed.core.trees import Tree


def paths(params: Tree) -> list[str]:
    """The path of every parameter: "w", "2.b", "layers.0.weight"; "model" where the parameters are one array."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    return [jax.tree_util.keystr(path, simple=True, separator=".") or "model" for path, _ in leaves]


def map_with_path(function: Callable[[str, jax.Array], jax.Array], params: Tree) -> Tree:
    """The parameters with each replaced by what the function makes of its path and itself."""
    leaves, structure = jax.tree.flatten(params)
    return jax.tree.unflatten(structure, map(function, paths(params), leaves))


def shapes(function: Callable[..., Tree], *inputs: Tree) -> Tree:
    """What a function would return for these inputs: shapes and types in place of arrays."""
    return jax.eval_shape(function, *inputs)
