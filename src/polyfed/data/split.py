"""Splits: the rows of one part of all clients, and how a client's rows are shared out over the parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    names: Sequence[str],
    sizes: Sequence[int] | np.ndarray,
    targets: np.ndarray,
    *,
    validation: float,
    test: float,
    seed: int,
) -> dict[str, Pair]:
    """For each part (indices into the flat rows, offsets per client), for clients that lie one after another.

    The draw of a client is seeded by (seed, its name), so neither the order of the clients nor the presence of others
    changes anybody's split. Labels among `targets` are spread evenly over the parts. Within a part the rows keep their
    order.
    """
    check_split(names, sizes, validation=validation, test=test)
    ends = np.cumsum(sizes, dtype=np.int64)[:-1]
    drawn = [
        client_rows(name, own, validation=validation, test=test, seed=seed)
        for name, own in zip(names, np.split(targets, ends), strict=True)
    ]
    return _flat(drawn)


def redrawn_rows(
    names: Sequence[str], sizes: Mapping[str, np.ndarray], targets: np.ndarray, seed: int
) -> dict[str, Pair]:
    """As `split_rows`, but every client keeps its number of rows in each part; seeded by (seed, its name)."""
    counts = np.stack([sizes[part] for part in PARTS], axis=1)
    ends = np.cumsum(counts.sum(axis=1))[:-1]
    drawn = [
        _draw(own, count, stream(seed, "redraw", name))
        for name, own, count in zip(names, np.split(targets, ends), counts, strict=True)
    ]
    return _flat(drawn)


def _flat(drawn: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Pair]:
    """Row numbers within each client as row numbers of clients that lie one after another, with offsets, by part."""
    starts = offsets_of([sum(map(len, parts.values())) for parts in drawn])
    rows = {part: [start + own[part] for start, own in zip(starts, drawn, strict=False)] for part in PARTS}
    return {part: (joined(own), offsets_of([len(r) for r in own])) for part, own in rows.items()}


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


def client_rows(name: str, targets: np.ndarray, *, validation: float, test: float, seed: int) -> dict[str, np.ndarray]:
    """For each part, which of one client's rows are in it."""
    sizes = np.asarray(split_sizes(len(targets), validation, test))
    return _draw(targets, sizes, stream(seed, "split", name))


def _draw(targets: np.ndarray, sizes: np.ndarray, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Rows of one client for each part, of these sizes; labels are spread as evenly as the sizes allow."""
    train, validation, test = map(int, sizes)
    if validation == test == 0:
        part_of = np.zeros(train, np.int64)
    elif has_labels(targets):
        part_of = _stratified(targets, validation, test, random)
    else:
        part_of = np.empty(len(targets), np.int64)
        part_of[random.permutation(len(targets))] = np.repeat(np.arange(3), sizes)
    return {part: np.flatnonzero(part_of == place) for place, part in enumerate(PARTS)}


def has_labels(targets: np.ndarray) -> bool:
    """Whether these are class labels, one per row, and not real numbers or several labels a row."""
    return targets.ndim == 1 and targets.dtype.kind in "iu"


def _stratified(labels: np.ndarray, validation: int, test: int, random: np.random.Generator) -> np.ndarray:
    """For each row its part (0, 1, 2), with each label's rows shared out in proportion to the sizes of the parts.

    Test rows are chosen first: a label with two rows has one for training and one for test. A label's last row is for
    training.
    """
    order = random.permutation(len(labels))
    _, codes, counts = np.unique(labels[order], return_inverse=True, return_counts=True)
    in_test = _in_proportion(counts, test, random, at_least_one=True)
    in_validation = _in_proportion(counts - in_test, validation, random)
    grouped = np.argsort(codes, kind="stable")
    shares = np.stack([in_test, in_validation, counts - in_test - in_validation], axis=1)
    part_of = np.empty(len(labels), np.int64)
    part_of[order[grouped]] = np.repeat(np.tile([2, 1, 0], len(counts)), shares.ravel())
    return part_of


def _in_proportion(
    counts: np.ndarray, size: int, random: np.random.Generator, *, at_least_one: bool = False
) -> np.ndarray:
    """How many rows of each label are among `size` rows: proportional, rounded by the largest remainder.

    Equal remainders are drawn by lot. One row of each label is left over, where the others suffice. `at_least_one`:
    labels that would have none come first.
    """
    spare = np.maximum(counts - 1, 0)
    most = spare if spare.sum() >= size else counts
    wanted = counts * (size / counts.sum())
    chosen = np.minimum(np.floor(wanted).astype(np.int64), most)
    lot = random.permutation(len(counts))
    for _ in range(size - int(chosen.sum())):
        lacking = wanted - chosen + (at_least_one & (chosen == 0)) * 2.0
        lacking = np.where(chosen < most, np.round(lacking, 9), -np.inf)
        chosen[lot[np.argmax(lacking[lot])]] += 1
    return chosen


def offsets_of(sizes: Sequence[int]) -> np.ndarray:
    """[0, n_0, n_0 + n_1, ...] as int64."""
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))]).astype(np.int64)


def joined(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Row indices of several clients, one client after another."""
    return np.concatenate([np.zeros(0, np.int64), *rows])


def _round(values: np.ndarray) -> np.ndarray:
    return np.floor(values + 0.5).astype(np.int64)
