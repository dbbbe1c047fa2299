"""Values over seeds in words."""

from __future__ import annotations

import numpy as np

from polyfed.papers.shared import held_out


def test_a_mean_has_its_deviation_over_seeds() -> None:
    assert held_out.plus_minus(np.array([0.97, 0.99]), percent=True) == "98.00 ± 1.41%"
    assert held_out.plus_minus(np.array([0.25])) == "0.2500"
