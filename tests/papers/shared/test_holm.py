"""Holm's correction against a plain loop over SciPy's tests."""

from __future__ import annotations

import numpy as np
from scipy import stats

from polyfed.papers.shared.holm import certain


def plain(cells: list[np.ndarray], level: float = 0.05) -> list[str]:
    """Every p-value times the number of those that are no smaller, made monotone."""
    chances = [float(np.asarray(stats.ttest_1samp(cell, 0))[1]) for cell in cells]
    order = sorted(range(len(cells)), key=chances.__getitem__)
    highest, signs = 0.0, ["undecided"] * len(cells)
    for rank, place in enumerate(order):
        highest = max(highest, (len(cells) - rank) * chances[place])
        if highest < level:
            signs[place] = "above" if cells[place].mean() > 0 else "below"
    return signs


def test_signs_are_those_of_the_plain_procedure() -> None:
    random = np.random.default_rng(0)
    seen = set()
    for _ in range(200):
        cells = [random.normal(shift, 1, size=5) for shift in random.choice([-4.0, -1.0, 0.0, 1.0, 4.0], size=6)]
        assert certain(cells) == plain(cells)
        seen |= set(certain(cells))
    assert seen == {"above", "below", "undecided"}


def test_what_no_test_can_say_stays_undecided() -> None:
    assert certain([[1.0], [0.0, 0.0], [np.nan, np.nan, 3.0]]) == ["undecided"] * 3
    assert certain([[2.0, 2.0], [-1.0, -1.0]]) == ["above", "below"]
    assert certain([]) == []
