"""Per-client split into train, validation and test rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.seeds import stream

PARTS = ("train", "validation", "test")


def split_sizes(rows: Any, validation: float, test: float) -> tuple[Any, Any, Any]:
    """(train, validation, test) rows of a client, or of each of an array of them.

    Test is max(1, round(share * rows)) where a share is asked for.
    """
    held_test = np.maximum(1, _round(test * rows)) if test > 0 else 0 * rows
    held_validation = _round(validation * rows)
    return rows - held_validation - held_test, held_validation, held_test


def split_rows(
    names: Sequence[str], sizes: Sequence[int] | np.ndarray, *, validation: float, test: float, seed: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
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
    return {part: (_flat(rows), offsets_of([len(r) for r in rows])) for part, rows in picked.items()}


def check_split(
    names: Sequence[str], sizes: Sequence[int] | np.ndarray, *, validation: float, test: float
) -> dict[str, np.ndarray]:
    """The rows of each client in each part; every client must keep a training row."""
    found: dict[str, np.ndarray] = dict(
        zip(PARTS, split_sizes(np.asarray(sizes, np.int64), validation, test), strict=True)
    )
    for client in np.flatnonzero(found["train"] < 1)[:1]:
        size = int(sizes[client])
        raise PolyfedError(
            f"client {names[client]!r} has {size} row{'s' if size != 1 else ''}, which leaves no training row after "
            f"{found['validation'][client]} for validation and {found['test'][client]} for test"
        )
    return found


def client_rows(name: str, size: int, *, validation: float, test: float, seed: int) -> dict[str, np.ndarray]:
    """For each part, which of one client's rows are in it."""
    train, held, _ = split_sizes(size, validation, test)
    order = np.arange(size) if validation == test == 0 else stream(seed, "split", name).permutation(size)
    return {part: np.sort(rows) for part, rows in zip(PARTS, np.split(order, [train, train + held]), strict=True)}


def offsets_of(sizes: Sequence[int]) -> np.ndarray:
    """[0, n_0, n_0 + n_1, ...] as int64."""
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))]).astype(np.int64)


def _flat(rows: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *rows])


def _round(values: Any) -> Any:
    return np.floor(values + 0.5).astype(np.int64)
