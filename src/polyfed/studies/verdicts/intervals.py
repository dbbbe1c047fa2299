"""Intervals around an estimate, and what they say about its sign."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import stats

Sign = Literal["above", "below", "undecided"]
"""What an interval says of a difference: that it is above zero, below it, or neither."""


@dataclass(frozen=True)
class Interval:
    """An estimate, and the range that holds the true value with the given confidence."""

    estimate: float
    low: float
    high: float
    confidence: float = 0.95
    freedom: float = float("inf")
    """Degrees of freedom of Student's law, by which the range was made."""
    error_to_zero: float | None = None
    """The standard error by which the side that faces zero was made, with the normal quantile, where it has its own."""

    @property
    def sign(self) -> Sign:
        """An interval that touches zero, or is not known, decides nothing."""
        if self.low > 0:
            return "above"
        return "below" if self.high < 0 else "undecided"

    @property
    def known(self) -> bool:
        """Whether the range says anything at all."""
        return bool(np.isfinite(self.low) and np.isfinite(self.high))

    def within(self, largest: float) -> Interval:
        """For showing: without what cannot be, as a difference of shares beyond 1. Its `error` and `p_value` are no
        longer those of the estimate; an interval that is not known stays so."""
        if not self.known:
            return self
        return replace(self, low=max(self.low, -largest), high=min(self.high, largest))

    @property
    def error(self) -> float:
        """The standard error: half the width over Student's quantile, or the reach away from zero over it, where the
        side that faces zero has an error of its own."""
        reach = (self.high - self.low) / 2
        if self.error_to_zero is not None:
            reach = self.high - self.estimate if self.estimate > 0 else self.estimate - self.low
        return reach / float(stats.t.ppf(0.5 + self.confidence / 2, self.freedom))

    @property
    def p_value(self) -> float:
        """2 P(T > |estimate| / error), T of Student's law: the two-sided p-value of "the true value is zero".

        It is below 1 - confidence just where zero is outside the range. An interval that is not known has 1.
        """
        if not self.known:
            return 1.0
        if self.error == 0:
            return float(self.estimate == 0)
        if self.error_to_zero is not None:
            return float(2 * stats.norm.sf(abs(self.estimate) / self.error_to_zero))
        return float(2 * stats.t.sf(abs(self.estimate) / self.error, self.freedom))


def student(
    estimate: float, error: float, freedom: float, confidence: float = 0.95, *, error_to_zero: float | None = None
) -> Interval:
    """estimate -+ t error, with Student's quantile t for so many degrees of freedom.

    With `error_to_zero`, the side that faces zero is that error times the normal quantile.
    """
    below = above = float(stats.t.ppf(0.5 + confidence / 2, freedom)) * error
    if error_to_zero is not None:
        near = float(stats.norm.ppf(0.5 + confidence / 2)) * error_to_zero
        below, above = near if estimate > 0 else below, near if estimate < 0 else above
    return Interval(estimate, estimate - below, estimate + above, confidence, freedom, error_to_zero)


def unknown(estimate: float = float("nan"), confidence: float = 0.95) -> Interval:
    """The interval of an estimate that nothing is known about: it has no ends."""
    return Interval(estimate, -np.inf, np.inf, confidence)


def paired(differences: Sequence[float] | np.ndarray, confidence: float = 0.95) -> Interval:
    """Student's interval for the mean of independent paired differences, such as those of two methods by seed.

    Differences that are not finite are left out. With fewer than two, nothing is known: the range is everything.
    """
    values = np.asarray(differences, np.float64)
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return unknown(float(values[0]) if len(values) else float("nan"), confidence)
    error = float(np.std(values, ddof=1)) / np.sqrt(len(values))
    return student(float(np.mean(values)), error, len(values) - 1, confidence)
