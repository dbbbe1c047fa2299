"""Rows followed through splits, against sums written out and against gains whose variance is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from polyfed.core.errors import PolyfedError
from polyfed.studies.verdicts import RowEvidence, mean_evidence, over_evidence
from polyfed.studies.verdicts.followed import follow

ROWS, TEST, SPLITS = 50, 15, 10


def drawn(random: np.random.Generator, stable: float, changing: float) -> list[RowEvidence]:
    """Splits of rows whose gains have a part that stays and a part that every split draws anew; the true gain is 0."""
    own = stable * random.standard_normal(ROWS)
    splits = []
    for _ in range(SPLITS):
        tested = random.permutation(ROWS)[:TEST]
        splits.append(mean_evidence(own[tested] + changing * random.standard_normal(TEST), "steps", tested))
    return splits


def test_what_a_row_does_is_summed_over_its_splits() -> None:
    splits = drawn(np.random.default_rng(0), 1.0, 0.5)
    by_row = np.zeros(ROWS)
    for split in splits:
        for row, value in zip(np.asarray(split.rows), np.asarray(split.values), strict=True):
            by_row[row] += (value - split.gain) / 14 / 10
    followed = follow(splits, ROWS)
    assert followed is not None
    assert followed.variance == pytest.approx(np.sum(by_row**2), rel=1e-12)
    assert followed.carrying_rows == pytest.approx(np.sum(by_row**2) ** 2 / np.sum(by_row**4), rel=1e-12)
    assert 10 < followed.carrying_rows < ROWS


@pytest.mark.parametrize(("stable", "changing"), [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
def test_the_variance_is_right_whether_or_not_models_change_with_the_split(stable: float, changing: float) -> None:
    """That of splits counts what changes as if all splits shared it."""
    random = np.random.default_rng(1)
    draws = [drawn(random, stable, changing) for _ in range(600)]
    true = np.var([np.mean([split.gain for split in splits]) for splits in draws])
    followed = np.mean([follow(splits, ROWS).variance for splits in draws])  # pyright: ignore[reportOptionalMemberAccess]
    assert followed == pytest.approx(true, rel=0.15)
    from_rows = np.mean([split.error**2 for splits in draws for split in splits]) * TEST / ROWS
    assert from_rows < 1.1 * true if changing == 0 else from_rows > 0.6 * true


def test_the_rows_variance_is_averaged_with_the_splits() -> None:
    splits = drawn(np.random.default_rng(2), 1.0, 1.0)
    followed = follow(splits, ROWS)
    assert followed is not None
    interval, plain = (over_evidence(own, ROWS - TEST) for own in (splits, [split.without_rows() for split in splits]))
    assert interval.error == pytest.approx(np.sqrt(0.75 * followed.variance + 0.25 * plain.error**2), rel=1e-9)
    assert interval.freedom == pytest.approx(min(followed.carrying_rows + 4, ROWS - 1))


def test_rows_that_never_differ_leave_the_rule_of_three_for_all_that_were_tested() -> None:
    random = np.random.default_rng(3)
    tested = [random.permutation(100)[:30] for _ in range(10)]
    interval = over_evidence([mean_evidence(np.zeros(30), "steps", rows) for rows in tested], 70)
    distinct = len(np.unique(tested))
    assert interval.high == -interval.low == pytest.approx(stats.t.ppf(0.975, 99) * np.sqrt(2) / distinct)
    assert interval.high < over_evidence([mean_evidence(np.zeros(30), "steps")] * 10, 70).high


def test_a_row_that_differs_now_and_then_is_less_than_a_row() -> None:
    tested = [np.arange(30)] * 4
    gains = [np.zeros(30) for _ in tested]
    gains[0][7] = 1.0
    followed = follow([mean_evidence(own, "steps", rows) for own, rows in zip(gains, tested, strict=True)], 100)
    assert followed is not None
    assert followed.floor == pytest.approx(np.sqrt(2) * 0.25 / 100)


def test_rows_are_followed_where_all_splits_know_them() -> None:
    splits = drawn(np.random.default_rng(4), 1.0, 0.0)
    assert follow([*splits[:9], splits[9].without_rows()], ROWS) is None
    assert follow([], ROWS) is None
    assert follow([mean_evidence(np.asarray(split.values), "values", split.rows) for split in splits], ROWS) is None
    with pytest.raises(PolyfedError, match="found 3 numbers for 4 rows"):
        mean_evidence(np.zeros(4), "steps", np.arange(3))
