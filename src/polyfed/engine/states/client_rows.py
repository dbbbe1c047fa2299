"""Client states outside the devices: in memory or in a file, a row for each client that was ever stored."""

from __future__ import annotations

import mmap
import os
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from pathlib import Path

import jax
import numpy as np

from polyfed.algorithms.contract import State
from polyfed.core import aligned as memory
from polyfed.core.errors import PolyfedError

MAPPED = 256 << 20
"""The bytes of a file that may be touched before its pages are handed back to the system."""
FIRST = 1024
"""The clients that there is room for in memory at the start."""


class ClientRows:
    """The states of a population of clients, of which those that were never stored are at `start` and take no room.

    Rows are given out in the order in which clients are first stored. With a `folder` they lie in a file there, which
    has no name: the system frees it with the process, however that ends. That file is as long as if everybody had a
    row, but the system gives room on the disk only to what was written; in memory there is room for twice the clients
    that were stored, at most.
    """

    def __init__(self, population: int, start: State, folder: Path | None = None) -> None:
        leaves, self._structure = jax.tree.flatten(start)
        self._start = [np.asarray(leaf) for leaf in leaves]
        self._place = np.zeros(population, np.int32)  # counted from 1; 0: has no row
        self._clients = np.empty(population, np.int32)
        self._count = self._touched = 0
        self._maps: list[mmap.mmap] = []
        room = population if folder is not None else min(population, FIRST)
        self._rows = [self._allocated((room, *leaf.shape), leaf.dtype, folder) for leaf in self._start]
        self._reader = ThreadPoolExecutor(1, "polyfed-states")
        self._ahead: tuple[bytes, Future[list[np.ndarray]]] | None = None
        self._put_since: list[np.ndarray] = []

    @property
    def stored(self) -> np.ndarray:
        """The clients that have a row, in the order of the rows."""
        return self._clients[: self._count]

    @property
    def row_bytes(self) -> int:
        return sum(leaf.nbytes for leaf in self._start)

    def known(self, clients: np.ndarray) -> np.ndarray:
        """Whether each of these clients has a row."""
        return self._place[clients] > 0

    def begin(self, clients: np.ndarray) -> None:
        """Read these clients' states in a thread: they will be asked for next."""
        self._put_since = []
        self._ahead = clients.tobytes(), self._reader.submit(self._read, clients)

    def take(self, clients: np.ndarray) -> State:
        """A copy of these clients' states, a leading client axis on each array."""
        if self._ahead is None or self._ahead[0] != clients.tobytes():
            return jax.tree.unflatten(self._structure, self._read(clients))
        rows, self._ahead = self._ahead[1].result(), None
        again = np.flatnonzero(np.isin(clients, np.concatenate([clients[:0], *self._put_since])))
        if len(again):  # who was stored since then is not what was read
            for whole, part in zip(rows, self._read(clients[again]), strict=True):
                whole[again] = part
        return jax.tree.unflatten(self._structure, rows)

    def put(self, clients: np.ndarray, states: State) -> None:
        """Store the states of these clients, no one twice."""
        new = clients[self._place[clients] == 0]
        self._place[new] = self._count + 1 + np.arange(len(new))
        self._clients[self._count : self._count + len(new)] = new
        self._count += len(new)
        self._rows = [_with_room(rows, self._count, len(self._place)) for rows in self._rows]
        places = self._place[clients] - 1
        for rows, leaf in zip(self._rows, jax.tree.leaves(states), strict=True):
            rows[places] = leaf
        if self._ahead is not None:
            self._put_since.append(clients)
        self._touch(len(clients))

    def clear(self) -> None:
        """Put everybody back to the start."""
        self._place[self.stored] = 0
        self._count, self._ahead = 0, None

    def _read(self, clients: np.ndarray) -> list[np.ndarray]:
        places = self._place[clients] - 1
        parts = []
        for rows, start in zip(self._rows, self._start, strict=True):
            taken = memory.take(rows, np.maximum(places, 0))
            taken[places < 0] = start
            parts.append(taken)
        self._touch(len(clients))
        return parts

    def _allocated(self, shape: tuple[int, ...], dtype: np.dtype, folder: Path | None) -> np.ndarray:
        size = prod(shape) * dtype.itemsize
        if folder is None or not size:
            return np.zeros(shape, dtype)
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


def _with_room(rows: np.ndarray, count: int, population: int) -> np.ndarray:
    """The rows, or a longer copy of them where so many do not fit."""
    if count <= len(rows):
        return rows
    longer = np.zeros((min(population, 2 * count), *rows.shape[1:]), rows.dtype)
    longer[: len(rows)] = rows
    return longer
