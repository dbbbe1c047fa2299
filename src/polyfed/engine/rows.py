"""Client states outside the devices: in memory or in a file, a row for each client that was ever stored."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import jax
import numpy as np

from polyfed import memory
from polyfed.algorithms.base import State
from polyfed.errors import PolyfedError

MAPPED = 256 << 20
"""The bytes of a file that may be touched before its pages are handed back to the system."""


class ClientRows:
    """The states of a population of clients, of which those that were never stored are at `start` and take no room.

    Rows are given out in the order in which clients are first stored. With a `folder` they lie in a file there, which
    has no name: the system frees it with the process, however that ends.
    """

    def __init__(self, population: int, start: State, folder: Path | None = None) -> None:
        leaves, self._structure = jax.tree.flatten(start)
        self._start = [np.asarray(leaf) for leaf in leaves]
        self._place = np.full(population, -1, np.int32)
        self._clients = np.empty(population, np.int32)
        self._count = self._touched = 0
        self._maps: list[mmap.mmap] = []
        self._rows = [self._allocated((population, *leaf.shape), leaf.dtype, folder) for leaf in self._start]

    @property
    def stored(self) -> np.ndarray:
        """The clients that have a row, in the order of the rows."""
        return self._clients[: self._count]

    @property
    def row_bytes(self) -> int:
        return sum(leaf.nbytes for leaf in self._start)

    def known(self, clients: np.ndarray) -> np.ndarray:
        """Whether each of these clients has a row."""
        return self._place[clients] >= 0

    def take(self, clients: np.ndarray) -> State:
        """A copy of these clients' states, a leading client axis on each array."""
        places = self._place[clients]
        found = []
        for rows, start in zip(self._rows, self._start, strict=True):
            taken = memory.take(rows, np.maximum(places, 0))
            taken[places < 0] = start
            found.append(taken)
        self._touch(len(clients))
        return jax.tree.unflatten(self._structure, found)

    def put(self, clients: np.ndarray, states: State) -> None:
        """Store the states of these clients, no one twice."""
        new = clients[self._place[clients] < 0]
        self._place[new] = self._count + np.arange(len(new))
        self._clients[self._count : self._count + len(new)] = new
        self._count += len(new)
        places = self._place[clients]
        for rows, leaf in zip(self._rows, jax.tree.leaves(states), strict=True):
            rows[places] = leaf
        self._touch(len(clients))

    def clear(self) -> None:
        """Put everybody back to the start."""
        self._place[:] = -1
        self._count = 0

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """The stored clients, so many at a time."""
        for first in range(0, self._count, size):
            yield self.stored[first : first + size]

    def _allocated(self, shape: tuple[int, ...], dtype: Any, folder: Path | None) -> np.ndarray:
        size = prod(shape) * dtype.itemsize
        if folder is None or not size:
            return np.zeros(shape, dtype)  # the system gives its pages when they are first written
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:
                os.truncate(file.fileno(), size)
                mapped = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise PolyfedError(f"{folder}: clients' states cannot be kept here: {error}") from None
        self._maps.append(mapped)
        return np.frombuffer(mapped, dtype).reshape(shape)

    def _touch(self, clients: int) -> None:
        """Hand pages of the files back now and then; what was written stays in the file."""
        self._touched += clients * self.row_bytes
        if self._touched > MAPPED and hasattr(mmap, "MADV_DONTNEED"):
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)
            self._touched = 0
