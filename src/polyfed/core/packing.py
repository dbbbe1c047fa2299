"""Whole numbers of any width as bytes: what a compressed upload travels as."""

from __future__ import annotations

from typing import Any

import numpy as np


def pack(wholes: Any, width: int) -> np.ndarray:
    """Whole numbers of `width` bits each as bytes, one after another."""
    given = np.asarray(wholes).astype(np.uint64)
    bits = (given[:, None] >> np.arange(width, dtype=np.uint64)) & np.uint64(1)
    return np.packbits(bits.astype(np.uint8))


def unpack(packed: np.ndarray, count: int, width: int) -> np.ndarray:
    """The `count` whole numbers that `pack` packed."""
    bits = np.unpackbits(packed, count=count * width).reshape(count, width).astype(np.uint64)
    return (bits << np.arange(width, dtype=np.uint64)).sum(axis=1).astype(np.uint32)


def float_words(dtype: Any) -> tuple[Any, int, int]:
    """The whole numbers as wide as a real one, the bits of its sign and exponent, and those of its mantissa."""
    return (np.uint64, 12, 52) if np.dtype(dtype) == np.float64 else (np.uint32, 9, 23)
