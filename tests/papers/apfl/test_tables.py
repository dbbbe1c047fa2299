"""APFL's tables: claims that can fail, and the paper's numbers beside ours."""

from __future__ import annotations

import math
from itertools import pairwise

from polyfed.papers.apfl import tables, writers
from polyfed.papers.apfl.methods import ADAPTIVE
from polyfed.papers.shared.comparison import Compared
from tests.papers.apfl.made_up import compared_rows, rows_of


def test_table_2_is_judged_in_its_order() -> None:
    accuracy = dict.fromkeys(tables.TABLE2, 0.93)
    accuracy |= {"APFL, α = 0.25": 0.96, "perFedAvg": 0.95, "FedAvg, localized": 0.94, "pFedMe": 0.92}
    accuracy |= {"FedAvg, global": 0.9}
    *order, accurate = tables.judge_table2(compared_rows("MNIST", accuracy))
    assert [claim.verdict for claim in order] == ["holds"] * 4
    assert accurate.verdict == "does not hold"  # 94% of the test rows
    accuracy |= {"pFedMe": 0.5, ADAPTIVE: 0.99}
    *order, accurate = tables.judge_table2(compared_rows("MNIST", accuracy))
    assert [claim.verdict for claim in order] == ["holds", "holds", "holds", "does not hold"]
    assert accurate.verdict == "undecided"  # 100% of the test rows, 97% of the validation rows
    assert "97.00 ± 1.00% on validation rows" in accurate.measured


def test_table_1_needs_every_apfl_above_a_rival() -> None:
    accuracy = {"APFL, α = 0.25": 0.9, ADAPTIVE: 0.8, "FedAvg, localized": 0.85, "FedAvg, global": 0.4}
    localized, shared, reached = tables.judge_table1(compared_rows("CIFAR-10", accuracy))
    assert (localized.verdict, shared.verdict) == ("does not hold", "holds")
    assert "APFL, α = 0.25 is at least 85.0%" in reached.text  # the best on validation rows
    assert reached.verdict == "holds"


def test_a_table_shows_ours_beside_the_papers() -> None:
    rows = compared_rows("CIFAR-10", dict.fromkeys(tables.TABLE1, 0.9))
    lines = tables._table(Compared(rows), "CIFAR-10", tables.TABLE1).splitlines()
    (line,) = (line for line in lines if line.startswith("| FedAvg, global |"))
    assert line.startswith("| FedAvg, global | 0.11")
    assert line.endswith("| 1.789 | 32.51% | +55.49 |")


def test_writers_need_the_same_training_loss_not_a_lower_one() -> None:
    def verdicts(loss: float, untuned: float | None = None) -> list[str]:
        ours = rows_of(writers.WRITERS, ADAPTIVE, 0.9, loss)
        if untuned is not None:
            ours += rows_of(writers.UNTUNED, ADAPTIVE, untuned, 0.5)
        return [claim.verdict for claim in writers.judge(ours + rows_of(writers.WRITERS, writers.RIVAL, 0.8, 0.1))]

    assert verdicts(0.105) == ["holds", "holds"]
    assert verdicts(0.105, 0.5) == ["holds", "holds"]  # untuned rows decide nothing
    assert verdicts(0.01) == ["does not hold", "holds"]  # lower, but not the same


def test_perfedavgs_grid_has_no_hole_and_the_papers_values_in_it() -> None:
    entry = tables.table2_entries({"local_steps": 20, "batch": 20}, 20)["perFedAvg"]
    rates = dict(entry.space)["lr"]
    assert max(b / a for a, b in pairwise(rates)) < 4
    assert dict(entry.options)["lr"] in rates
    assert math.prod(len(values) for _, values in entry.space) == 12
