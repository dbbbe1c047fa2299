"""Intervals over splits, against formulas written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from polyfed.core.errors import PolyfedError
from polyfed.studies.verdicts import (
    RowEvidence,
    mean_gain,
    mean_gain_on_rows,
    mean_over_evidence,
    over_evidence,
    over_splits,
    student,
)

GAINS = np.array([0.04, 0.01, -0.02, 0.05, 0.03, 0.02, 0.06, -0.01, 0.02, 0.04])


def test_gains_alone_are_judged_after_nadeau_and_bengio() -> None:
    reach = stats.t.ppf(0.975, 9) * np.sqrt(np.var(GAINS, ddof=1) * (1 / 10 + 30 / 70))
    interval = over_splits(GAINS, 30, 70)
    assert (interval.low, interval.high) == pytest.approx((GAINS.mean() - reach, GAINS.mean() + reach))


def test_what_splits_share_comes_from_the_rows_and_the_rest_is_averaged_out() -> None:
    errors = np.linspace(0.02, 0.04, 10)
    shared, rest = np.mean(errors**2) * 300 / 1000, np.var(GAINS, ddof=1) / 10
    interval = over_splits(GAINS, 300, 700, errors=errors)
    # 9 / (9 + 90 * 3 / 7) of the pooled variance is that of the splits, and 3 / 7 + 1 / 10 of it is that of the mean
    assert interval.error == pytest.approx(np.sqrt(shared + rest), rel=1e-9)
    assert interval.freedom == pytest.approx(9 + 90 * 3 / 7)


def test_errors_of_few_rows_count_less() -> None:
    weight = 0.3 / (1 / 20 + (1 / 6 - 1 / 20) / 10)
    variance = (weight * 0.1**2 * 14 / 20 + 9 * np.var(GAINS, ddof=1)) / (weight + 9)
    interval = over_splits(GAINS, 6, 14, errors=np.full(10, 0.1))
    reach = stats.t.ppf(0.975, weight + 9) * np.sqrt(variance * (1 / 10 + 6 / 14))
    assert interval.high == pytest.approx(GAINS.mean() + reach)


def test_a_tail_is_added_and_a_floor_is_kept() -> None:
    independent = 1 / (1 / 100 + (1 / 30 - 1 / 100) / 10)
    plain = over_splits(GAINS, 30, 70)
    tailed = over_splits(GAINS, 30, 70, tails=np.linspace(0.01, 0.05, 10))
    assert tailed.error == pytest.approx(np.hypot(plain.error, 0.05 * 30 / independent * np.sqrt(1 + 10 / independent)))
    assert over_splits(GAINS, 30, 70, floors=np.full(10, 0.001)).error == pytest.approx(plain.error)
    assert over_splits(GAINS, 30, 70, floors=np.full(10, 0.2)).error == pytest.approx(0.2 * 30 / independent)


def test_a_tail_is_wider_for_a_client_of_few_rows() -> None:
    """Of 20 rows, (50 / 20 - 1)^2 beside what 100 rows have; from 50 rows on, nothing."""
    independent = 1 / (1 / 20 + (1 / 6 - 1 / 20) / 10)
    plain, tailed = over_splits(GAINS, 6, 14), over_splits(GAINS, 6, 14, tails=np.full(10, 0.05))
    wider = 0.05 * 6 / independent * np.sqrt(1 + 10 / independent + (50 / 20 - 1) ** 2)
    assert tailed.error == pytest.approx(np.hypot(plain.error, wider))


def test_equal_gains_are_not_certain() -> None:
    interval = over_splits(np.zeros(10), 30, 70)
    independent = 1 / (1 / 100 + (1 / 30 - 1 / 100) / 10)
    assert interval.high == pytest.approx(stats.t.ppf(0.975, 9) * np.sqrt(2) / independent)
    assert interval.sign == "undecided"


def test_splits_without_a_gain_are_left_out_until_half_are_left() -> None:
    some = np.where(np.arange(10) < 5, np.nan, GAINS)
    assert over_splits(some, 30, 70).estimate == pytest.approx(GAINS[5:].mean())
    assert over_splits(some, 30, 70).known
    assert not over_splits(np.where(np.arange(10) < 6, np.nan, GAINS), 30, 70).known
    assert not over_splits(GAINS[:2], 30, 70).known
    assert np.isnan(over_splits([np.nan] * 5, 30, 70).estimate)


def test_few_positives_leave_few_degrees_of_freedom() -> None:
    evidence = [RowEvidence(gain, 0.1, 0.0, 0.0, 30, 1) for gain in GAINS]
    assert over_evidence(evidence, 70).freedom == pytest.approx(1 / 0.3 - 1)


def test_as_many_numbers_as_splits_are_expected() -> None:
    with pytest.raises(PolyfedError, match="found 2 numbers of rows for 10 gains"):
        over_splits(GAINS, [30, 30], 70)
    with pytest.raises(PolyfedError, match="found 3 errors for 10 gains"):
        over_splits(GAINS, 30, 70, errors=[0.1] * 3)


def test_the_mean_over_clients_is_judged_by_splits() -> None:
    gains = np.stack([GAINS, GAINS[::-1] + 0.1, np.full(10, np.nan)], axis=1)
    means = gains[:, :2].mean(axis=1)
    interval = mean_gain(gains, [30, 60, 5], [70, 140, 5])
    reach = stats.t.ppf(0.975, 9) * np.sqrt(np.var(means, ddof=1) * (1 / 10 + 30 / 70))
    assert (interval.low, interval.high) == pytest.approx((means.mean() - reach, means.mean() + reach))
    errors = np.full((10, 3), 0.03)
    both = mean_gain(gains, [30, 60, 5], [70, 140, 5], errors=errors)
    assert both.error == pytest.approx(np.sqrt(2 * 0.03**2 / 4 * 0.3 + np.var(means, ddof=1) / 10))


def test_a_client_stands_with_its_mean_where_it_has_no_gain() -> None:
    gains = np.stack([GAINS, GAINS + 0.1], axis=1)
    gains[0, 1] = np.nan
    filled = gains.copy()
    filled[0, 1] = np.nanmean(gains[:, 1])
    assert mean_gain(gains, [30, 30], [70, 70]) == mean_gain(filled, [30, 30], [70, 70])


def test_the_mean_over_clients_of_one_split_combines_their_errors() -> None:
    a, b = np.array([0.3, 0.1, 0.2, 0.4]), np.array([0.0, -0.3, 0.2, 0.1, 0.2, 0.5])
    intervals = [student(x.mean(), np.std(x, ddof=1) / np.sqrt(len(x)), len(x) - 1) for x in (a, -b)]
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval()
    interval = mean_gain_on_rows([*intervals, over_splits([1.0], 1, 1)])
    assert (2 * interval.low, 2 * interval.high) == pytest.approx((expected.low, expected.high))
    assert not mean_gain_on_rows([]).known
    few = mean_gain_on_rows([intervals[0], over_splits([1.0], 1, 1), over_splits([-0.5], 1, 1)])
    assert not few.known  # of three gains one has an error: the mean is of all, and nothing is known of its own
    assert few.estimate == pytest.approx((0.25 + 1.0 - 0.5) / 3)


def test_the_mean_over_clients_allows_for_what_rows_have_not_shown() -> None:
    def client(gains: np.ndarray, floors: tuple[float, float], tail: float) -> list[RowEvidence]:
        splits = zip(gains, floors * 5, strict=True)
        return [RowEvidence(gain, 0.03, floor, tail, 30, 30) for gain, floor in splits]

    clients = [client(GAINS, (0.0, 0.2), 0.05), client(GAINS[::-1], (0.04, 0.1), 0.0)]
    both = np.stack([GAINS, GAINS[::-1]], axis=1)
    plain = mean_gain(both, [30, 30], [70, 70], errors=np.full((10, 2), 0.03))
    independent = 1 / (1 / 200 + (1 / 60 - 1 / 200) / 10)
    unseen = np.hypot(0.05, 0.04) / 2 * 60 / independent * np.sqrt(1 + 10 / independent)
    assert mean_over_evidence(clients, [70, 70]).error == pytest.approx(np.hypot(plain.error, unseen))
