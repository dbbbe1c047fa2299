"""A client's rows, each followed through the splits that test it: the error of a mean gain that they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyfed.studies.verdicts.rows import UNSEEN_ROWS, RowEvidence, RowKind

SHARE: dict[RowKind, float] = {"steps": 0.75, "ranks": 0.25, "values": 0.25}
"""What followed rows count for beside the splits. Whether a row is right changes more with the training set than its
rank or its value, so that there the splits' variance is further off."""


@dataclass(frozen=True)
class Followed:
    """What a client's rows show of the error of its mean gain."""

    variance: float
    """sum over rows of c_i^2, for what row i does to the mean gain in all splits together, c_i."""
    carrying_rows: float
    """How many rows the variance rests on: (sum c_i^2)^2 / sum c_i^4; all of them where it is zero."""
    floor: float
    """The least that the rows not yet seen may do; 0 where the splits have to say."""
    share: float
    """The weight of the variance beside the splits'."""


def follow(evidence: Sequence[RowEvidence], total_rows: float) -> Followed | None:
    """The rows of all splits with a gain, or None where it is not known which rows these are.

    With v_ri the value of row i in split r, g_r the split's gain and n_r its test rows, row i does
    c_i = sum over the R splits that test it of (v_ri - g_r) / (R (n_r - 1)). Different rows are independent draws, and
    what a row does in one split and not in another averages out by itself.

    Of rows that are right or wrong, two more may differ as much as the row whose mean over its splits differs most;
    where no row ever differs, two of the rows that were tested: -+2.8 / n, the rule of three.
    """
    known = [split for split in evidence if np.isfinite(split.gain)]
    if not known or any(split.rows is None or split.values is None for split in known):
        return None
    rows = np.concatenate([split.rows for split in known if split.rows is not None])
    values = np.concatenate([split.values for split in known if split.values is not None])
    centred = [
        (split.values - split.gain) / (len(known) * (split.test_rows - 1))
        for split in known
        if split.values is not None
    ]
    number, times = np.unique(rows, return_inverse=True, return_counts=True)[1:]
    contributions = np.bincount(number, np.concatenate(centred))
    variance = float(np.sum(contributions**2))
    differ = float(np.max(np.abs(np.bincount(number, values) / times)))
    floor = 0.0
    if known[0].kind == "steps":
        floor = float(np.sqrt(UNSEEN_ROWS)) * (differ / total_rows if np.any(values) else 1 / len(times))
    carrying = variance**2 / float(np.sum(contributions**4)) if variance > 0 else total_rows
    return Followed(variance, carrying, floor, SHARE[known[0].kind])
