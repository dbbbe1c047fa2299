"""Rows are known again in every split of the same rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import polyfed as pf
from polyfed.data.split import Split
from polyfed.studies.same_rows import same_rows


def federation(x: np.ndarray, y: np.ndarray) -> pf.Federation:
    """Two clients, of which the second has these rows."""
    other = np.random.default_rng(9).normal(size=(20, x.shape[1])).astype(x.dtype), np.arange(20) % 2
    return pf.Federation.from_arrays([other, (x, y)], classes=2, test=0.3, validation=0.1)


def test_a_number_means_the_same_row_in_all_splits() -> None:
    random = np.random.default_rng(0)
    whole = federation(random.normal(size=(40, 3)).astype(np.float32), random.integers(0, 2, 40))
    splits = [whole.redrawn(seed) for seed in range(5)]
    numbers = same_rows(splits, 1)
    assert numbers is not None
    seen: dict[int, tuple[bytes, int]] = {}
    for split, own in zip(splits, numbers, strict=True):
        x, y = split.read(1)["test"]
        assert len(set(own.tolist())) == len(own) == len(y)
        for number, features, label in zip(own.tolist(), x, y, strict=True):
            assert seen.setdefault(number, (features.tobytes(), int(label))) == (features.tobytes(), int(label))
    assert len(set(seen.values())) == len(seen) > 12


def test_equal_rows_change_places_at_random() -> None:
    """40 rows that are all the same: twelve of them are tested in each split, and all of them in the end."""
    whole = federation(np.ones((40, 2), np.float32), np.ones(40, np.int64))
    numbers = same_rows([whole.redrawn(seed) for seed in range(30)], 1)
    assert numbers is not None
    assert {len(set(own.tolist())) for own in numbers} == {12}
    assert len(np.unique(np.concatenate(numbers))) == 40


def test_rows_that_were_changed_are_not_known_again() -> None:
    random = np.random.default_rng(1)
    whole = federation(random.normal(size=(40, 3)).astype(np.float32), random.integers(0, 2, 40))
    second = whole.redrawn(1)
    scaled = replace(second, test=Split(second.test.x * 2, second.test.y, second.test.offsets))
    assert same_rows([whole, scaled], 1) is None
