"""Equinox modules as models; Equinox is imported only when one is used."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import jax

from polyfed.core.errors import PolyfedError
from polyfed.models.base import Model


def equinox(make: Callable[[jax.Array], Any] | Any) -> Model:
    """A model from `make(key) -> module`, or from a module itself, whose numbers are then where training starts.

    The module is called on one example, `module(x)`; the batch is mapped over. If its call takes a `key` it gets one in
    training, and none in evaluation, where its dropout layers are put into inference mode. The parameters are the
    module with its real arrays; all else (activations, sizes, whole numbers) is fixed.
    """
    eqx = _equinox()
    given = isinstance(make, eqx.Module)
    if not given and not callable(make):
        raise PolyfedError(f"equinox: expected a module or a function of a key that makes one, found {make!r}")
    shapes = make if given else eqx.filter_eval_shape(make, jax.random.key(0))
    if not isinstance(shapes, eqx.Module):
        raise PolyfedError(f"equinox: the function must return an Equinox module, found {type(shapes).__name__}")
    _refuse_state(eqx, shapes)

    def init(key: jax.Array) -> Any:
        return eqx.filter(make if given else make(key), eqx.is_inexact_array)

    fixed = eqx.filter(make if given else make(jax.random.key(0)), eqx.is_inexact_array, inverse=True)
    takes_key = "key" in inspect.signature(type(shapes).__call__).parameters

    def apply(params: Any, x: jax.Array) -> jax.Array:
        module = eqx.nn.inference_mode(eqx.combine(params, fixed))
        return jax.vmap(lambda row: module(row))(x)

    def train_apply(params: Any, x: jax.Array, key: jax.Array) -> jax.Array:
        module = eqx.combine(params, fixed)
        return jax.vmap(lambda row, k: module(row, key=k))(x, jax.random.split(key, x.shape[0]))

    return Model(init, apply, train_apply=train_apply if takes_key else None)


def is_module(value: Any) -> bool:
    """Whether this is an Equinox module; false where Equinox was never imported."""
    loaded = sys.modules.get("equinox")
    return loaded is not None and isinstance(value, loaded.Module)


def _equinox() -> Any:
    try:
        import equinox as eqx  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise PolyfedError("Equinox is not installed; pip install 'polyfed[equinox]'") from None
    return eqx


def _refuse_state(eqx: Any, module: Any) -> None:
    """Layers that change as they are called (batch normalisation's running means) have no place in a pure model."""
    leaves = jax.tree.leaves(module, is_leaf=lambda node: isinstance(node, eqx.nn.StateIndex))
    if any(isinstance(leaf, eqx.nn.StateIndex) for leaf in leaves):
        raise PolyfedError(
            "equinox: modules with state, such as BatchNorm, are not supported; GroupNorm and LayerNorm are"
        )
