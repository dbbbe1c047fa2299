"""Equinox modules as models; Equinox is imported only when one is used."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeGuard

import jax

from polyfed.core.errors import PolyfedError
from polyfed.core.extras import extra_package
from polyfed.core.trees import Tree
from polyfed.models.base import Model

if TYPE_CHECKING:
    from equinox import Module


def equinox(make: Callable[[jax.Array], Module] | Module) -> Model:
    """A model from `make(key) -> module`, or from a module itself, whose numbers are then where training starts.

    The module is called on one example, `module(x)`; the batch is mapped over. If its call takes a `key`, it gets one
    in training and none in evaluation, where its dropout layers are put into inference mode. The parameters are the
    module's real arrays; all else (activations, sizes, whole numbers) is fixed.
    """
    extra_package("equinox", "equinox", "pf.models.equinox")
    import equinox as eqx

    if isinstance(make, eqx.Module):
        given, draw = make, lambda key: make
    elif callable(make):
        given, draw = None, make
    else:
        raise PolyfedError(f"equinox: expected a module or a function of a key that makes one, found {make!r}")
    shapes = eqx.filter_eval_shape(draw, jax.random.key(0)) if given is None else given
    if not isinstance(shapes, eqx.Module):
        raise PolyfedError(f"equinox: the function must return an Equinox module, found {type(shapes).__name__}")
    _refuse_state(shapes)

    def init(key: jax.Array) -> Tree:
        return eqx.filter(draw(key), eqx.is_inexact_array)

    fixed = eqx.filter(draw(jax.random.key(0)), eqx.is_inexact_array, inverse=True)
    takes_key = "key" in inspect.signature(type(shapes).__call__).parameters

    def apply(params: Tree, x: jax.Array) -> jax.Array:
        module = eqx.nn.inference_mode(eqx.combine(params, fixed))
        return jax.vmap(lambda row: module(row))(x)

    def train_apply(params: Tree, x: jax.Array, key: jax.Array) -> jax.Array:
        module = eqx.combine(params, fixed)
        return jax.vmap(lambda row, k: module(row, key=k))(x, jax.random.split(key, x.shape[0]))

    return Model(init, apply, train_apply=train_apply if takes_key else None)


def is_module(value: object) -> TypeGuard[Module]:
    """Whether this is an Equinox module; false where Equinox was never imported."""
    loaded = sys.modules.get("equinox")
    return loaded is not None and isinstance(value, loaded.Module)


def _refuse_state(module: Module) -> None:
    """Layers that change as they are called (batch normalisation's running means) have no place in a pure model."""
    from equinox.nn import StateIndex

    leaves = jax.tree.leaves(module, is_leaf=lambda node: isinstance(node, StateIndex))
    if any(isinstance(leaf, StateIndex) for leaf in leaves):
        raise PolyfedError(
            "equinox: modules with state, such as BatchNorm, are not supported; GroupNorm and LayerNorm are"
        )
