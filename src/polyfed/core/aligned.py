"""Aligned memory: an array that begins at a multiple of 64 bytes is used by CPU devices as it is, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np

ALIGNMENT = 64


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An uninitialised aligned array."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    buffer = np.empty(size + ALIGNMENT, np.uint8)
    skip = -buffer.ctypes.data % ALIGNMENT
    return buffer[skip : skip + size].view(dtype).reshape(shape)


def aligned(array: np.ndarray, dtype: Any = None) -> np.ndarray:
    """The array itself if it is aligned and of this type, else an aligned copy."""
    dtype = np.dtype(dtype or array.dtype)
    if array.dtype == dtype and array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0:
        return array
    copy = empty(array.shape, dtype)
    copy[...] = array
    return copy


def take(array: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
    """Some rows of an array, aligned."""
    if isinstance(rows, slice):
        return aligned(array[rows])
    chosen = empty((len(rows), *array.shape[1:]), array.dtype)
    return np.take(array, rows, axis=0, out=chosen, mode="clip") if len(rows) else chosen
