"""Splits: the rows of one part of all clients, and how a client's rows are shared out over the parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.seeds import stream

PARTS = ("train", "validation", "test")

Pair = tuple[np.ndarray, np.ndarray]
"""(x, y) of some rows."""


class HeldOut(TypedDict):
    """The shares of a client's rows that are held out, and the seed that draws them."""

    validation: float
    test: float
    seed: int


class ReadOptions(HeldOut):
    """What a reader of rows can be told: also how many classes there are (None: as many as the labels show)."""

    classes: int | None


@dataclass(frozen=True, eq=False)
class Split:
    """The rows of one part of all clients, one client after another: client i owns rows offsets[i]:offsets[i+1]."""

    x: np.ndarray  # (rows, *features)
    y: np.ndarray  # (rows,) or (rows, k)
    offsets: np.ndarray  # (clients + 1,), int64

    def __post_init__(self) -> None:
        offsets = self.offsets
        if offsets.ndim != 1 or offsets.dtype != np.int64 or len(offsets) < 1 or offsets[0] != 0:
            raise PolyfedError("offsets must be a one-dimensional int64 array that starts with 0")
        if (np.diff(offsets) < 0).any() or not offsets[-1] == len(self.x) == len(self.y):
            raise PolyfedError(
                f"offsets must grow to the number of rows, found a last offset of {offsets[-1]} "
                f"for {len(self.x)} rows of x and {len(self.y)} of y"
            )

    @property
    def sizes(self) -> np.ndarray:
        """Rows per client."""
        return np.diff(self.offsets)

    @property
    def rows(self) -> int:
        """The rows of all clients together."""
        return len(self.y)

    def of(self, client: int) -> Pair:
        """(x, y) of one client, as views."""
        rows = slice(self.offsets[client], self.offsets[client + 1])
        return self.x[rows], self.y[rows]

    def select(self, clients: Sequence[int] | np.ndarray) -> Split:
        """The rows of these clients, in this order."""
        rows = [np.arange(self.offsets[i], self.offsets[i + 1]) for i in clients]
        flat = joined(rows)
        return Split(self.x[flat], self.y[flat], offsets_of([len(own) for own in rows]))


def split_sizes(rows: int | np.ndarray, validation: float, test: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(train, validation, test) rows of a client, or of each of an array of them.

    Test is max(1, round(share * rows)) where a share is asked for.
    """
    rows = np.asarray(rows, np.int64)
    held_test = np.maximum(1, _round(test * rows)) if test > 0 else 0 * rows
    held_validation = _round(validation * rows)
    return rows - held_validation - held_test, held_validation, held_test


def split_rows(
    names: Sequence[str], sizes: Sequence[int] | np.ndarray, *, validation: float, test: float, seed: int
) -> dict[str, Pair]:
    """For each part (indices into the flat rows, offsets per client), for clients that lie one after another.

    The permutation of a client is seeded by (seed, its name), so neither the order of the clients nor the presence
    of others changes anybody's split. Within a part the rows keep their order.
    """
    starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    check_split(names, sizes, validation=validation, test=test)
    picked: dict[str, list[np.ndarray]] = {part: [] for part in PARTS}
    for name, start, size in zip(names, starts, sizes, strict=False):
        for part, rows in client_rows(name, int(size), validation=validation, test=test, seed=seed).items():
            picked[part].append(start + rows)
    return {part: (joined(rows), offsets_of([len(own) for own in rows])) for part, rows in picked.items()}


def check_split(
    names: Sequence[str], sizes: Sequence[int] | np.ndarray, *, validation: float, test: float
) -> dict[str, np.ndarray]:
    """How many rows each client has in each part; every client must keep a training row."""
    counts: dict[str, np.ndarray] = dict(
        zip(PARTS, split_sizes(np.asarray(sizes, np.int64), validation, test), strict=True)
    )
    for client in np.flatnonzero(counts["train"] < 1)[:1]:
        size = int(sizes[client])
        raise PolyfedError(
            f"client {names[client]!r} has {size} row{'s' if size != 1 else ''}, which leaves no training row after "
            f"{counts['validation'][client]} for validation and {counts['test'][client]} for test"
        )
    return counts


def client_rows(name: str, size: int, *, validation: float, test: float, seed: int) -> dict[str, np.ndarray]:
    """For each part, which of one client's rows are in it."""
    train, held, _ = map(int, split_sizes(size, validation, test))
    order = np.arange(size) if validation == test == 0 else stream(seed, "split", name).permutation(size)
    return {part: np.sort(rows) for part, rows in zip(PARTS, np.split(order, [train, train + held]), strict=True)}


def offsets_of(sizes: Sequence[int]) -> np.ndarray:
    """[0, n_0, n_0 + n_1, ...] as int64."""
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))]).astype(np.int64)


def joined(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Row indices of several clients, one client after another."""
    return np.concatenate([np.zeros(0, np.int64), *rows])


def _round(values: np.ndarray) -> np.ndarray:
    return np.floor(values + 0.5).astype(np.int64)
