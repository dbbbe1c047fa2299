"""FLIX's Fig. 5 with Tables 1 and 3: equal budgets, and a claim about the alpha that validation rows choose."""

from __future__ import annotations

import math

from polyfed.papers.flix import nets
from polyfed.papers.shared.net_tasks import ROLES, WRITERS
from tests.papers.apfl.made_up import rows_of


def test_flix_and_fedavg_have_as_many_candidates() -> None:
    for task in nets.flix_tasks(False).values():
        spaces = nets.entries(task, (("plm_batch", 20), ("plm_lr", 0.1)))
        counts = {math.prod(len(values) for _, values in entry.space) for entry in spaces.values()}
        assert counts == {len(task.lrs)}


def rows(chosen_by: dict[float, float], test: dict[float, float], fedavg: float) -> list[dict]:
    made = []
    for column in (WRITERS, ROLES):
        for alpha, value in test.items():
            for row in rows_of(column, f"FLIX, α = {alpha:g}", value):
                made.append(row | {"validation_accuracy": chosen_by[alpha]})
        for label, value in ((nets.FEDAVG, fedavg), ("alone", 0.5)):
            made += [row | {"validation_accuracy": value} for row in rows_of(column, label, value)]
    return made


def test_the_alpha_is_chosen_by_validation_rows_and_judged_by_test_rows() -> None:
    chosen = {0.1: 0.7, 0.3: 0.9}
    ahead = rows(chosen, {0.1: 0.6, 0.3: 0.8}, 0.7)
    behind = rows(chosen, {0.1: 0.9, 0.3: 0.6}, 0.7)
    assert [claim.verdict for claim in nets.judge(ahead)] == ["holds"] * 4
    assert [claim.verdict for claim in nets.judge(behind)][::2] == ["does not hold"] * 2
    assert all("α = 0.3" in claim.text for claim in nets.judge(behind))


def test_the_table_has_the_papers_values_beside_ours() -> None:
    [table] = nets.tables(rows({0.1: 0.7, 0.3: 0.9}, {0.1: 0.6, 0.3: 0.8}, 0.7))
    for start, end in (
        ("| FLIX, α = 0.3 | MNIST by writer | 81.0", "% | 86.91% |"),
        ("| FedAvg | Shakespeare by role | 71.0", "% | 56.29% |"),
    ):
        [line] = [line for line in table.split("\n") if line.startswith(start)]
        assert line.endswith(end)
