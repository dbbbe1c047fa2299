"""The claims of the reproduced figures on made-up curves, where it is known whether they hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polyfed import papers
from polyfed.papers.flix import claims as flix_claims
from polyfed.papers.scafflix import convex as scafflix
from polyfed.papers.shared import convex_runs as runs
from polyfed.papers.shared import experiment as base
from polyfed.papers.shared.convex_runs import Run


def curve(rate: float, bits: float, rounds: int = 400, start: float = 1.0) -> tuple[dict[str, float], ...]:
    """f - f* = start (1 - rate)^t, at `bits` a round."""
    return tuple({"round": t, "gap": start * (1 - rate) ** t, "bits": t * bits} for t in range(rounds + 1))


def compressed(k: int | None, alpha: float = 1.0) -> Run:
    return Run("toy", 8, 0.1, "GD" if k is None else "DIANA", alpha, 400, k)


@pytest.fixture
def curves():
    """GD falls by 10% a round with 100 numbers; k = 10 by 5%, k = 50 by 8%."""
    return {
        compressed(None): curve(0.1, 6400),
        compressed(10): curve(0.05, 640),
        compressed(50): curve(0.08, 3200),
        compressed(100): curve(0.1, 6400),
        compressed(10, 0.1): curve(0.05, 640, start=0.01),
    }


def test_the_cost_of_a_level_is_that_of_the_first_point_at_or_under_it(curves):
    rows = curves[compressed(None)]
    needed = math.ceil(math.log(1e-8) / math.log(0.9))
    assert runs.first(rows, 1e-8) == needed
    assert runs.first(rows, 1e-8, "bits") == 6400 * needed
    assert runs.first(rows, 1e-30) is None


def test_a_rate_is_read_off_a_curve(curves):
    assert flix_claims.rate(curves[compressed(50)]) == pytest.approx(0.08, rel=1e-9)
    assert np.isnan(flix_claims.rate(curves[compressed(None)][:5]))


def test_gd_wins_in_rounds_and_compression_in_bits(curves):
    todo = list(curves)
    (rounds,) = flix_claims.rounds_to(1e-8, "1e-8")("toy", curves, todo)
    (bits,) = flix_claims.bits_to(1e-8, "1e-8")("toy", curves, todo)
    assert rounds.passed
    assert bits.passed
    assert "at k = 10" in bits.measured
    curves[compressed(50)] = curve(0.5, 64000)  # now k = 50 is quicker, at a higher price
    curves[compressed(10)] = curve(0.005, 640)
    assert not flix_claims.rounds_to(1e-8, "1e-8")("toy", curves, todo)[0].passed
    assert not flix_claims.bits_to(1e-8, "1e-8")("toy", curves, todo)[0].passed


def test_a_level_that_gd_does_not_reach_confirms_nothing(curves):
    for make in (flix_claims.rounds_to, flix_claims.bits_to):
        assert not make(1e-40, "1e-40")("toy", curves, list(curves))[0].passed


def test_more_coordinates_must_mean_fewer_rounds(curves):
    todo = [run for run in curves if run.k is not None]
    order, start = flix_claims.diana("toy", curves, todo)
    assert order.passed
    assert start.passed
    curves[compressed(100)] = curve(0.04, 6400)
    assert not flix_claims.diana("toy", curves, todo)[0].passed


def test_scafflix_is_judged_by_the_mean_over_seeds_and_says_how_many_do_alone():
    cost: scafflix.Costs = {
        ("mushrooms", "GD", 1.0): [400],
        ("mushrooms", "GD", 0.1): [300],
        ("mushrooms", "GD", 0.01): [200],
        ("mushrooms", "Scafflix", 1.0): [70, 90],
        ("mushrooms", "Scafflix", 0.1): [59, 63],
        ("mushrooms", "Scafflix", 0.01): [40, None],
    }
    first, second, third, gd, own = scafflix._claims("mushrooms", cost, (1.0, 0.1, 0.01))
    assert first.passed  # 80 is a fifth of 400
    assert "1 of 2 seeds would do alone" in first.measured
    assert not second.passed  # 61 is more than 60
    assert not third.passed
    assert "not reached by 1 of 2 seeds" in third.measured
    assert gd.passed
    assert not own.passed


def test_elsewhere_scafflix_must_be_faster_and_no_more():
    cost: scafflix.Costs = {
        ("toy", method, alpha): [rounds]
        for method, costs in (("GD", (90, 80, 70)), ("Scafflix", (30, 20, 90)))
        for alpha, rounds in zip((1.0, 0.1, 0.01), costs, strict=True)
    }
    first, second, third, *_ = scafflix._claims("toy", cost, (1.0, 0.1, 0.01))
    assert first.passed
    assert "3.0 times fewer" in first.measured
    assert second.passed
    assert not third.passed  # 90 rounds against GD's 90


def test_seven_values_of_k_are_linearly_spaced_from_one_to_the_dimension():
    assert runs.spaced(112) == [1, 20, 38, 56, 75, 94, 112]
    assert runs.spaced(22, 4) == [1, 8, 15, 22]


def test_the_papers_figures_are_registered_with_captions_that_name_the_stand_ins():
    names = [row["name"] for row in papers.reproduce_list() if row["name"].startswith(("flix/", "scafflix/"))]
    assert names == [*(f"flix/fig{n}" for n in (2, 3, 4, *range(8, 16))), "scafflix/fig1"]
    found = base.load_all()
    assert all(found[name].differences for name in found)
    for name in names:
        if name != "flix/fig4":  # its data are generated
            assert "w6a" in found[name].caption
            assert name.startswith("scafflix") or "ijcnn1" in found[name].caption
