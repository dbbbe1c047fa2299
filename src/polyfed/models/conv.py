"""Convolutional networks whose weights may differ from client to client.

A convolution is patches + one matrix product: under `vmap` over the clients' weights that stays a batched product,
where XLA's own convolution turns into a grouped one, many times slower. So does the backward pass. On a CPU the images
go through all the convolutions a few at a time, so that their patches stay in the cache, and 3 x 3 kernels of many
channels take fewer products (`models.winograd`). On an accelerator the patches are larger: all that a block of
neighbouring outputs reads, times a matrix that has the weights at each output's place. That is more arithmetic, but in
products of a better shape and with a fraction of the memory traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from polyfed.core.errors import PolyfedError, own_names
from polyfed.core.precision import like_weights, widened
from polyfed.models import checks, winograd
from polyfed.models.base import Model
from polyfed.models.dense import ACTIVATIONS, Layer, affine, check_activation, dropout, he_layer

Layers = dict[str, list[Layer]]
"""The convolutions, "conv", and the fully connected layers, "fc"."""
PADDINGS = ("valid", "same")
Block = tuple[int, int]
Features = Callable[[list[Layer], jax.Array], jax.Array]
"""The convolutions, of layers and images."""
OPERATIONS_PER_NUMBER = 200
"""On an accelerator, writing and reading a number of a patch takes as long as so many operations of a product."""
BLOCK_BYTES = 1 << 20
"""On a CPU, as many images go through the convolutions together as have patches of at most this size."""


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

        def init(key: jax.Array) -> Layers:
            keys = jax.random.split(key, len(kernels) + len(rows))
            shapes = [*kernels, *((m,) if n is None else (m, n) for m, n in zip(rows, columns, strict=True))]
            layers = [he_layer(k, shape) for k, shape in zip(keys, shapes, strict=True)]
            return {"conv": layers[: len(kernels)], "fc": layers[len(kernels) :]}

        def features(layers: list[Layer], x: jax.Array, block: Block | None = (1, 1)) -> jax.Array:
            for layer, size in zip(layers, self.pool, strict=True):
                x = widened(convolve(x, layer["w"], self.padding, block)) + layer["b"]
                x = max_pool(activation(x), size) if self.activation == "gelu" else activation(max_pool(x, size))
            return x.reshape(x.shape[0], -1)

        def forward(params: Layers, x: jax.Array, key: jax.Array | None) -> jax.Array:
            x = x.reshape(x.shape[0], *inputs[:2], -1)
            together = BLOCK_BYTES // (widest * x.dtype.itemsize)
            few, whole = in_blocks(features, together), partial(features, block=None)
            x = lax.platform_dependent(
                params["conv"], x, cpu=lambda layers, x: few([_fewer_products(v) for v in layers], x), default=whole
            )
            x = dropout(x, self.dropout[0], key, 0)
            for number, layer in enumerate(params["fc"][:-1], start=1):
                x = dropout(activation(affine(layer, x)), self.dropout[1], key, number)
            return affine(params["fc"][-1], x)

        def apply(params: Layers, x: jax.Array) -> jax.Array:
            return forward(params, x, None)

        return Model(init, apply, train_apply=forward if any(self.dropout) else None)

    def _image(self, inputs: tuple[int, ...]) -> tuple[int, int, int]:
        if len(inputs) not in (2, 3):
            raise PolyfedError(
                f"{self.name} reads images, (height, width) or (height, width, channels); these examples have shape "
                f"{inputs}"
            )
        return inputs[0], inputs[1], inputs[2] if len(inputs) == 3 else 1


def in_blocks(function: Features, most: int) -> Features:
    """The same function, a block of rows at a time: the largest number up to `most` that divides the rows."""

    def blocked(layers: list[Layer], x: jax.Array) -> jax.Array:
        rows = x.shape[0]
        size = max((n for n in range(1, min(rows, most) + 1) if rows % n == 0), default=1)
        if size >= rows:
            return function(layers, x)
        outputs = lax.map(lambda block: function(layers, block), x.reshape(-1, size, *x.shape[1:]))
        return outputs.reshape(rows, *outputs.shape[2:])

    return blocked


def _fewer_products(layer: Layer) -> Layer:
    """The layer with its weights as `winograd` takes them, where that is worth it."""
    return layer | {"w": winograd.weights(layer["w"])} if winograd.suits(layer["w"]) else layer


def convolve(x: jax.Array, w: jax.Array, padding: str = "valid", block: Block | None = (1, 1)) -> jax.Array:
    """The cross-correlation of images (rows, height, width, in) with w (height, width, in, out), stride 1.

    `block`: the outputs that are computed together, (height, width); None: as an accelerator likes it. The result is
    the same, up to rounding, as it is with `winograd.weights(w)` in w's place.
    """
    ready = w.ndim == 3
    high, across = (3, 3) if ready else w.shape[:2]
    x = like_weights(x, w)
    if padding == "same":
        x = jnp.pad(x, ((0, 0), ((high - 1) // 2, high // 2), ((across - 1) // 2, across // 2), (0, 0)))
    return winograd.convolve(x, w) if ready else _by_blocks(x, w, block or best_block(x.shape, w.shape))


def best_block(images: tuple[int, ...], weights: tuple[int, ...]) -> Block:
    """The block of outputs, (height, width), whose windows, weights and products take least."""
    high, across, depth, out = weights
    height, width = images[1] - high + 1, images[2] - across + 1

    def cost(block: Block) -> float:
        window, outputs = (block[0] + high - 1) * (block[1] + across - 1) * depth, block[0] * block[1] * out
        blocks = images[0] * -(-height // block[0]) * -(-width // block[1])
        weight = 0 if block == (1, 1) else window * outputs
        return blocks * (2 * window * outputs + OPERATIONS_PER_NUMBER * window) + OPERATIONS_PER_NUMBER * weight

    sides = [[n for n in range(1, max(size, 2)) if (size - 1) % n == 0] for size in (high, across)]
    return min(((a, b) for a in sides[0] for b in sides[1]), key=cost)


@partial(jax.checkpoint, prevent_cse=False, static_argnums=2)
def _by_blocks(x: jax.Array, w: jax.Array, block: Block) -> jax.Array:
    """What every block of outputs reads, times a matrix that has w at the place of each output of the block.

    The images are cut into cells of the block's size, and a window is a few neighbouring cells, whole: the block's
    sides must divide the kernel's, less 1. A backward pass makes the windows again, which costs less than keeping them.
    """
    high, across, depth, out = w.shape
    rows, height, width = x.shape[0], x.shape[1] - high + 1, x.shape[2] - across + 1
    down, along = -(-height // block[0]), -(-width // block[1])
    more = ((high - 1) // block[0], (across - 1) // block[1])
    cells = (down + more[0], along + more[1])
    fill = [n * side - size for n, side, size in zip(cells, block, x.shape[1:3], strict=True)]
    if any(fill):
        x = jnp.pad(x, ((0, 0), (0, fill[0]), (0, fill[1]), (0, 0)))
    if block != (1, 1):
        x = x.reshape(rows, cells[0], block[0], cells[1], block[1], depth).transpose(0, 1, 3, 2, 4, 5)
        x = x.reshape(rows, *cells, -1)
    shifted = [x[:, i : i + down, j : j + along] for i in range(more[0] + 1) for j in range(more[1] + 1)]
    windows = jnp.concatenate(shifted, axis=-1).reshape(rows * down * along, -1)
    if block == (1, 1):  # outputs first, and kept so: the gradient's product is then 1.2 times as fast on a CPU
        matrix = lax.optimization_barrier(w.reshape(-1, out).T).T
    else:
        places = [_places(side, size, w.dtype) for side, size in zip(block, w.shape[:2], strict=True)]
        matrix = jnp.einsum("ijco,maip,nbjq->mnabcpqo", w, *places).reshape(windows.shape[1], -1)
    outputs = (windows @ matrix).reshape(rows, down, along, *block, out)
    outputs = outputs.transpose(0, 1, 3, 2, 4, 5).reshape(rows, down * block[0], along * block[1], out)
    return outputs[:, :height, :width]


def _places(side: int, size: int, dtype: DTypeLike) -> jax.Array:
    """(cell, place in the cell, place in the kernel, output of the block): 1 where these meet, else 0."""
    window, kernel, output = (jnp.arange(n) for n in (side + size - 1, size, side))
    meets = (window[:, None, None] == kernel[:, None] + output).astype(dtype)
    return meets.reshape(-1, side, size, side)


def max_pool(x: jax.Array, size: int) -> jax.Array:
    """The largest of each size x size square; what is left over at the lower and right edge is ignored."""
    if size == 1:
        return x
    rows, height, width, depth = x.shape[0], x.shape[1] // size, x.shape[2] // size, x.shape[3]
    x = x[:, : height * size, : width * size]
    return jnp.max(x.reshape(rows, height, size, width, size, depth), axis=(2, 4))


@own_names
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


@own_names
def femnist_cnn(dropout: float | Sequence[float] = (0.25, 0.5)) -> Convolutional:
    """Two 3x3 convolutions (32, 64), pooling, 128 hidden units: 1,206,590 parameters on 28 x 28 images, 62 classes.

    The EMNIST network of Reddi et al. 2021, which FLIX and Scafflix use.
    """
    return _cnn("femnist_cnn", (32, 64), 3, (1, 2), (128,), dropout)


@own_names
def cifar_cnn(hidden: Sequence[int] = (512,), dropout: float | Sequence[float] = 0.0) -> Convolutional:
    """Two 5x5 convolutions (20, 50), each with pooling, and 512 hidden units: 672,212 parameters on CIFAR-10.

    APFL's network for CIFAR-10: the paper counts its layers, the sizes are those of its authors' code.
    """
    return _cnn("cifar_cnn", (20, 50), 5, 2, hidden, dropout)


@own_names
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
