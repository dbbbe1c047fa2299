"""Holm's correction: which of many differences are certain, all errors taken together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from polyfed.studies.verdicts.intervals import Sign
from polyfed.studies.verdicts.words import holm


class Summary(NamedTuple):
    """A mean difference over many seeds, where single ones are not kept."""

    mean: float
    error: float
    """the standard error of the mean"""
    seeds: int


Difference = Sequence[float] | np.ndarray | Summary
"""By seed, or summed up."""


def certain(differences: Sequence[Difference], confidence: float = 0.95) -> list[Sign]:
    """The sign of each mean difference, where it is certain after Holm's correction (1979)."""
    summaries = [_summary(difference) for difference in differences]
    adjusted = holm([_chance(summary) for summary in summaries])
    signs: list[Sign] = ["above" if summary.mean > 0 else "below" for summary in summaries]
    return [sign if p < 1 - confidence else "undecided" for sign, p in zip(signs, adjusted.tolist(), strict=True)]


def _summary(difference: Difference) -> Summary:
    """Where a seed has no finite value, or there is one seed, nothing is certain."""
    if isinstance(difference, Summary):
        return difference
    values = np.asarray(difference, np.float64)
    if len(values) < 2 or not np.isfinite(values).all():
        return Summary(0.0, 0.0, len(values))
    return Summary(float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))), len(values))


def _chance(summary: Summary) -> float:
    """The p-value of Student's test that the mean is zero; 1 where there are fewer than two values."""
    if summary.error == 0:
        return 1.0 if summary.mean == 0 else 0.0
    return float(2 * stats.t.sf(abs(summary.mean) / summary.error, summary.seeds - 1))
