"""Intervals against SciPy's own."""

import numpy as np
import pytest
from scipy import stats

from polyfed.studies.verdicts.intervals import Interval, paired


def test_a_paired_interval_is_that_of_scipys_t_test() -> None:
    values = np.array([0.4, 0.1, -0.2, 0.9, 0.3])
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    found = paired(values, confidence=0.9)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_one_difference_decides_nothing() -> None:
    assert paired([3.0]).sign == "undecided"
    assert paired([3.0, np.nan]).sign == "undecided"


@pytest.mark.parametrize(("low", "high", "sign"), [(0.1, 2, "above"), (-2, -0.1, "below"), (0, 1, "undecided")])
def test_an_interval_decides_by_zero(low: float, high: float, sign: str) -> None:
    assert Interval(1.0, low, high).sign == sign
