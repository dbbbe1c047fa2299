"""What figures show of the rounds on synthetic data."""

from __future__ import annotations

import numpy as np

from polyfed.papers.fedbc.runs import Record
from polyfed.papers.fedbc.synthetic import gap, smooth


def test_gaps_are_means_over_the_last_half_of_the_rounds() -> None:
    rows = tuple({"round": r, "largest_weight": 0.1 * r, "smallest_weight": 0.5} for r in (1, 2, 3, 4))
    np.testing.assert_allclose(gap([Record(rows, np.ones(1), None, {})], "weight"), [(0.2 + 0.1) / 2])
    np.testing.assert_allclose(smooth(np.array([1.0, 3.0, 5.0]), window=2), [1, 2, 4])
