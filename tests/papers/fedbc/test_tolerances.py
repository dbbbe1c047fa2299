"""FedBC, Fig. 2: claims that can fail, and a small run from end to end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polyfed.papers.catalogue import get
from polyfed.papers.fedbc import tolerances
from polyfed.papers.fedbc.paper import AVERAGES, POOLED, Effort
from polyfed.papers.shared.experiment import Row, silent
from tests.papers.fedbc.made_up import TASK, rows_of

LEVELS = (0.0, 0.01, 1.0)


def rows(shared: tuple[float, ...], own: tuple[float, ...]) -> list[Row]:
    """At three tolerances: the global model's accuracy, and the own models'; FedAvg has 0.65."""
    made = [
        row | {"start": start, "tolerance": level}
        for start in tolerances.STARTS
        for level, a, b in zip(LEVELS, shared, own, strict=True)
        for row in rows_of("FedBC", None, 1 + int(level), **{POOLED: a, tolerances.OWN: b})
    ]
    return made + [row for label in AVERAGES for row in rows_of(label, **{POOLED: 0.65})]


def verdicts(*given: tuple[float, ...]) -> list[str]:
    return [claim.verdict for claim in tolerances.judge(rows(*given))[:5]]


def test_the_trade_off_needs_a_better_global_model_at_a_small_tolerance() -> None:
    up, down = (0.8, 0.85, 0.9), (0.9, 0.85, 0.8)
    assert verdicts((0.7, 0.75, 0.5), up) == ["holds"] * 5
    assert verdicts((0.7, 0.66, 0.5), up)[0] == "does not hold"
    assert verdicts((0.7, 0.75, 0.5), down)[2] == "does not hold"


def test_no_tolerance_is_chosen_by_results() -> None:
    """The largest tolerance of the paper's region stands against the largest of all, and against FedAvg."""
    own = (0.8, 0.85, 0.9)
    assert verdicts((0.9, 0.6, 0.7), own)[1] == "does not hold"  # the best, 0, is not in the region
    assert verdicts((0.5, 0.6, 0.7), own)[1] == "does not hold"
    assert verdicts((0.9, 0.6, 0.8), own)[3:] == ["does not hold"] * 2


@pytest.mark.full
def test_the_trade_off_runs_from_end_to_end(monkeypatch) -> None:
    monkeypatch.setattr(tolerances, "synthetic", lambda epochs, quick: replace(TASK, every=TASK.rounds))
    monkeypatch.setattr(tolerances, "effort", lambda quick: Effort(seeds=1, budget=1))
    monkeypatch.setattr(tolerances, "TOLERANCES", (0.0, 0.01, 0.02, 0.1, 1.0))
    experiment = get("fedbc/fig2")
    measured = experiment.run(True, silent)
    claims = experiment.judge(measured.rows)
    assert len(claims) == 10
    assert sum("FedAvg, uniform (not in the paper)" in claim.text for claim in claims) == 2
    assert {row["start"] for row in measured.rows if "start" in row} == {"own", "server"}
    assert {row["method"] for row in measured.rows} == {"FedBC", "FedAvg, by size", "FedAvg, uniform"}
