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

    def verdicts(table: dict[float, dict[str, np.ndarray]]) -> list[str]:
        rows = [
            {"spread": spread, "method": name, "seed": seed, "distance": value}
            for spread, values in table.items()
            for name, distances in values.items()
            for seed, value in enumerate(distances)
        ]
        return [claim.verdict for claim in regimes.judge(rows)]

    good = {0.0: at(5.0, 1.0, 2.0), 1.0: at(5.0, 4.0, 3.0), 9.0: at(2.0, 9.0, 2.5)}
    assert verdicts(good) == ["holds"] * 3
    never = {0.0: at(5.0, 1.0, 1.0), 1.0: at(2.0, 4.0, 3.0), 9.0: at(2.5, 9.0, 2.5)}
    assert verdicts(never) == ["undecided"] * 3
    behind = {0.0: at(5.0, 2.0, 3.0), 1.0: at(2.0, 4.0, 3.0), 9.0: at(2.0, 9.0, 2.5)}
    assert verdicts(behind) == ["does not hold", "holds", "holds"]
    turned = {0.0: at(5.0, 4.0, 3.0), 1.0: at(2.0, 4.0, 3.0), 9.0: at(2.8, 9.0, 2.5)}
    assert verdicts(turned) == ["holds", "does not hold", "does not hold"]
