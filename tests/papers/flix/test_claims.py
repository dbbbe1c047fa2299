"""The claims of FLIX's convex figures on made-up curves, where it is known whether they hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polyfed.papers.flix import claims
from polyfed.papers.shared.convex_runs import ConvexRun, cost_to_reach


def curve(rate: float, bits: float, rounds: int = 400, start: float = 1.0) -> tuple[dict[str, float], ...]:
    """f - f* = start (1 - rate)^t, at `bits` a round."""
    return tuple({"round": t, "gap": start * (1 - rate) ** t, "bits": t * bits} for t in range(rounds + 1))


def compressed(k: int | None, alpha: float = 1.0) -> ConvexRun:
    return ConvexRun("toy", 8, 0.1, "GD" if k is None else "DIANA", alpha, 400, k)


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
    assert cost_to_reach(rows, 1e-8) == needed
    assert cost_to_reach(rows, 1e-8, "bits") == 6400 * needed
    assert cost_to_reach(rows, 1e-30) is None


def test_a_rate_is_read_off_a_curve(curves):
    assert claims.rate(curves[compressed(50)]) == pytest.approx(0.08, rel=1e-9)
    assert np.isnan(claims.rate(curves[compressed(None)][:5]))


def test_gd_wins_in_rounds_and_compression_in_bits(curves):
    todo = list(curves)
    (rounds,) = claims.rounds_to(1e-8, "1e-8")("toy", curves, todo)
    (bits,) = claims.bits_to(1e-8, "1e-8")("toy", curves, todo)
    assert rounds.passed
    assert bits.passed
    assert "at k = 10" in bits.measured
    curves[compressed(50)] = curve(0.5, 64000)  # now k = 50 is quicker, at a higher price
    curves[compressed(10)] = curve(0.005, 640)
    assert not claims.rounds_to(1e-8, "1e-8")("toy", curves, todo)[0].passed
    assert not claims.bits_to(1e-8, "1e-8")("toy", curves, todo)[0].passed


def test_a_level_that_gd_does_not_reach_confirms_nothing(curves):
    for make in (claims.rounds_to, claims.bits_to):
        assert not make(1e-40, "1e-40")("toy", curves, list(curves))[0].passed


def test_more_coordinates_must_mean_fewer_rounds(curves):
    todo = [run for run in curves if run.k is not None]
    order, start = claims.diana("toy", curves, todo)
    assert order.passed
    assert start.passed
    curves[compressed(100)] = curve(0.04, 6400)
    assert not claims.diana("toy", curves, todo)[0].passed
