"""FLIX, Fig. 4: its claims on made-up errors, and small runs."""

from __future__ import annotations

import csv

import pytest

from polyfed import papers
from polyfed.papers.flix import sine_nets, sines

TINY = sine_nets.Scale(((1, 3),), (0.5, 1.0), 2, points=8, test_points=16)


def made_up(*curves: tuple[float, float, float, float]) -> list[dict[str, float | str]]:
    """A draw's test errors at alpha = 0, 0.3, 0.6, 1."""
    return [
        {"split": "1/3", "draw": draw, "alpha": alpha, "test_error": value}
        for draw, curve in enumerate(curves, 1)
        for alpha, value in zip((0.0, 0.3, 0.6, 1.0), curve, strict=True)
    ]


def test_an_alpha_in_between_must_beat_both_extremes_in_the_mean_over_draws():
    between, over_global, over_local = sines.claims(made_up((4.0, 3.0, 2.0, 9.0), (4.0, 5.0, 4.0, 9.0)))
    assert between.passed
    assert "3.00e+00 at alpha = 0.6, 4.00e+00 pure local, 9.00e+00 global; 1 of 2 draws agree" in between.measured
    assert over_global.passed
    assert "33% (1/3)" in over_global.measured
    assert not over_local.passed
    assert "75% (1/3)" in over_local.measured
    for edge in ((1.0, 2.0, 3.0, 4.0), (4.0, 3.0, 2.0, 1.0)):
        assert not sines.claims(made_up(edge))[0].passed


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
        assert float(row["grad_norm"]) < 1e-2
    assert len(outcome.claims) == 3
    assert "8 of 8 pure local models ended with |grad f_i| < 0.01" in outcome.notes[0]
    assert len(outcome.figures[0].axes) == 3


@pytest.mark.full
def test_the_quick_version_beats_one_global_model(tmp_path):
    ((_, folder, outcome),) = papers.reproduce("flix/fig4", tmp_path, quick=True)
    assert len(outcome.rows) == 14
    assert (folder / "figure.svg").stat().st_size > 5000
    against_global = next(claim for claim in outcome.claims if "one global model dramatically" in claim.text)
    assert against_global.passed
    assert all(row["grad_norm"] < 1e-2 for row in outcome.rows)
