"""Which methods are better for sure, and the ranks that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from polyfed.studies.verdicts.intervals import Interval, paired

CONFIDENCE = 0.95


class Rank(NamedTuple):
    """The place that a method has by its mean, and those that it may have: 1 is the best."""

    place: int
    low: int
    high: int

    @property
    def words(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


def difference(ours: np.ndarray, theirs: np.ndarray, comparisons: int = 1) -> Interval:
    """Ours less theirs, paired by seed; the confidence is shared out over so many comparisons (Bonferroni)."""
    return paired(np.asarray(ours, float) - np.asarray(theirs, float), 1 - (1 - CONFIDENCE) / comparisons)


def ranks(values: Mapping[str, np.ndarray]) -> dict[str, Rank]:
    """The rank of every method and its 95% range, from values by seed of which larger ones are better.

    A method has at best the place after all that are better for sure, and at worst that before all that are worse for
    sure. Its comparisons with all others hold together with 95% confidence. One that has no finite mean comes last.
    """
    means = {name: float(np.mean(own)) if np.isfinite(own).all() else -np.inf for name, own in values.items()}
    order = sorted(means, key=lambda name: -means[name])
    found = {}
    for place, name in enumerate(order, start=1):
        if not np.isfinite(means[name]):
            found[name] = Rank(place, sum(np.isfinite(list(means.values()))) + 1, len(order))
            continue
        above = below = 0
        for other in order:
            if other == name:
                continue
            if not np.isfinite(means[other]):
                below += 1
                continue
            sign = difference(values[other], values[name], len(order) - 1).sign
            above += sign == "above"
            below += sign == "below"
        found[name] = Rank(place, 1 + above, len(order) - below)
    return found
