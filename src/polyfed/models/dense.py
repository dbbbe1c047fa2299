"""Linear models and multi-layer perceptrons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from polyfed.core import randomness
from polyfed.core.checks import flag
from polyfed.core.errors import PolyfedError, own_names, suggestion
from polyfed.core.precision import like_weights, widened
from polyfed.models import checks
from polyfed.models.base import Model

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {"relu": jax.nn.relu, "tanh": jnp.tanh, "gelu": jax.nn.gelu}

Layer = dict[str, jax.Array]
NARROW = 16
"""Layers with at most so many outputs are multiplied outputs first on a CPU."""
FEW_ROWS = 64
"""So many rows are then turned before the product; of more, its outputs are turned after it."""


@dataclass(frozen=True)
class Linear:
    """x -> x.w (+ b); the parameters are {"w": ...} or {"w": ..., "b": ...}."""

    bias: bool

    def build(self, inputs: tuple[int, ...], outputs: int | None) -> Model:
        def init(key: jax.Array) -> Layer:
            return he_layer(key, _shape(prod(inputs), outputs), self.bias)

        def apply(params: Layer, x: jax.Array) -> jax.Array:
            return affine(params, x.reshape(x.shape[0], -1))

        def design(x: np.ndarray) -> np.ndarray:
            rows = x.reshape(len(x), -1).astype(np.float64) / (255 if x.dtype == np.uint8 else 1)
            return np.hstack([rows, np.ones((len(rows), 1))]) if self.bias else rows

        return Model(init, apply, design, start="zeros")


@dataclass(frozen=True)
class Perceptron:
    """Fully connected layers; the parameters are a list of {"w": ..., "b": ...}."""

    hidden: tuple[int, ...]
    activation: str
    bias: bool
    dropout: float = 0.0

    def build(self, inputs: tuple[int, ...], outputs: int | None) -> Model:
        activation = ACTIVATIONS[self.activation]
        rows, columns = (prod(inputs), *self.hidden), (*self.hidden, outputs)

        def init(key: jax.Array) -> list[Layer]:
            keys = jax.random.split(key, len(rows))
            return [he_layer(k, _shape(m, n), self.bias) for k, m, n in zip(keys, rows, columns, strict=True)]

        def forward(params: list[Layer], x: jax.Array, key: jax.Array | None) -> jax.Array:
            x = x.reshape(x.shape[0], -1)
            for number, layer in enumerate(params[:-1]):
                x = dropout(activation(affine(layer, x)), self.dropout, key, number)
            return affine(params[-1], x)

        def apply(params: list[Layer], x: jax.Array) -> jax.Array:
            return forward(params, x, None)

        return Model(init, apply, train_apply=forward if self.dropout else None)


def he_layer(key: jax.Array, shape: tuple[int, ...], bias: bool = True) -> Layer:
    """He initialisation: normal with variance 2 / inputs, for weights (..., out) or (inputs,); zero bias."""
    inputs = prod(shape[:-1] or shape)
    layer = {"w": jax.random.normal(key, shape, jnp.result_type(float)) * (2.0 / inputs) ** 0.5}
    if bias:
        layer["b"] = jnp.zeros(shape[-1:] if len(shape) > 1 else (), layer["w"].dtype)
    return layer


def _shape(rows: int, columns: int | None) -> tuple[int, ...]:
    return (rows,) if columns is None else (rows, columns)


def affine(layer: Layer, x: jax.Array) -> jax.Array:
    z = widened(product(x, layer["w"]))
    return z + layer["b"] if "b" in layer else z


def product(x: jax.Array, w: jax.Array) -> jax.Array:
    """x @ w; on a CPU, a narrow w is taken outputs first.

    Small products run along the last axis, and ten numbers do not fill a vector unit. With the outputs first, the rows
    or the inputs stand last, forward and backward: 1.2 to 4 times as fast for 16 to 2 outputs. The barriers keep the
    compiler from turning the axes back.
    """
    x = like_weights(x, w)
    if x.ndim != 2 or w.ndim != 2 or w.shape[1] > NARROW:
        return x @ w
    return lax.platform_dependent(x, w, cpu=_outputs_first, default=jnp.matmul)


def _outputs_first(x: jax.Array, w: jax.Array) -> jax.Array:
    outputs_first = lax.optimization_barrier(w.T)
    if len(x) > FEW_ROWS:
        return lax.optimization_barrier((x @ outputs_first.T).T).T
    inputs_last: lax.DotDimensionNumbers = (((1,), (1,)), ((), ()))
    return lax.optimization_barrier(lax.dot_general(outputs_first, x, inputs_last)).T


def dropout(x: jax.Array, rate: float, key: jax.Array | None, layer: int) -> jax.Array:
    """Each number is 0 with probability `rate`, else divided by 1 - rate; without a key, x as it is."""
    if rate == 0 or key is None:
        return x
    kept = ~randomness.coins(jax.random.fold_in(key, layer), x.shape, rate)
    return jnp.where(kept, x / (1 - rate), 0)


@own_names
def linear(bias: bool = True) -> Linear:
    """A linear model; `bias=False` is the papers' form of the convex problems."""
    return Linear(flag("bias", bias))


@own_names
def mlp(
    hidden: Sequence[int] = (200, 200), activation: str = "relu", bias: bool = True, dropout: float = 0.0
) -> Perceptron:
    """A multi-layer perceptron; `dropout` is the share of each hidden layer that a training step leaves out."""
    check_activation(activation)
    flag("bias", bias)
    return Perceptron(
        checks.widths("mlp: hidden", hidden), activation, bias, checks.rates("mlp: dropout", dropout, 1)[0]
    )


def check_activation(activation: str) -> str:
    if activation not in ACTIVATIONS:
        raise PolyfedError(f"unknown activation '{activation}'{suggestion(activation, ACTIVATIONS)}")
    return activation
