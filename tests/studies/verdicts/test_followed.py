"""Rows followed through splits, against sums written out and against gains whose variance is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from polyfed.core.errors import PolyfedError
from polyfed.studies.verdicts import RowEvidence, detectable, mean_evidence, over_evidence
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


def differing(random: np.random.Generator, better: int, worse: int, rows: int = 100) -> list[RowEvidence]:
    """Splits of so many rows; on some one model is right and the other is not, whatever the split."""
    gains = np.zeros(rows)
    gains[:better], gains[better : better + worse] = 1, -1
    tested = [random.permutation(rows)[: rows * 3 // 10] for _ in range(SPLITS)]
    return [mean_evidence(gains[own], "steps", own) for own in tested]


def test_few_rows_that_differ_face_zero_as_in_mcnemars_test_and_the_other_side_with_students() -> None:
    for better, worse in ((8, 1), (1, 8)):
        splits = differing(np.random.default_rng(5), better, worse)
        interval, followed = over_evidence(splits, 70), follow(splits, 100)
        near, far = interval.estimate - interval.low, interval.high - interval.estimate
        near, far = (near, far) if better > worse else (far, near)
        assert followed is not None
        assert near == pytest.approx(1.959964 * np.sqrt(followed.variance))
        assert far == pytest.approx(stats.t.ppf(0.975, interval.freedom) * interval.error)
        assert interval.p_value == pytest.approx(2 * stats.norm.sf(abs(interval.estimate) / np.sqrt(followed.variance)))
        assert detectable(interval) == pytest.approx(near)
    for better, rows in ((20, 200), (8, 50)):  # more than ten rows are not few, and eight of fifty are not rare
        many = over_evidence(differing(np.random.default_rng(6), better, 0, rows), rows * 0.7)
        assert many.estimate - many.low == pytest.approx(many.high - many.estimate)


def test_with_models_that_every_row_tests_alike_the_p_value_is_mcnemars() -> None:
    """All rows are tested equally often: (b - c)^2 / (b + c) is of chi-squared's law with one degree of freedom."""
    gains = np.zeros(1000)
    gains[:7], gains[7:9] = 1, -1
    parts = np.array_split(np.random.default_rng(8).permutation(1000), 10)
    interval = over_evidence([mean_evidence(gains[own], "steps", own) for own in parts], 900)
    assert interval.p_value == pytest.approx(stats.chi2.sf((7 - 2) ** 2 / (7 + 2), 1), rel=0.05)


def test_models_that_are_alike_are_seldom_told_apart_by_few_rows() -> None:
    """The chance of a false call is about 5% at most, however many rows differ on average, as in McNemar's test."""
    random = np.random.default_rng(7)
    for mean in (2, 4, 6, 8):
        drawn = [over_evidence(differing(random, *random.poisson(mean / 2, 2)), 70) for _ in range(400)]
        calls = sum(interval.sign != "undecided" for interval in drawn)
        assert stats.binom.sf(calls - 1, 400, 0.053) > 0.005, (mean, calls)
