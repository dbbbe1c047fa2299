"""PLSGD's regimes: claims on made-up distances."""

from __future__ import annotations

import numpy as np

from polyfed.papers.plsgd import regimes
from polyfed.papers.plsgd.regimes import ALONE, OURS


def test_every_method_has_as_many_candidates_and_other_seeds_report_them() -> None:
    assert {len(options) for options in regimes.candidates(7).values()} == {21}
    assert regimes.TUNING > 1000


def test_choices_at_an_end_of_what_was_tried_are_named() -> None:
    blank = {"seed": 0, "alpha": "", "beta": ""}
    rows = [
        {**blank, "method": ALONE, "spread": 0.0, "lr": 0.003},
        {**blank, "method": ALONE, "spread": 0.4, "lr": 0.2},
        {**blank, "method": "minibatch SGD", "spread": 0.4, "lr": 2.0},
        {**blank, "method": "local SGD", "spread": 0.4, "lr": 0.1, "beta": 1.0},
        {**blank, "method": OURS, "spread": 0.4, "lr": 0.5, "alpha": 1.0, "beta": 1.0},
        {**blank, "method": OURS, "spread": 9.0, "lr": 0.5, "alpha": 0.3, "beta": 1.0},
    ]
    told = regimes.at_the_ends([*rows, {**rows[0], "seed": 1}])
    assert told.split(": ")[1] == (
        f"the smallest stepsize of {ALONE} at 0; the largest stepsize of minibatch SGD at 0.4; "
        f"the largest stepsize of {OURS} at 0.4; the largest alpha of {OURS} at 0.4."
    )
    assert regimes.at_the_ends(rows[1:2]).startswith("No choice")


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
