"""Whole numbers of any width as bytes, the form in which a compressed upload travels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


def pack(wholes: ArrayLike, width: int) -> NDArray[np.uint8]:
    """Whole numbers of `width` bits each as bytes, one after another."""
    numbers = np.asarray(wholes).astype(np.uint64)
    bits = (numbers[:, None] >> np.arange(width, dtype=np.uint64)) & np.uint64(1)
    return np.packbits(bits.astype(np.uint8))


def unpack(packed: NDArray[np.uint8], count: int, width: int) -> NDArray[np.uint32]:
    """The `count` whole numbers that `pack` packed."""
    bits = np.unpackbits(packed, count=count * width).reshape(count, width).astype(np.uint64)
    return (bits << np.arange(width, dtype=np.uint64)).sum(axis=1).astype(np.uint32)


class FloatFormat(NamedTuple):
    """How a real number is stored."""

    word: type[np.uint32 | np.uint64]
    """the whole numbers as wide as it"""
    head: int
    """the bits of its sign and exponent"""
    mantissa: int
    """the bits of its mantissa"""


def float_format(dtype: DTypeLike) -> FloatFormat:
    """The format of float64 or float32 numbers."""
    return FloatFormat(np.uint64, 12, 52) if np.dtype(dtype) == np.float64 else FloatFormat(np.uint32, 9, 23)
