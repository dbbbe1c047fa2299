"""3 x 3 convolutions with fewer products, for a CPU: Winograd's F(2 x 2, 3 x 3).

A square of four outputs takes 16 products for each pair of channels, where the plain sum takes 36. What goes into the
products and what comes out of them are sums with the weights 1, -1 and 1/2, so that rounding is about that of the plain
sum. S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin and
S. Gray, Fast Algorithms for Convolutional Neural Networks, 2016.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

LEAST = 32
"""It pays from so many channels on either side: forward and backward, the plain sum takes 1.1 times as long with 32 and
32 channels, 1.6 times with 64 and 64, but 0.9 times with 16 and 16."""


def suits(w: jax.Array) -> bool:
    """Whether weights (height, width, in, out) are worth it; sums of 16-bit numbers would lose too much."""
    return w.shape[:2] == (3, 3) and min(w.shape[2:]) >= LEAST and w.dtype.itemsize >= 4


def weights(w: jax.Array) -> jax.Array:
    """(3, 3, in, out) to the 16 matrices of the products, (16, in, out)."""
    for axis in (0, 1):
        a, b, c = (lax.index_in_dim(w, i, axis, keepdims=False) for i in range(3))
        w = jnp.stack([a, (a + b + c) / 2, (a - b + c) / 2, c], axis)
    return w.reshape(16, *w.shape[2:])


@partial(jax.checkpoint, prevent_cse=False)
def convolve(x: jax.Array, w: jax.Array) -> jax.Array:
    """The cross-correlation of images (rows, height, width, in) with weights made by `weights`, stride 1.

    The barriers keep the compiler from taking a sum anew wherever it is read.
    """
    rows, height, width = x.shape[0], x.shape[1] - 2, x.shape[2] - 2
    down, along = -(-height // 2), -(-width // 2)
    x = jnp.pad(x, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)))
    x = lax.optimization_barrier(jnp.stack(_differences(x, 1, down)))
    x = lax.optimization_barrier(jnp.stack(_differences(x, 3, along), 1))
    products = (x.reshape(16, rows * down * along, -1) @ w).reshape(4, 4, rows, down, along, -1)
    a, b, c, d = (products[:, i] for i in range(4))
    a, b, c, d = jnp.stack([a + b + c, b - c - d], 4)
    outputs = jnp.stack([a + b + c, b - c - d], 2)
    return outputs.reshape(rows, 2 * down, 2 * along, -1)[:, :height, :width]


def _differences(x: jax.Array, axis: int, count: int) -> list[jax.Array]:
    """Of the four numbers along the axis that each pair of outputs reads, what the products take."""
    shape = (*x.shape[:axis], x.shape[axis] // 2, 2, *x.shape[axis + 1 :])
    even, odd = (lax.index_in_dim(x.reshape(shape), i, axis + 1, keepdims=False) for i in (0, 1))
    a, c = (lax.slice_in_dim(even, i, i + count, axis=axis) for i in (0, 1))
    b, d = (lax.slice_in_dim(odd, i, i + count, axis=axis) for i in (0, 1))
    return [a - c, b + c, c - b, b - d]
