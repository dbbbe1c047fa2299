"""Curves on held-out rows: means and deviations over seeds."""

from __future__ import annotations

import numpy as np

from polyfed.papers.shared import held_out
from polyfed.papers.shared.held_out import HeldOutCurve


def test_a_column_is_averaged_over_seeds() -> None:
    ends = (0.9, 0.91)
    seeds = [HeldOutCurve(({"round": 0, "accuracy": 0.0}, {"round": 5, "accuracy": end}), None) for end in ends]
    rounds, mean = held_out.mean_curve(seeds, "accuracy")
    np.testing.assert_allclose(rounds, [0, 5])
    np.testing.assert_allclose(mean, [0, 0.905])
    assert held_out.plus_minus(np.array([0.97, 0.99]), percent=True) == "98.00 ± 1.41%"
