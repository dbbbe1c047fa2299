"""Convolutional networks whose weights may differ from client to client.

A convolution is patches + one matrix product: under `vmap` over the clients' weights that stays a batched product,
where XLA's own convolution turns into a grouped one, many times slower. So does the backward pass. On a CPU the images
go through all the convolutions a few at a time, so that their patches stay in the cache. On an accelerator, where few
channels make thin products, the patches are whole rows of the image and the weights a band matrix: more arithmetic, but
in products of a good shape, and a fraction of the memory traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from polyfed.compute_type import like_weights, widened
from polyfed.errors import PolyfedError
from polyfed.models import checks
from polyfed.models.base import Model
from polyfed.models.dense import ACTIVATIONS, Layer, affine, check_activation, dropout, he_layer

PADDINGS = ("valid", "same")
BANDED = 160
"""On an accelerator, a convolution whose patches have at most so many numbers is a product with a band matrix."""
BLOCK_BYTES = 1 << 20
"""On a CPU, the patches of the images that go through the convolutions together take at most so much."""


@dataclass(frozen=True)
class Convolutional:
    """Convolutions, each with its pooling, then fully connected layers.

    The parameters are {"conv": [...], "fc": [...]}; of each layer "w", of shape (height, width, in, out) or (in, out),
    and "b".
    """

    name: str
    channels: tuple[int, ...]
    kernel: tuple[int, ...]
    pool: tuple[int, ...]
    hidden: tuple[int, ...]
    dropout: tuple[float, float]
    padding: str
    activation: str

    def build(self, inputs: tuple[int, ...], outputs: int | None) -> Model:
        height, width, depth = self._image(inputs)
        kernels: list[tuple[int, int, int, int]] = []
        widest = 0  # the most numbers that an image's patches have in any layer
        for channels, size, pool in zip(self.channels, self.kernel, self.pool, strict=True):
            kernels.append((size, size, depth, channels))
            margin = 0 if self.padding == "same" else size - 1
            widest = max(widest, (height - margin) * (width - margin) * size * size * depth)
            height, width, depth = (height - margin) // pool, (width - margin) // pool, channels
            if min(height, width) < 1:
                raise PolyfedError(f"{self.name}: images of shape {inputs} are too small for its convolutions")
        rows, columns = (height * width * depth, *self.hidden), (*self.hidden, outputs)
        activation = ACTIVATIONS[self.activation]  # of a monotone one, pooling first gives the same with less work

        def init(key: jax.Array) -> dict[str, list[Layer]]:
            keys = jax.random.split(key, len(kernels) + len(rows))
            shapes = [*kernels, *((m,) if n is None else (m, n) for m, n in zip(rows, columns, strict=True))]
            layers = [he_layer(k, shape) for k, shape in zip(keys, shapes, strict=True)]
            return {"conv": layers[: len(kernels)], "fc": layers[len(kernels) :]}

        def features(layers: list[Layer], x: jax.Array, banded: int = 0) -> jax.Array:
            for layer, size in zip(layers, self.pool, strict=True):
                x = widened(convolve(x, layer["w"], self.padding, banded)) + layer["b"]
                x = max_pool(activation(x), size) if self.activation == "gelu" else activation(max_pool(x, size))
            return x.reshape(x.shape[0], -1)

        def forward(params: Any, x: jax.Array, key: jax.Array | None) -> jax.Array:
            x = x.reshape(x.shape[0], *inputs[:2], -1)
            together = BLOCK_BYTES // (widest * x.dtype.itemsize)
            wide = partial(features, banded=BANDED)
            x = lax.platform_dependent(params["conv"], x, cpu=in_blocks(features, together), default=wide)
            x = dropout(x, self.dropout[0], key, 0)
            for number, layer in enumerate(params["fc"][:-1], start=1):
                x = dropout(activation(affine(layer, x)), self.dropout[1], key, number)
            return affine(params["fc"][-1], x)

        def apply(params: Any, x: jax.Array) -> jax.Array:
            return forward(params, x, None)

        return Model(init, apply, train_apply=forward if any(self.dropout) else None)

    def _image(self, inputs: tuple[int, ...]) -> tuple[int, int, int]:
        if len(inputs) not in (2, 3):
            raise PolyfedError(
                f"{self.name} reads images, (height, width) or (height, width, channels); these examples have shape "
                f"{inputs}"
            )
        return inputs[0], inputs[1], inputs[2] if len(inputs) == 3 else 1


def in_blocks(function: Callable[[Any, jax.Array], jax.Array], most: int) -> Callable[[Any, jax.Array], jax.Array]:
    """The same function, of as many rows at a time as divide their number, at most `most`."""

    def blocked(params: Any, x: jax.Array) -> jax.Array:
        rows = x.shape[0]
        size = max((n for n in range(1, min(rows, most) + 1) if rows % n == 0), default=1)
        if size >= rows:
            return function(params, x)
        found = lax.map(lambda block: function(params, block), x.reshape(-1, size, *x.shape[1:]))
        return found.reshape(rows, *found.shape[2:])

    return blocked


def convolve(x: jax.Array, w: jax.Array, padding: str = "valid", banded: int = 0) -> jax.Array:
    """The cross-correlation of images (rows, height, width, in) with w (height, width, in, out), stride 1.

    Where the patches have at most `banded` numbers, it is a product with a band matrix; the result is the same.
    """
    high, wide, depth, _ = w.shape
    x = like_weights(x, w)
    if padding == "same":
        x = jnp.pad(x, ((0, 0), ((high - 1) // 2, high // 2), ((wide - 1) // 2, wide // 2), (0, 0)))
    return _by_bands(x, w) if high * wide * depth <= banded else _by_patches(x, w)


@partial(jax.checkpoint, prevent_cse=False)
def _by_patches(x: jax.Array, w: jax.Array) -> jax.Array:
    """A backward pass makes the patches again: in the cache, that takes less than to keep them."""
    high, wide, _, out = w.shape
    rows, height, width = x.shape[0], x.shape[1] - high + 1, x.shape[2] - wide + 1
    shifted = [x[:, i : i + height, j : j + width] for i in range(high) for j in range(wide)]
    patches = jnp.concatenate(shifted, axis=-1).reshape(rows * height * width, -1)
    return (patches @ w.reshape(-1, out)).reshape(rows, height, width, out)


@partial(jax.checkpoint, prevent_cse=False)
def _by_bands(x: jax.Array, w: jax.Array) -> jax.Array:
    """Whole rows of the images, as many as the kernel is high, times a band matrix that has w at every column."""
    high, wide, depth, out = w.shape
    rows, full = x.shape[0], x.shape[2]
    height, width = x.shape[1] - high + 1, full - wide + 1
    lines = x.reshape(rows, -1, full * depth)
    windows = jnp.concatenate([lines[:, i : i + height] for i in range(high)], axis=-1)
    column = jnp.arange(full)[:, None] - jnp.arange(width)
    places = (column == jnp.arange(wide)[:, None, None]).astype(w.dtype)  # where w's column goes, by the output's
    band = jnp.einsum("iaco,ajk->ijcko", w, places).reshape(high * full * depth, width * out)
    return (windows.reshape(rows * height, -1) @ band).reshape(rows, height, width, out)


def max_pool(x: jax.Array, size: int) -> jax.Array:
    """The largest of each size x size square; what is left over at the lower and right edge is not looked at."""
    if size == 1:
        return x
    rows, height, width, depth = x.shape[0], x.shape[1] // size, x.shape[2] // size, x.shape[3]
    x = x[:, : height * size, : width * size]
    return jnp.max(x.reshape(rows, height, size, width, size, depth), axis=(2, 4))


def cnn(
    channels: Sequence[int] = (32, 64),
    kernel: int | Sequence[int] = 3,
    pool: int | Sequence[int] = 2,
    hidden: Sequence[int] = (128,),
    dropout: float | Sequence[float] = 0.0,
    padding: str = "valid",
    activation: str = "relu",
) -> Convolutional:
    """Convolutions and fully connected layers, on images (height, width) or (height, width, channels).

    `kernel` and `pool` are one size for all convolutions, or a list with one for each; pool 1 is none. `dropout` is one
    share, or two: after the convolutions, and after each hidden layer.
    """
    return _cnn("cnn", channels, kernel, pool, hidden, dropout, padding, activation)


def femnist_cnn(dropout: float | Sequence[float] = (0.25, 0.5)) -> Convolutional:
    """Two 3x3 convolutions (32, 64), pooling, 128 hidden units: 1,206,590 parameters on 28 x 28 images, 62 classes.

    The EMNIST network of Reddi et al. 2021, which FLIX and Scafflix use.
    """
    return _cnn("femnist_cnn", (32, 64), 3, (1, 2), (128,), dropout)


def cifar_cnn(hidden: Sequence[int] = (512,), dropout: float | Sequence[float] = 0.0) -> Convolutional:
    """Two 5x5 convolutions (20, 50), each with pooling, and 512 hidden units: 672,212 parameters on CIFAR-10.

    APFL's network for CIFAR-10: the paper counts its layers, the sizes are those of its authors' code.
    """
    return _cnn("cifar_cnn", (20, 50), 5, 2, hidden, dropout)


def lenet(hidden: Sequence[int] = (120, 84), dropout: float | Sequence[float] = 0.0) -> Convolutional:
    """Two 5x5 convolutions (6, 16), each with pooling, 120 and 84 hidden units: FedBC's network for CIFAR-10.

    62,006 parameters there. FedBC gives the convolutions; the fully connected layers are the usual ones.
    """
    return _cnn("lenet", (6, 16), 5, 2, hidden, dropout)


def _cnn(
    name: str,
    channels: Sequence[int],
    kernel: int | Sequence[int],
    pool: int | Sequence[int],
    hidden: Sequence[int],
    dropout: float | Sequence[float],
    padding: str = "valid",
    activation: str = "relu",
) -> Convolutional:
    chosen = checks.widths(f"{name}: channels", channels)
    shares = checks.rates(f"{name}: dropout", dropout, 2)
    return Convolutional(
        name,
        chosen,
        checks.per_layer(f"{name}: kernel", kernel, len(chosen)),
        checks.per_layer(f"{name}: pool", pool, len(chosen)),
        checks.widths(f"{name}: hidden", hidden, empty=True),
        (shares[0], shares[1]),
        checks.word(f"{name}: padding", padding, PADDINGS),
        check_activation(activation),
    )
