"""APFL's tables: claims that can fail, and the paper's numbers beside ours."""

from __future__ import annotations

from polyfed.papers.apfl import tables
from polyfed.papers.apfl.methods import ADAPTIVE
from tests.papers.apfl.made_up import made_up_comparison


def test_table_2_is_judged_in_its_order() -> None:
    accuracy = dict.fromkeys(tables.TABLE2, 0.96)
    accuracy |= {"APFL, α = 0.25": 0.98, "perFedAvg": 0.97, "FedAvg, localized": 0.96, "pFedMe": 0.95}
    accuracy |= {"FedAvg, global": 0.9}
    *order, accurate = tables._table2_claims(made_up_comparison("MNIST", accuracy))
    assert all(claim.passed for claim in order)
    assert not accurate.passed  # 96.5% in the mean of two seeds
    accuracy |= {"pFedMe": 0.5, ADAPTIVE: 0.99}
    *order, accurate = tables._table2_claims(made_up_comparison("MNIST", accuracy))
    assert [claim.passed for claim in order] == [True, True, True, False]
    assert not accurate.passed  # 99.5% of the test rows, but 96.5% of the validation rows
    assert "96.50 ± 0.71% on validation rows" in accurate.measured


def test_a_table_shows_ours_beside_the_papers() -> None:
    lines = tables._table(made_up_comparison("CIFAR-10", dict.fromkeys(tables.TABLE1, 0.9)), "CIFAR-10", tables.TABLE1)
    expected = "| FedAvg, global | 0.1050 ± 0.0071 | 90.50 ± 0.71% | 87.50 ± 0.71% | 1.789 | 32.51% | +54.99 |"
    assert expected in lines.splitlines()
