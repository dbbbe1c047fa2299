"""The numbers that describe a compressor: plain, traced, or one per client."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from polyfed.core.errors import PolyfedError

Whole = int | jax.Array | np.ndarray
"""A whole number, or an array with one per client."""
Real = float | jax.Array | np.ndarray


def check_size(owner: str, size: int) -> None:
    if size < 1:
        raise PolyfedError(f"{owner}: there is nothing to compress in a vector of {size} numbers")


def check_whole(owner: str, name: str, value: object, low: int, high: int | None) -> None:
    """The field must be a whole number, or an array of them, from low to high. A traced one cannot be looked at."""
    if isinstance(value, Tracer):
        return
    if isinstance(value, np.ndarray | np.integer | jax.Array):
        whole = np.issubdtype(value.dtype, np.integer)
    else:
        whole = isinstance(value, int) and not isinstance(value, bool)
    numbers = np.asarray(value) if whole else None
    if numbers is None or np.any(numbers < low) or (high is not None and np.any(numbers > high)):
        wanted = f"at least {low}" if high is None else f"from {low} to {high}"
        raise PolyfedError(f"{owner}: {name} must be a whole number {wanted}, found {value!r}")


def index_bits(size: int) -> int:
    """ceil(log2(size)): what it takes to name one of `size` coordinates."""
    return (size - 1).bit_length()


def wide(value: Whole) -> Whole:
    """The number in a type wide enough for a product that counts bits: up to 2^32 where it is traced."""
    if isinstance(value, int):
        return value
    return value.astype(jnp.uint32) if isinstance(value, jax.Array) else np.asarray(value, np.int64)


def real(value: Whole) -> Real:
    """The number as a real one, in the precision of the run where it is traced."""
    return value.astype(jnp.result_type(float)) if isinstance(value, jax.Array) else value
