"""Aligned memory: CPU devices use an array that begins at a multiple of 64 bytes without copying it."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

ALIGNMENT = 64


def empty(shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """An uninitialised aligned array."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    buffer = np.empty(size + ALIGNMENT, np.uint8)
    skip = -buffer.ctypes.data % ALIGNMENT
    return buffer[skip : skip + size].view(kind).reshape(shape)


def aligned(array: np.ndarray, dtype: DTypeLike | None = None) -> np.ndarray:
    """The array itself if it is aligned and of this type, else an aligned copy."""
    kind = np.dtype(dtype or array.dtype)
    if array.dtype == kind and array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0:
        return array
    copy = empty(array.shape, kind)
    copy[...] = array
    return copy


def take(array: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
    """Some rows of an array, aligned."""
    if isinstance(rows, slice):
        return aligned(array[rows])
    chosen = empty((len(rows), *array.shape[1:]), array.dtype)
    return np.take(array, rows, axis=0, out=chosen, mode="clip") if len(rows) else chosen
