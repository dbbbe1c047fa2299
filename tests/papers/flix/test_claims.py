"""The claims of FLIX's convex figures on made-up runs, where it is known whether they hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polyfed.papers.flix import claims
from polyfed.papers.shared.convex_runs import ConvexRun, cost_to_reach, summary, thinned
from polyfed.papers.shared.experiment import Row


def curve(rate: float, bits: float, rounds: int = 400, start: float = 1.0, **facts: float | str) -> tuple[Row, ...]:
    """f - f* = start (1 - rate)^t, at `bits` a round."""
    return tuple({**facts, "round": t, "gap": start * (1 - rate) ** t, "bits": t * bits} for t in range(rounds + 1))


def runs(rates: dict[int | None, float], level: float = 1e-8, alpha: float = 1.0, start: float = 1.0) -> list[Row]:
    """Summaries of DIANA with 100 numbers, by k (None: GD), which falls by so much a round, with three seeds."""
    made = []
    for k, rate in rates.items():
        for seed in range(1 if k in (None, 100) else 3):
            run = ConvexRun("toy", 8, 0.1, "GD" if k is None else "DIANA", alpha, 400, k, seed=seed)
            facts = {"dataset": "toy", "method": run.method, "alpha": alpha} | ({} if k is None else {"k": k})
            slower = rate * (1 - 0.01 * seed)
            made.append(summary(run, curve(slower, 64.0 * (k or 100), start=start, **facts), level))
    return made


USUAL: dict[int | None, float] = {None: 0.1, 10: 0.05, 50: 0.08, 100: 0.1}


def test_the_cost_of_a_level_is_that_of_the_first_point_at_or_under_it() -> None:
    rows = curve(0.1, 6400)
    needed = math.ceil(math.log(1e-8) / math.log(0.9))
    assert cost_to_reach(rows, 1e-8) == needed
    assert cost_to_reach(rows, 1e-8, "bits") == 6400 * needed
    assert cost_to_reach(rows, 1e-30) is None


def test_a_curve_is_thinned_with_both_ends() -> None:
    rows = thinned(curve(0.1, 6400), 10, without=("bits",))
    assert [row["round"] for row in rows] == [0, 1, 4, 20, 89, 100, 200, 300, 400]  # even, and dense at the start
    assert rows[1] == {"round": 1, "gap": 0.9}


def test_a_rate_is_read_off_a_curve() -> None:
    assert claims.rate(curve(0.08, 1)) == pytest.approx(0.08, rel=1e-9)
    assert np.isnan(claims.rate(curve(0.1, 1)[:5]))


def test_gd_wins_in_rounds_and_compression_in_bits() -> None:
    (rounds,), (bits,) = (make("1e-8")("toy", runs(USUAL)) for make in (claims.rounds_to, claims.bits_to))
    assert rounds.verdict == "holds"
    assert bits.verdict == "holds"
    assert bits.basis.startswith("k = 10: ")
    quick = runs(USUAL | {50: 0.5, 10: 0.045})  # now k = 50 is quicker than GD
    assert claims.rounds_to("1e-8")("toy", quick)[0].verdict == "does not hold"
    dear = runs({None: 0.1, 10: 0.009, 50: 0.045, 100: 0.1})  # k = 10 does not get there; k = 50 sends more than GD
    assert claims.bits_to("1e-8")("toy", dear)[0].verdict in ("undecided", "does not hold")
    dearer = runs({None: 0.1, 60: 0.05, 80: 0.06, 100: 0.1})
    assert claims.bits_to("1e-8")("toy", dearer)[0].verdict == "does not hold"


def test_without_a_ridge_the_yardstick_is_the_method_without_compression_as_all_are_slower_than_gd() -> None:
    slow: dict[int | None, float] = {None: 0.4, 10: 0.05, 50: 0.08, 100: 0.1}
    (claim,) = claims.rounds_to("1e-8", ridge=False)("toy", runs(slow))
    assert claim.verdict == "holds"
    assert "than with k = d" in claim.text
    (quicker,) = claims.rounds_to("1e-8", ridge=False)("toy", runs(slow | {50: 0.15}))
    assert quicker.verdict == "does not hold"
    assert claims.rounds_to("1e-8")("toy", runs(slow | {50: 0.15}))[0].verdict == "holds"  # it could not fail


def test_k_equal_to_d_is_no_compression() -> None:
    (claim,) = claims.rounds_to("1e-8")("toy", runs({None: 0.1, 100: 0.1, 50: 0.08}))
    assert "k = 100" not in claim.measured


def test_a_tie_with_gradient_descent_is_not_more_rounds() -> None:
    def tied(every: int) -> list[Row]:
        made = runs(USUAL)
        rounds = next(row["rounds_to"] for row in made if row["method"] == "GD")
        return [row | {"every": every} | ({"rounds_to": rounds} if row.get("k") == 50 else {}) for row in made]

    (claim,) = claims.rounds_to("1e-8")("toy", tied(1))
    assert (claim.verdict, claim.basis) == ("does not hold", "k = 50: a tie with all 3 seeds")
    (claim,) = claims.rounds_to("1e-8")("toy", tied(4))  # between the points k = 50 may have been later
    assert claim.verdict == "undecided"


def test_a_lead_within_the_rounds_between_two_points_decides_nothing() -> None:
    close = [row | {"every": 40} for row in runs(USUAL)]  # k = 50 needs 220 rounds or more, GD 175
    assert claims.rounds_to("1e-8")("toy", close)[0].verdict == "holds"
    for make in (claims.rounds_to, claims.bits_to):
        (claim,) = make("1e-8")("toy", [row | {"every": 200} for row in close])
        assert claim.verdict == "undecided"
        assert claim.basis.endswith("only")


def test_a_level_that_is_not_reached_confirms_nothing() -> None:
    for make in (claims.rounds_to, claims.bits_to):
        assert make("1e-40")("toy", runs(USUAL, 1e-40))[0].verdict == "undecided"
    never = runs({None: 0.1, 10: 0.001, 50: 0.002, 100: 0.1})
    (claim,) = claims.rounds_to("1e-8")("toy", never)
    assert claim.verdict == "undecided"
    assert claim.basis == "no k < d gets there within the rounds"


def test_more_coordinates_must_mean_fewer_rounds() -> None:
    start = runs({10: 0.05}, alpha=0.1, start=0.01)
    order, lower = claims.diana("toy", runs({10: 0.05, 50: 0.08, 100: 0.1}) + start)
    assert (order.verdict, lower.verdict) == ("holds", "holds")
    order, lower = claims.diana("toy", runs({10: 0.05, 50: 0.08, 100: 0.04}) + runs({10: 0.05}, alpha=0.1, start=2.0))
    assert (order.verdict, lower.verdict) == ("does not hold", "does not hold")


def test_a_neighbourhood_must_shrink_and_stay_within_its_bound() -> None:
    def judged(floors: dict[int, float], share: float) -> list[str]:
        rows = [
            {"dataset": "toy", "method": "DCGD", "alpha": 1.0, "k": k, "seed": seed}
            | {"floor": floor * (1 + 0.01 * seed), "share": share * (1 + 0.01 * seed)}
            for k, floor in floors.items()
            for seed in range(3)
        ]
        return [claim.verdict for claim in claims.neighbourhood("toy", rows)]

    assert judged({1: 1e-1, 5: 1e-2, 9: 1e-3, 10: 1e-9}, 0.1) == ["holds", "holds"]
    assert judged({1: 1e-2, 5: 1e-1, 9: 1e-3, 10: 1e-9}, 2.0) == ["does not hold", "does not hold"]


def test_gradient_descent_is_judged_by_numbers_that_no_seed_changes() -> None:
    def judged(*facts: tuple[float, float, float]) -> list[str]:
        rows = [{"start": start, "rate": rate, "over_bound": over} for start, rate, over in facts]
        return [claim.verdict for claim in claims.gradient_descent("toy", rows)]

    assert judged((1.0, 0.1, 0.9), (0.1, 0.15, 1.0)) == ["holds"] * 3
    assert judged((0.1, 0.1, 0.9), (1.0, 0.3, 1.1)) == ["does not hold"] * 3
