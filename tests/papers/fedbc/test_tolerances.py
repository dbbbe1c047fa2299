"""FedBC, Fig. 2: claims that can fail, and a small run from end to end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from polyfed.papers.catalogue import get
from polyfed.papers.fedbc import tolerances
from polyfed.papers.fedbc.paper import POOLED, Effort
from polyfed.papers.shared.experiment import silent
from tests.papers.fedbc.made_up import TASK


def test_the_trade_off_needs_a_better_global_model_in_the_middle() -> None:
    levels, own = (0.0, 0.1, 1.0), [np.array([a]) for a in (0.8, 0.85, 0.9)]
    hill, slope = ([np.array([a]) for a in means] for means in ((0.7, 0.75, 0.5), (0.7, 0.6, 0.5)))
    assert [claim.passed for claim in tolerances._tradeoff_claims("own", levels, hill, own)] == [True, True, True]
    assert [claim.passed for claim in tolerances._tradeoff_claims("own", levels, slope, own)] == [False, True, True]
    assert not tolerances._tradeoff_claims("own", levels, hill, own[::-1])[2].passed


def test_the_tolerance_that_is_compared_with_fedavg_is_not_chosen_on_test_rows() -> None:
    test, validation = ([np.array([a]) for a in means] for means in ((0.9, 0.7), (0.6, 0.8)))
    both = {("own", POOLED): test, ("own", tolerances.CHOSEN_BY): validation}
    chosen = tolerances._chosen((0.0, 1.0), both, "own")
    assert chosen == (1.0, np.array([0.7]))
    assert tolerances._above_claim("own", chosen, "FedAvg", np.array([0.65])).passed
    assert not tolerances._above_claim("own", chosen, "FedAvg", np.array([0.75])).passed


@pytest.mark.full
def test_the_trade_off_runs_from_end_to_end(monkeypatch) -> None:
    monkeypatch.setattr(tolerances, "synthetic", lambda epochs, quick: replace(TASK, every=TASK.rounds))
    monkeypatch.setattr(tolerances, "effort", lambda quick: Effort(seeds=1, budget=1))
    monkeypatch.setattr(tolerances, "TOLERANCES", (0.0, 0.1, 1.0))
    outcome = get("fedbc/fig2").run(True, silent)
    assert len(outcome.claims) == 10
    assert sum("FedAvg, uniform (not in the paper)" in claim.text for claim in outcome.claims) == 2
    assert {row["start"] for row in outcome.rows if "start" in row} == {"own", "server"}
    assert {row["method"] for row in outcome.rows if "method" in row} == {"FedAvg, by size", "FedAvg, uniform"}
