"""Per-client split into train, validation and test rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyfed.data.seeds import stream
from polyfed.errors import PolyfedError

PARTS = ("train", "validation", "test")


def split_sizes(rows: int, validation: float, test: float) -> tuple[int, int, int]:
    """(train, validation, test) rows: test is max(1, round(share * rows)) where a share is asked for."""
    held_test = max(1, _round(test * rows)) if test > 0 else 0
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
    picked: dict[str, list[np.ndarray]] = {part: [] for part in PARTS}
    for name, start, size in zip(names, starts, sizes, strict=False):
        train, held_validation, held_test = split_sizes(int(size), validation, test)
        if train < 1:
            raise PolyfedError(
                f"client {name!r} has {size} row{'s' if size != 1 else ''}, which leaves no training row after "
                f"{held_validation} for validation and {held_test} for test"
            )
        if validation == test == 0:
            order = np.arange(size)
        else:
            order = stream(seed, "split", name).permutation(int(size))
        for part, rows in zip(PARTS, np.split(order, [train, train + held_validation]), strict=True):
            picked[part].append(start + np.sort(rows))
    return {part: (_flat(rows), offsets_of([len(r) for r in rows])) for part, rows in picked.items()}


def offsets_of(sizes: Sequence[int]) -> np.ndarray:
    """[0, n_0, n_0 + n_1, ...] as int64."""
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))]).astype(np.int64)


def _flat(rows: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *rows])


def _round(value: float) -> int:
    return int(np.floor(value + 0.5))
