"""FedBC, Fig. 2: claims that can fail, and a small run from end to end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polyfed.papers.catalogue import get
from polyfed.papers.fedbc import tolerances
from polyfed.papers.fedbc.paper import POOLED, Effort
from polyfed.papers.shared.experiment import Row, silent
from tests.papers.fedbc.made_up import TASK, rows_of

LEVELS = (0.0, 0.01, 1.0)


def rows(shared: tuple[float, ...], own: tuple[float, ...]) -> list[Row]:
    """At three tolerances: the global model's accuracy, and the own models'; the others have 0.65."""
    made = [
        row | {"start": start, "tolerance": level}
        for start in tolerances.STARTS
        for level, a, b in zip(LEVELS, shared, own, strict=True)
        for row in rows_of("FedBC", None, 1 + int(level), **{POOLED: a, tolerances.OWN: b})
    ]
    return made + [row for label in tolerances.OTHERS for row in rows_of(label, **{POOLED: 0.65})]


def verdicts(*given: tuple[float, ...]) -> list[str]:
    return [claim.verdict for claim in tolerances.judge(rows(*given))[:8]]


def test_the_trade_off_needs_a_better_global_model_at_a_small_tolerance() -> None:
    up, down = (0.8, 0.85, 0.9), (0.9, 0.85, 0.8)
    assert verdicts((0.7, 0.75, 0.5), up) == ["holds"] * 8
    assert verdicts((0.7, 0.66, 0.5), up)[0] == "does not hold"
    assert verdicts((0.7, 0.75, 0.5), down)[2:4] == ["does not hold"] * 2
    assert verdicts((0.7, 0.75, 0.5), (0.8, 0.9, 0.7))[2:4] == ["holds", "does not hold"]


def test_each_method_of_the_caption_is_compared_with() -> None:
    """With SCAFFOLD alone above all tolerances, the claims against it fail and no others."""
    made = rows((0.7, 0.75, 0.5), (0.8, 0.85, 0.9))
    raised = [row | {POOLED: row[POOLED] + 0.2} if row["method"] == "SCAFFOLD" else row for row in made]
    failed = [claim.text for claim in tolerances.judge(raised) if claim.verdict == "does not hold"]
    assert len(failed) == len(tolerances.STARTS)
    assert all(text.endswith("gives a better global model than SCAFFOLD.") for text in failed)
    texts = [claim.text for claim in tolerances.judge(made)]
    for rival in ("FedAvg, by size", "FedProx", "SCAFFOLD", "FedAvg, uniform (not in the paper)"):
        assert sum(f"than {rival}." in text for text in texts) == len(tolerances.STARTS)


def test_no_tolerance_is_chosen_by_results() -> None:
    """The largest tolerance of the paper's region stands against the largest of all, and against the others."""
    own = (0.8, 0.85, 0.9)
    assert verdicts((0.9, 0.6, 0.7), own)[1] == "does not hold"  # the best, 0, is not in the region
    assert verdicts((0.5, 0.6, 0.7), own)[1] == "does not hold"
    assert verdicts((0.9, 0.6, 0.8), own)[4:] == ["does not hold"] * 4


@pytest.mark.full
def test_the_trade_off_runs_from_end_to_end(monkeypatch) -> None:
    monkeypatch.setattr(tolerances, "synthetic", lambda epochs, quick: replace(TASK, every=TASK.rounds))
    monkeypatch.setattr(tolerances, "effort", lambda quick: Effort(seeds=1, budget=1))
    monkeypatch.setattr(tolerances, "TOLERANCES", (0.0, 0.01, 0.02, 0.1, 1.0))
    experiment = get("fedbc/fig2")
    measured = experiment.run(True, silent)
    claims = experiment.judge(measured.rows)
    assert len(claims) == 16
    assert sum("FedAvg, uniform (not in the paper)" in claim.text for claim in claims) == 2
    assert {row["start"] for row in measured.rows if "start" in row} == {"own", "server"}
    assert {row["method"] for row in measured.rows} == {"FedBC", *tolerances.OTHERS}
