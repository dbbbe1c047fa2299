"""Hyper-parameters that may have one value for each client, and those that `resolve` fills in."""

from __future__ import annotations

from typing import TypeVar

import jax
import numpy as np

Value = TypeVar("Value")


def is_vector(value: object) -> bool:
    """Whether a hyper-parameter has one value for each client."""
    return isinstance(value, list) or (isinstance(value, np.ndarray | jax.Array) and value.ndim == 1)


def resolved(value: Value | None) -> Value:
    """A hyper-parameter that may be left to the theory, once the method is resolved."""
    assert value is not None, "resolve fills it in"
    return value
