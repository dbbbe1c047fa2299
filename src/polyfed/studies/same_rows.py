"""Which of a client's rows each of several splits has put into its test part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyfed.data.federation import Federation
from polyfed.data.population import Population
from polyfed.data.split import PARTS, Pair


def same_rows(splits: Sequence[Federation | Population], client: int) -> list[np.ndarray] | None:
    """By split, a number for each test row of a client that means the same row in all splits.

    Rows are told by their contents. Equal rows change places at random, as a draw would have it. None where a split
    tests rows that the first one does not have, as with features that each split has scaled its own way.
    """
    parts = splits[0].read(client)
    places: dict[bytes, list[int]] = {}
    for number, contents in enumerate(key for part in PARTS for key in _contents(parts[part])):
        places.setdefault(contents, []).append(number)
    random = np.random.default_rng(0)
    tested = []
    for split in splits:
        left: dict[bytes, list[int]] = {}
        numbers = []
        for contents in _contents(split.read(client)["test"]):
            if contents not in left:
                left[contents] = random.permutation(places.get(contents, [])).tolist()
            if not left[contents]:
                return None
            numbers.append(left[contents].pop())
        tested.append(np.array(numbers, np.int64))
    return tested


def rarest_class(splits: Sequence[Federation | Population], client: int) -> int:
    """How many of a client's rows, tested or not, are of the class that fewest are of; all rows where none has labels
    of its own."""
    labels = np.concatenate([np.asarray(target) for _, target in splits[0].read(client).values()])
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        return len(labels)
    return int(np.unique(labels, return_counts=True)[1].min(initial=len(labels)))


def _contents(rows: Pair) -> list[bytes]:
    x, y = rows
    return [features.tobytes() + np.asarray(target).tobytes() for features, target in zip(x, y, strict=True)]
