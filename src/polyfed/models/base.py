"""What a model is: how to draw its parameters and how to apply them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax

Params = Any


@dataclass(frozen=True)
class Model:
    """An (init, apply) pair: `init(key) -> params`, `apply(params, x) -> outputs` for a batch x of examples."""

    init: Callable[[jax.Array], Params]
    apply: Callable[[Params, jax.Array], jax.Array]
    design: Callable[[Any], Any] | None = None
    """For a model that is linear in its parameters: the examples as the rows that multiply them."""
    start: str = "random"
    """Where training starts unless the run says otherwise: "random" (init's draw) or "zeros"."""


class Architecture(Protocol):
    """A family of models that takes its input and output sizes from the data."""

    def build(self, inputs: tuple[int, ...], outputs: int | None) -> Model:
        """The model for examples of shape `inputs`; `outputs` None means one number per example."""
        ...
