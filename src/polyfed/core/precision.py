"""bfloat16 products with float32 master weights: which type local work computes in, and where numbers change types.

Parameters and inputs are rounded on their way into the model; its outputs are float32 again before the loss. The
gradient of a rounding widens again, so gradients arrive in float32 and stay there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from polyfed.core import trees
from polyfed.core.errors import PolyfedError, suggestion

Compute = Literal["float32", "float64", "bfloat16"]
Narrow = Literal["bfloat16"] | None
"""The type of products where it differs from that of the parameters."""


def narrow_type(compute: object, dtype: str, name: str = "compute") -> Narrow:
    """The type that a run's `compute` asks for; None where it is the run's dtype, or not given."""
    if compute is None or compute == dtype:
        return None
    if compute != "bfloat16":
        raise PolyfedError(
            f"{name} must be '{dtype}', the run's dtype, or 'bfloat16', found {compute!r}"
            f"{suggestion(str(compute), [dtype, 'bfloat16'])}"
        )
    if dtype != "float32":
        raise PolyfedError(f"{name} = 'bfloat16' goes with dtype 'float32', found dtype {dtype!r}")
    return "bfloat16"


def within(function: Callable[..., jax.Array], compute: Narrow) -> Callable[..., jax.Array]:
    """A model's function with its real inputs rounded to this type and its outputs in the precision in force."""
    if compute is None:
        return function

    def rounded(leaf: jax.Array) -> jax.Array:
        return leaf.astype(compute) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    def called(*arguments: trees.Tree) -> jax.Array:
        return function(*jax.tree.map(rounded, arguments)).astype(jnp.result_type(float))

    return called


def like_weights(x: jax.Array, w: jax.Array) -> jax.Array:
    """x, the other factor of a product with w, rounded where w is."""
    return x.astype(w.dtype) if w.dtype == jnp.bfloat16 else x


def widened(z: jax.Array) -> jax.Array:
    """A product's result in float32, in which bias, activation, pooling and the sums of gradients are computed."""
    return z.astype(jnp.float32) if z.dtype == jnp.bfloat16 else z
