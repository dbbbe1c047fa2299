"""The three words for a gain, how small a gain could have been told, and how many clients have which word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from polyfed.studies.verdicts.intervals import Interval

Verdict = Literal["gains", "loses", "cannot tell"]
"""What an interval for a client's gain says."""


def verdict(interval: Interval) -> Verdict:
    """The word for a gain, which is positive where it is for the better (see `oriented`)."""
    words: dict[str, Verdict] = {"above": "gains", "below": "loses", "undecided": "cannot tell"}
    return words[interval.sign]


def oriented(difference: float, higher_is_better: bool) -> float:
    """A difference of metric values as a gain: positive where it is for the better."""
    return difference if higher_is_better else -difference


def detectable(interval: Interval, power: float = 0.5) -> float:
    """The smallest difference that rows with this much noise could have shown: (t + t_power) error.

    A true difference of this size is told from zero with probability `power`. At the default of one half it is the
    reach of the interval towards zero, half its width where both sides are alike: an estimate that is nearer to zero
    leaves zero inside. Infinite without an interval.
    """
    if not interval.known:
        return float("inf")
    chances = [0.5 + interval.confidence / 2, power]
    if interval.error_to_zero is not None:
        return float(np.sum(stats.norm.ppf(chances))) * interval.error_to_zero
    return float(np.sum(stats.t.ppf(chances, interval.freedom))) * interval.error


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """P-values after Holm's correction for having tested all of them, in the order given.

    Of m sorted p-values, max over j <= i of min(1, (m - j + 1) p_j). Where those below a level are called, the
    probability of any false call is at most that level, however the tests depend on each other.
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    steps = np.minimum(1, p[order] * (len(p) - np.arange(len(p))))
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(steps) if len(p) else steps
    return adjusted


@dataclass(frozen=True)
class Counts:
    """How many clients gain, lose, or cannot be told, after Holm's correction over the clients."""

    gains: int
    loses: int
    cannot_tell: int
    verdicts: tuple[Verdict, ...]
    """One for each client, in the order given; a client's own interval may say more, as it answers for itself alone."""

    @property
    def clients(self) -> int:
        """All that were asked about."""
        return len(self.verdicts)


def count_verdicts(intervals: Sequence[Interval], level: float = 0.05) -> Counts:
    """The verdicts of all clients together: the probability that any "gains" or "loses" is false is at most `level`.

    Holm's correction is over the clients that have an interval. One without (too few rows of a class, say) cannot be
    told, and is no test: whether it has one depends on its labels, not on its gain.
    """
    known = [k for k, interval in enumerate(intervals) if interval.known]
    adjusted = dict(zip(known, holm([intervals[k].p_value for k in known]), strict=True))
    words: list[Verdict] = []
    for k, interval in enumerate(intervals):
        called = adjusted.get(k, 1.0) < level
        words.append("cannot tell" if not called else "gains" if interval.estimate > 0 else "loses")
    return Counts(words.count("gains"), words.count("loses"), words.count("cannot tell"), tuple(words))
