"""Scafflix's Fig. 3 and 6: claims that can fail, and comparisons at equal computation."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed.papers.scafflix import ablations
from polyfed.papers.scafflix.ablations import BY_ALPHA, BY_COHORT, BY_EXPONENT, BY_P, FULL, variants
from polyfed.papers.shared.net_tasks import small_size


def made_up(reached: dict[tuple[str, str], float]) -> list[dict]:
    """The start and three evaluations for each line and seed; with p, rounds cost 1 / p gradients each."""
    rows = []
    for (panel, label), value in reached.items():
        cost = 1 / float(label.removeprefix("p = ")) if panel == BY_P else 1.0
        for seed in range(5):
            for place, share in enumerate((0.0, 0.5, 0.8, 1.0)):
                accuracy = value * share + 0.001 * seed
                row = {"column": panel, "label": label, "seed": seed, "round": 100 * place, "test_accuracy": accuracy}
                rows.append(row | {"gradients": 100 * place * cost})
    return rows


def values(panel: str, best: str, high: float = 0.9, low: float = 0.8) -> dict[tuple[str, str], float]:
    return {(panel, line.label): high if line.label == best else low for line in variants(panel)}


def verdicts(rows: list[dict], judge) -> list[str]:
    return [claim.verdict for claim in judge(rows)]


def test_the_claims_of_figure_3_follow_the_values() -> None:
    p = {(BY_P, "p = 0.1"): 0.9, (BY_P, "p = 0.2"): 0.85, (BY_P, "p = 0.5"): 0.8}
    cohorts = {
        (BY_COHORT, ablations._clients(count)): value for count, value in ((1, 0.8), (5, 0.795), (10, 0.8), (20, 0.8))
    }
    rows = made_up(values(BY_ALPHA, "α = 0.3") | cohorts | p)
    assert verdicts(rows, ablations.judge_fig3)[:4] == ["holds"] * 4
    other = {(BY_P, "p = 0.1"): 0.8, (BY_P, "p = 0.2"): 0.85, (BY_P, "p = 0.5"): 0.9}
    far = {
        (BY_COHORT, ablations._clients(count)): value for count, value in ((1, 0.7), (5, 0.85), (10, 0.8), (20, 0.8))
    }
    rows = made_up(values(BY_ALPHA, "α = 0.9") | far | other)
    assert verdicts(rows, ablations.judge_fig3)[:4] == ["does not hold"] * 4


def test_equal_gradients_are_those_of_the_line_that_has_fewest() -> None:
    rows = made_up({(BY_P, "p = 0.5"): 0.8, (BY_P, "p = 0.2"): 0.9})
    reached = ablations.at_equal_gradients(rows, BY_P, ["p = 0.5", "p = 0.2"])
    # p = 0.5 ends after 600 gradients, p = 0.2 has 500 after its first evaluation and 1,000 after the second
    np.testing.assert_allclose(reached["p = 0.5"], 0.8 + 0.001 * np.arange(5))
    np.testing.assert_allclose(reached["p = 0.2"], 0.45 + 0.001 * np.arange(5))


def test_the_claims_of_figure_6_follow_the_values() -> None:
    good = made_up(values(FULL, "α = 0.3") | values(BY_EXPONENT, "α = 0.1"))
    bad = made_up(values(FULL, "α = 0.5") | values(BY_EXPONENT, "α = 1"))
    assert verdicts(good, ablations.judge_fig6) == ["holds", "holds"]
    assert verdicts(bad, ablations.judge_fig6) == ["does not hold", "does not hold"]


@pytest.mark.parametrize("panel", [BY_ALPHA, BY_COHORT, BY_P, FULL, BY_EXPONENT])
def test_a_panel_varies_one_thing_from_the_papers_defaults(panel) -> None:
    lines = variants(panel)
    assert len({line.label for line in lines}) == len(lines)
    varied = [len({getattr(line, name) for line in lines}) > 1 for name in ("alpha", "batch", "cohort", "p")]
    assert sum(varied) == 1


def test_the_small_size_has_stepsizes_for_every_line() -> None:
    assert all(task.budget == len(task.setting.rates) for task in small_size().values())
