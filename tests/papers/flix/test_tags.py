"""The claims and choices of FLIX's figures of tags, on rows made up by hand."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed.papers.flix.tag_runs import RIVALS, STEPSIZES, rival_candidates
from polyfed.papers.flix.tags import best_alpha, draw_fig1, draw_grid, judge_fig1, judge_grid, recalls, winner

LEVELS = {"FLIX": 0.8, "FOMAML": 0.7, "Reptile": 0.6, "FedAvg": 0.75, "alone": 0.5, "constant": 0.4}


def rows(change=None):
    made = []
    for task in ("workers", "maintainers"):
        for seed in range(5):
            wobble = 0.001 * (seed % 2)
            for method, level in LEVELS.items():
                grid = [{"alpha": a, "lr": lr} for a in (0.4, 0.8, 1.0) for lr in (1.0, 10.0)]
                grid = (
                    grid if method == "FLIX" else [{"tolerance": t} for t in (0.1, 0.01)] if method == "alone" else [{}]
                )
                for numbers in grid:
                    better = {0.4: 0.02, 1.0: -0.1}.get(numbers.get("alpha", 0.0), 0.0) + 0.01 * (
                        numbers.get("lr") == 10
                    )
                    better += 0.01 * (numbers.get("tolerance") == 0.01)
                    value = level + better + wobble * (method == "FLIX")
                    row = {"task": task, "seed": seed, "method": method, **numbers, "test_recall": value}
                    row |= {"validation_recall": value, "validation_loss": 1 - value}
                    row |= {"reached": 1, "clients": 1, "largest_norm": 0.1, "iterations": 3, "train_loss": 0.1}
                    made.append(row if change is None else change(row))
    return made


def test_validation_rows_of_the_first_seed_choose():
    made = rows()
    assert {row["lr"] for row in winner(made, "workers", "FLIX", 0.8)} == {10.0}
    assert {row["tolerance"] for row in winner(made, "workers", "alone")} == {0.01}
    assert best_alpha(made, "workers") == 0.4
    np.testing.assert_allclose(recalls(made, "workers", "FLIX", 0.0), 0.51)

    def upside_down(row):
        return row | {"validation_recall": 1 - row["test_recall"]} if row["seed"] == 0 else row

    turned = rows(upside_down)
    assert {row["lr"] for row in winner(turned, "workers", "FLIX", 0.8)} == {1.0}
    assert best_alpha(turned, "workers") == 0.8


def test_claims_follow_the_rows():
    assert [claim.verdict for claim in judge_fig1(rows())] == ["holds"] * 7

    def strong_reptile(row):
        return row | {"test_recall": 0.9} if row["method"] == "Reptile" else row

    verdicts = [claim.verdict for claim in judge_fig1(rows(strong_reptile))]
    assert verdicts == ["does not hold", "does not hold", *["holds"] * 5]


@pytest.mark.parametrize(
    ("best", "verdict"), [({0.2: 100, 0.6: 10, 1.0: 1}, "holds"), ({0.2: 1, 0.6: 10, 1.0: 100}, "does not hold")]
)
def test_the_grid_asks_where_the_loss_is_lowest(best, verdict):
    made = [
        {
            "seed": seed,
            "alpha": alpha,
            "lr": lr,
            "validation_loss": 1 + abs(np.log10(lr / best[alpha])),
            "validation_recall": 0.5,
        }
        for seed in range(3)
        for alpha in best
        for lr in (1, 10, 100)
    ]
    assert [claim.verdict for claim in judge_grid(made)] == [verdict, verdict]
    assert len(draw_grid(made).axes) == 2


def test_figure_1_has_a_panel_for_each_way_to_make_clients():
    assert len(draw_fig1(rows()).axes) == 2


def test_every_method_has_as_many_candidates():
    assert {method: len(rival_candidates(method)) for method in RIVALS} == dict.fromkeys(RIVALS, len(STEPSIZES))
