"""Linear models and multi-layer perceptrons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.errors import PolyfedError, suggestion
from polyfed.models.base import Model

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {"relu": jax.nn.relu, "tanh": jnp.tanh, "gelu": jax.nn.gelu}

Layer = dict[str, jax.Array]


@dataclass(frozen=True)
class Linear:
    """x -> x.w (+ b); the parameters are {"w": ...} or {"w": ..., "b": ...}."""

    bias: bool

    def build(self, inputs: tuple[int, ...], outputs: int | None) -> Model:
        def init(key: jax.Array) -> Layer:
            return _layer(key, prod(inputs), outputs, self.bias)

        def apply(params: Layer, x: jax.Array) -> jax.Array:
            return _affine(params, x.reshape(x.shape[0], -1))

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

    def build(self, inputs: tuple[int, ...], outputs: int | None) -> Model:
        activation = ACTIVATIONS[self.activation]
        rows, columns = (prod(inputs), *self.hidden), (*self.hidden, outputs)

        def init(key: jax.Array) -> list[Layer]:
            keys = jax.random.split(key, len(rows))
            return [_layer(k, m, n, self.bias) for k, m, n in zip(keys, rows, columns, strict=True)]

        def apply(params: Any, x: jax.Array) -> jax.Array:
            x = x.reshape(x.shape[0], -1)
            for layer in params[:-1]:
                x = activation(_affine(layer, x))
            return _affine(params[-1], x)

        return Model(init, apply)


def _layer(key: jax.Array, rows: int, columns: int | None, bias: bool) -> Layer:
    """He initialisation: normal with variance 2 / rows; zero bias."""
    shape = (rows,) if columns is None else (rows, columns)
    layer = {"w": jax.random.normal(key, shape, jnp.result_type(float)) * (2.0 / rows) ** 0.5}
    if bias:
        layer["b"] = jnp.zeros(shape[1:], layer["w"].dtype)
    return layer


def _affine(layer: Layer, x: jax.Array) -> jax.Array:
    z = x @ layer["w"]
    return z + layer["b"] if "b" in layer else z


def linear(bias: bool = True) -> Linear:
    """A linear model; `bias=False` is the papers' form of the convex problems."""
    _check_bias(bias)
    return Linear(bias)


def mlp(hidden: Sequence[int] = (200, 200), activation: str = "relu", bias: bool = True) -> Perceptron:
    """A multi-layer perceptron."""
    if activation not in ACTIVATIONS:
        raise PolyfedError(f"unknown activation '{activation}'{suggestion(activation, ACTIVATIONS)}")
    _check_bias(bias)
    listed = isinstance(hidden, Sequence) and not isinstance(hidden, str)
    if not listed or not hidden or any(type(width) is not int or width < 1 for width in hidden):
        raise PolyfedError(f"mlp: hidden must be a list of positive whole numbers, found {hidden!r}")
    return Perceptron(tuple(hidden), activation, bias)


def _check_bias(bias: object) -> None:
    if not isinstance(bias, bool):
        raise PolyfedError(f"bias must be true or false, found {bias!r}")
