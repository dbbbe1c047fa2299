"""What a model is: how to draw its parameters and how to apply them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol, runtime_checkable

import jax
import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.core.trees import Tree

Params = Tree


@dataclass(frozen=True)
class Model:
    """An (init, apply) pair: `init(key) -> params`, `apply(params, x) -> outputs` for a batch x of examples."""

    init: Callable[[jax.Array], Params]
    apply: Callable[[Params, jax.Array], jax.Array]
    design: Callable[[np.ndarray], np.ndarray] | None = None
    """For a model that is linear in its parameters: the examples as the rows that multiply them."""
    start: str = "random"
    """Where training starts unless the run says otherwise: "random" (init's draw) or "zeros"."""
    train_apply: Callable[[Params, jax.Array, jax.Array], jax.Array] | None = None
    """`train_apply(params, x, key)`, in place of `apply` in the steps of training: for dropout and the like."""
    tokens: int | None = None
    """For a model of token ids: how many ids there are. It reads whole numbers below that."""
    family: Architecture | None = field(default=None, compare=False)
    """What built it; None for a user's own."""


@runtime_checkable
class Architecture(Protocol):
    """A family of models, whose input and output sizes come from the data."""

    def build(self, inputs: tuple[int, ...], outputs: int | None) -> Model:
        """The model for examples of shape `inputs`; `outputs` None means one number per example."""
        ...


@runtime_checkable
class SequenceArchitecture(Architecture, Protocol):
    """A family of models that can also give an output for every position of a sequence."""

    def every_position(self) -> Architecture: ...


def own_model(parts: tuple[Callable[..., Params], ...]) -> Model:
    """A user's (init, apply) or (init, apply, train_apply)."""
    if len(parts) not in (2, 3) or not all(callable(part) for part in parts[:2]):
        raise PolyfedError("a model of your own is (init, apply) or (init, apply, train_apply), all functions")
    return Model(parts[0], parts[1], train_apply=parts[2] if len(parts) == 3 else None)


def built(architecture: Architecture, inputs: tuple[int, ...], outputs: int | None) -> Model:
    """The model of a family for these sizes; for the same ones the same model, so that its programs are shared."""
    try:
        return _built(architecture, inputs, outputs)
    except TypeError:  # a family of the user's that cannot be compared
        return _build(architecture, inputs, outputs)


def _build(architecture: Architecture, inputs: tuple[int, ...], outputs: int | None) -> Model:
    return replace(architecture.build(inputs, outputs), family=architecture)


_built = lru_cache(maxsize=64)(_build)
