"""Verdicts from values where the answer is known: each kind of claim holds, does not hold, or is undecided."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from polyfed.papers.shared import claims
from polyfed.papers.shared.claims import at_least, at_most, better, counts, every, exact, most, similar, some, unjudged
from polyfed.papers.shared.holm import Summary

FIRM = np.array([0.9, 1.0, 1.1, 1.0, 1.05])
"""Certainly above zero."""
LOOSE = np.array([3.0, -2.5, 1.0, -1.2, 0.4])
ZERO = np.zeros(5)


def test_a_method_is_better_if_the_interval_of_paired_differences_says_so() -> None:
    noise = np.array([10.0, -20.0, 5.0, 0.0, 7.0])  # common to both: pairing takes it out
    assert better("", FIRM + noise, noise, "").verdict == "holds"
    assert better("", noise, FIRM + noise, "").verdict == "does not hold"
    assert better("", noise, FIRM + noise, "", lower=True).verdict == "holds"
    assert better("", LOOSE, ZERO, "").verdict == "undecided"


def test_the_interval_is_students_and_is_printed() -> None:
    claim = better("", FIRM, ZERO, "", claims.POINTS)
    expected = stats.ttest_1samp(FIRM, 0).confidence_interval(0.95)
    assert claim.interval is not None
    assert (claim.interval.low, claim.interval.high) == pytest.approx((expected.low, expected.high), rel=1e-12)
    assert claim.basis == f"+101.00 points [{100 * expected.low:+.2f}, {100 * expected.high:+.2f}], 5 seeds"
    assert claim.record["interval"] == pytest.approx([1.01, expected.low, expected.high])


def test_one_seed_decides_nothing_unless_the_number_is_exact() -> None:
    for claim in (
        better("", [1.0], [0.0], ""),
        at_least("", [1.0], 0.0, ""),
        similar("", [1.0], [1.0], 5.0, ""),
        every("", {"a": [1.0]}, ""),
        some("", {"a": [1.0]}, ""),
        most("", [[1.0], [1.0]], ""),
    ):
        assert claim.verdict == "undecided"
        assert "one seed" in claim.basis
        assert "interval" not in claim.record
    assert [exact("", "", holds).verdict for holds in (True, False)] == ["holds", "does not hold"]
    assert unjudged("", "", "one value stored").verdict == "undecided"


@pytest.mark.parametrize("lost", [np.nan, np.inf, -np.inf])
def test_a_seed_that_diverged_leaves_a_claim_undecided(lost: float) -> None:
    """Without that seed all of these would hold."""
    broken = np.append(FIRM, lost)
    for claim in (
        better("", broken, np.zeros(6), ""),
        better("", np.zeros(6), -broken, ""),
        similar("", broken, np.zeros(6), 5.0, ""),
        at_least("", broken, 0.5, ""),
        every("", {"a": broken, "b": np.append(FIRM, 1.0)}, ""),
        some("", {"a": broken}, ""),
        most("", [broken, broken, broken], ""),
    ):
        assert claim.verdict == "undecided"
        assert "no interval: a seed has no finite value" in claim.basis


def test_equal_values_do_not_make_one_better() -> None:
    assert better("", ZERO, ZERO, "").verdict == "undecided"


def test_a_bound_is_judged_by_the_interval_over_seeds() -> None:
    assert [at_least("", FIRM, level, "").verdict for level in (0.5, 1.0, 2.0)] == [
        "holds",
        "undecided",
        "does not hold",
    ]
    assert [at_most("", FIRM, level, "").verdict for level in (2.0, 1.0, 0.5)] == [
        "holds",
        "undecided",
        "does not hold",
    ]


def test_no_difference_needs_an_interval_within_the_margin() -> None:
    assert similar("", FIRM, ZERO, 2.0, "").verdict == "holds"
    assert similar("", FIRM, ZERO, 1.0, "").verdict == "undecided"  # the interval crosses the margin
    assert similar("", FIRM, ZERO, 0.5, "").verdict == "does not hold"
    assert similar("", ZERO, FIRM, 0.5, "").verdict == "does not hold"
    assert similar("", LOOSE, ZERO, 1.0, "").verdict == "undecided"  # too few seeds to call them equal


def test_every_difference_must_be_certain_and_one_below_zero_refutes() -> None:
    assert every("", {"a": FIRM, "b": 2 * FIRM}, "").verdict == "holds"
    open_one = every("", {"a": FIRM, "b": LOOSE}, "")
    assert open_one.verdict == "undecided"
    assert open_one.basis.startswith("b: ")  # the weakest is shown
    assert every("", {"a": FIRM, "b": LOOSE, "c": -FIRM}, "").verdict == "does not hold"


def test_summed_up_differences_count_as_their_values_do() -> None:
    summed = Summary(float(FIRM.mean()), float(FIRM.std(ddof=1) / np.sqrt(5)), 5)
    one, other = every("", {"a": FIRM}, ""), every("", {"a": summed}, "")
    assert one.interval is not None
    assert other.interval is not None
    assert (one.interval.low, one.interval.high) == pytest.approx((other.interval.low, other.interval.high))
    assert one.basis == other.basis


def test_one_of_many_must_stay_certain_after_the_correction() -> None:
    barely = np.array([0.05, 1.0, 1.5, 0.6, 0.9])
    assert 0.01 < np.asarray(stats.ttest_1samp(barely, 0))[1] < 0.05
    assert some("", {"a": barely}, "").verdict == "holds"
    assert some("", {"a": barely, **{str(i): LOOSE for i in range(9)}}, "").verdict == "undecided"
    assert some("", {"a": FIRM, **{str(i): LOOSE for i in range(9)}}, "").verdict == "holds"
    assert some("", {"a": -FIRM, "b": -barely}, "").verdict == "does not hold"


def test_most_cells_are_counted_for_certain() -> None:
    def cells(above: int, open_ones: int, below: int) -> claims.Claim:
        return most("", [FIRM] * above + [LOOSE] * open_ones + [-FIRM] * below, "")

    assert cells(3, 1, 1).verdict == "holds"
    assert cells(2, 2, 1).verdict == "undecided"
    assert cells(1, 1, 3).verdict == "does not hold"
    assert cells(2, 0, 2).verdict == "does not hold"  # half is not most
    assert "for certain above in 3, below in 1 of 5 (Holm)" in cells(3, 1, 1).basis


def test_verdicts_are_counted() -> None:
    made = [exact("", "", True), exact("", "", True), exact("", "", False), unjudged("", "", "")]
    assert counts(made) == {"holds": 2, "does not hold": 1, "undecided": 1}
