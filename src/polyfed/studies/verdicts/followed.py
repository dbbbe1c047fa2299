"""A client's rows, each followed through the splits that test it: the error of a mean gain that they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyfed.studies.verdicts.rows import UNSEEN_ROWS, RowEvidence

FEW_ROWS = 10
"""Rows on which models differ, up to which, if they are no more than `FEW_SHARE` of all, they are few."""
FEW_SHARE = 0.1
ROUNDING = 1e-9
"""What leaving out one row after another may leave of a zero."""


@dataclass(frozen=True)
class Followed:
    """What a client's rows show of the error of its mean gain."""

    variance: float
    """sum over rows of c_i^2, for what row i does to the mean gain in all splits together, c_i."""
    carrying_rows: float
    """How many rows the variance rests on: (sum c_i^2)^2 / sum c_i^4; all of them where it is zero."""
    floor: float
    """The least that the rows not yet seen may do."""
    few: bool
    """Whether the models differ in any split on few rows only."""


def follow(evidence: Sequence[RowEvidence], total_rows: float) -> Followed | None:
    """The rows of all splits with a gain; None where it is not known which they are, or rows are not right or wrong.

    With v_ri the value of row i in split r, g_r the split's gain and n_r its test rows, row i does
    c_i = sum over the R splits that test it of (v_ri - g_r) / (R (n_r - 1)). Different rows are independent draws, and
    what a row does in one split and not in another averages out by itself. Ranks and values (AUC, log-loss) change less
    with the split, and splits know their variance well enough: see docs/verdicts.md.

    Two more rows may differ as much as the row whose mean over its splits differs most;
    where no row ever differs, two of the rows that were tested: -+2.8 / n, the rule of three.
    """
    known = [split for split in evidence if np.isfinite(split.gain)]
    rows = [split.rows for split in known if split.rows is not None]
    values = [split.values for split in known if split.values is not None]
    if not known or known[0].kind != "steps" or not len(rows) == len(values) == len(known):
        return None
    moved = [(own - split.gain) / (len(known) * (len(own) - 1)) for own, split in zip(values, known, strict=True)]
    place, times = np.unique(np.concatenate(rows), return_inverse=True, return_counts=True)[1:]
    contributions = np.bincount(place, np.concatenate(moved))
    variance = float(np.sum(contributions**2))
    carrying = variance**2 / float(np.sum(contributions**4)) if variance > 0 else total_rows
    most = float(np.max(np.abs(np.bincount(place, np.concatenate(values)) / times)))
    differing = int(np.sum(np.bincount(place, np.abs(np.concatenate(values))) > ROUNDING))
    floor = float(np.sqrt(UNSEEN_ROWS)) * (most / total_rows if differing else 1 / len(times))
    return Followed(variance, carrying, floor, 0 < differing <= min(FEW_ROWS, FEW_SHARE * total_rows))
