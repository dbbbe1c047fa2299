"""The federation's choice and each site's, by validation rows alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from scipy import stats

Deployed = Literal["personal", "global", "alone"]
CONFIDENCE = 0.95
FEWEST = 8
"""Validation rows below which a site follows the federation."""


def federation_choice(losses: Mapping[str, float], reference: str) -> str:
    """The contender with the lowest validation loss over all sites' rows; of equals, going alone."""
    return min(losses, key=lambda name: (losses[name], name != reference))


def site_choice(default: Deployed, losses: Mapping[Deployed, np.ndarray]) -> Deployed:
    """A site follows the federation unless its own validation rows speak against that for certain.

    `losses`: each option's loss on every validation row of the site. An option replaces the default if its mean saving
    is above zero with 95% confidence, by a one-sided paired t-test over rows, corrected for the number of options. A
    few rows can never show that by luck alone: with n rows the t quantile grows as n falls, and below eight rows there
    is no test. Among options that pass, the one with the lowest mean loss is taken.
    """
    base = losses[default]
    others: list[Deployed] = [option for option in losses if option != default]
    chosen, lowest = default, float(np.mean(base)) if len(base) else 0.0
    for option in others:
        if certainly_lower(base, losses[option], len(others)) and float(np.mean(losses[option])) < lowest:
            lowest, chosen = float(np.mean(losses[option])), option
    return chosen


def certainly_lower(base: np.ndarray, other: np.ndarray, tests: int = 1) -> bool:
    """Whether `other` has the lower mean loss, with 95% confidence in all of so many tests; not with a few rows."""
    if len(base) < FEWEST:
        return False
    saved = base - other
    error = float(np.std(saved, ddof=1) / np.sqrt(len(saved)))
    return float(np.mean(saved)) > float(stats.t.ppf(1 - (1 - CONFIDENCE) / tests, len(saved) - 1)) * error


def vote(choices: Sequence[Deployed], default: Deployed) -> Deployed:
    """What most splits chose for a site; of equals the federation's choice, then the first of the names."""
    counts: dict[Deployed, int] = {option: choices.count(option) for option in sorted(set(choices))}
    return max(counts, key=lambda option: (counts[option], option == default))
