"""FLIX, Fig. 4: its claims on made-up errors, and small runs."""

from __future__ import annotations

import csv

import pytest

from polyfed import papers
from polyfed.papers.flix import sine_nets, sines

TINY = sine_nets.Scale(((1, 3),), (0.5, 1.0), 2, stationary=3e-3, points=8, test_points=16)


def made_up(*curves: tuple[float, float, float, float]) -> list[dict[str, float | str]]:
    """A draw's test errors at alpha = 0, 0.3, 0.6, 1."""
    return [
        {"split": "1/3", "draw": draw, "alpha": alpha, "test_error": value}
        for draw, curve in enumerate(curves, 1)
        for alpha, value in zip((0.0, 0.3, 0.6, 1.0), curve, strict=True)
    ]


def test_an_alpha_in_between_must_beat_both_extremes_draw_by_draw():
    hills = [(4.0, 3.0, 2.0, 9.0), (4.4, 3.2, 2.3, 9.1), (4.1, 3.2, 2.1, 9.3)]
    between, over_global, over_local = sines.judge(made_up(*hills))
    assert between.verdict == "holds"
    assert "at alpha = 0.6, 4.17e+00 pure local, 9.13e+00 global" in between.measured
    assert over_global.verdict == "holds"
    assert over_local.verdict == "undecided"  # 51% of the pure local error is not certainly a half
    for edge in ((1.0, 2.0, 3.0, 4.0), (4.0, 3.0, 2.0, 1.0)):
        draws = [tuple(value * (1 + 0.01 * i) for value in edge) for i in range(3)]
        shaken = [(a, b * (1 + 0.002 * i), c * (1 - 0.001 * i), d) for i, (a, b, c, d) in enumerate(draws)]
        assert sines.judge(made_up(*shaken))[0].verdict == "does not hold"
    assert sines.judge(made_up(hills[0]))[0].verdict == "undecided"  # one draw


@pytest.mark.full
def test_a_run_has_a_row_for_every_draw_split_and_alpha(monkeypatch, tmp_path):
    monkeypatch.setattr(sines, "QUICK", TINY)
    ((_, folder, outcome),) = papers.reproduce("flix/fig4", tmp_path, quick=True)
    with (folder / "data.csv").open() as file:
        rows = list(csv.DictReader(file))
    expected = [("1/3", draw, alpha) for draw in ("1", "2") for alpha in ("0.0", "0.5", "1.0")]
    assert [(row["split"], row["draw"], row["alpha"]) for row in rows] == expected
    for row in rows:
        whole, smaller, larger = (float(row[f"test_error{end}"]) for end in ("", "_smaller_group", "_larger_group"))
        assert whole == pytest.approx((smaller + 3 * larger) / 4, rel=1e-12)
        assert float(row["grad_norm"]) < (3e-3 if float(row["alpha"]) == 0 else 1e-2)
    assert len(outcome.claims) == 3
    assert "8 of 8 pure local models ended with |grad f_i| < 0.003" in outcome.measured.notes[0]
    assert len(outcome.figures[0].axes) == 3


@pytest.mark.full
def test_the_quick_version_has_one_draw_and_decides_nothing(tmp_path):
    ((_, folder, outcome),) = papers.reproduce("flix/fig4", tmp_path, quick=True)
    assert len(outcome.measured.rows) == 14
    assert (folder / "figure.svg").stat().st_size > 5000
    assert {claim.verdict for claim in outcome.claims} == {"undecided"}
    assert all(row["grad_norm"] < 1e-2 for row in outcome.measured.rows)
