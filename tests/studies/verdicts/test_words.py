"""Three words, Holm's correction against numbers worked out by hand, and what could have been told."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from polyfed.studies.verdicts import count_verdicts, detectable, holm, oriented, paired, student, unknown, verdict


@pytest.mark.parametrize(("estimate", "word"), [(0.3, "gains"), (-0.3, "loses"), (0.1, "cannot tell")])
def test_the_word_is_that_of_the_side_of_zero(estimate: float, word: str) -> None:
    assert verdict(student(estimate, 0.1, 30)) == word
    assert verdict(unknown(estimate)) == "cannot tell"


def test_less_of_a_loss_is_a_gain() -> None:
    assert oriented(0.2 - 0.5, higher_is_better=False) == pytest.approx(0.3)
    assert oriented(0.2 - 0.5, higher_is_better=True) == pytest.approx(-0.3)


def test_p_values_are_those_of_the_t_test_and_agree_with_the_interval() -> None:
    rng = np.random.default_rng(0)
    for shift in np.linspace(0, 2, 9):
        values = rng.standard_normal(8) + shift
        interval = paired(values)
        assert interval.p_value == pytest.approx(stats.ttest_1samp(values, 0)[1], rel=1e-9)
        assert (interval.p_value < 0.05) == (interval.sign != "undecided")
    assert student(0.0, 0.0, 5).p_value == 1
    assert student(0.2, 0.0, 5).p_value == 0
    assert unknown(3.0).p_value == 1


def test_what_could_have_been_told_is_told_as_often_as_said() -> None:
    interval = student(0.01, 0.05, 1e6)
    assert detectable(interval) == pytest.approx(1.96 * 0.05, rel=1e-3)
    size = detectable(interval, power=0.8)
    draws = np.random.default_rng(0).normal(size, 0.05, 20_000)
    assert np.mean(draws - 1.96 * 0.05 > 0) == pytest.approx(0.8, abs=0.01)
    assert detectable(unknown()) == np.inf


def test_holm_by_hand() -> None:
    # sorted 0.005, 0.01, 0.03, 0.04, times 4, 3, 2, 1, never less than the one before
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == pytest.approx([1, 1])
    assert len(holm([])) == 0


def test_clients_are_counted_after_holm() -> None:
    # p = 0.0455 and 0.0027 at 2 and 3 errors; with two tests 0.0455 stays, and is below 0.05
    two = count_verdicts([student(2.0, 1, np.inf), student(-3.0, 1, np.inf), unknown(9.0)])
    assert (two.gains, two.loses, two.cannot_tell) == (1, 1, 1)
    # with a third test before it, at 1 error, it becomes 0.091
    three = count_verdicts([student(2.0, 1, np.inf), student(-3.0, 1, np.inf), student(1.0, 1, np.inf)])
    assert three.verdicts == ("cannot tell", "loses", "cannot tell")
    assert three.clients == 3


def test_false_calls_are_as_rare_as_said() -> None:
    rng = np.random.default_rng(1)
    called = 0
    for _ in range(300):
        counts = count_verdicts([paired(rng.standard_normal(6)) for _ in range(8)])
        called += counts.gains + counts.loses > 0
    assert called / 300 < 0.09
