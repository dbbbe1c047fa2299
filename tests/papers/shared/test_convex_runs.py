"""What the convex figures share."""

from __future__ import annotations

from polyfed.papers.shared.convex_runs import spaced


def test_seven_values_of_k_are_linearly_spaced_from_one_to_the_dimension():
    assert spaced(112) == [1, 20, 38, 56, 75, 94, 112]
    assert spaced(22, 4) == [1, 8, 15, 22]
