"""PLSGD's regimes: claims on made-up distances."""

from __future__ import annotations

import numpy as np

from polyfed.papers.plsgd import regimes
from polyfed.papers.plsgd.regimes import ALONE, OURS


def test_the_regimes_are_judged_by_paired_differences() -> None:
    noise = np.random.default_rng(0).normal(size=50)

    def at(alone: float, shared: float, ours: float) -> dict[str, np.ndarray]:
        values = {ALONE: alone, "local SGD": shared, "minibatch SGD": shared, OURS: ours}
        return {name: value + noise + 0.01 * np.roll(noise, 1 + i) for i, (name, value) in enumerate(values.items())}

    good = {0.0: at(5.0, 1.0, 2.0), 1.0: at(5.0, 4.0, 3.0), 9.0: at(2.0, 9.0, 2.5)}
    middle, alike, different = regimes._claims(good)
    assert middle.passed
    assert "at 1 of 3 spreads (1)" in middle.measured
    assert alike.passed
    assert different.passed
    never = {0.0: at(5.0, 1.0, 1.0), 1.0: at(2.0, 4.0, 3.0), 9.0: at(2.5, 9.0, 2.5)}
    assert [claim.passed for claim in regimes._claims(never)] == [False, False, False]
