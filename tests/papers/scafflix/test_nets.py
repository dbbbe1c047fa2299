"""Scafflix's Fig. 2, 4 and 5: equal budgets, one step for all deployed models, and claims that can fail."""

from __future__ import annotations

import math

import pytest

from polyfed.papers.scafflix import nets
from polyfed.papers.shared import net_tasks
from polyfed.papers.shared.net_tasks import ROLES, WRITERS, label_of
from tests.papers.apfl.made_up import rows_of


@pytest.mark.parametrize("size", [net_tasks.accelerator_size, net_tasks.small_size])
def test_every_method_has_as_many_candidates(size) -> None:
    for task in size().values():
        spaces = {**nets.lonely(task), **nets.entries(task, 0.1, task.alphas)}
        counts = {math.prod(len(values) for _, values in entry.space) for entry in spaces.values()}
        assert counts == {task.budget}


def test_the_alphas_of_figure_2_are_among_those_of_every_size() -> None:
    for size in (net_tasks.accelerator_size(), net_tasks.small_size(), net_tasks.quick_size()):
        assert all(nets.SHOWN[name] in task.alphas for name, task in size.items())


def test_flix_moves_a_deployed_model_as_far_as_scafflix() -> None:
    """FLIX: alpha * lr * alpha times a gradient; Scafflix: alpha * lr / alpha."""
    task = net_tasks.small_size()[WRITERS]
    made = nets.entries(task, 0.1, task.alphas)
    for alpha in task.alphas:
        flix, scafflix = (dict(made[label_of(name, alpha)].space)["lr"] for name in ("FLIX", "Scafflix"))
        assert [alpha**2 * lr for lr in flix] == pytest.approx(scafflix)


def test_scafflix_must_end_ahead_at_the_alphas_of_each_dataset() -> None:
    def verdicts(ours: float) -> list[str]:
        rows = []
        for column, alpha in ((WRITERS, 0.1), (ROLES, 0.3)):
            labels = {label_of("Scafflix", alpha): ours, label_of("FLIX", alpha): 0.8}
            labels |= dict.fromkeys(nets.OTHERS, 0.8)
            rows += [row for label, value in labels.items() for row in rows_of(column, label, value)]
        return [claim.verdict for claim in nets.judge(rows)]

    assert verdicts(0.9) == ["holds"] * 10
    assert verdicts(0.7) == ["does not hold"] * 10


def test_a_page_names_the_size_of_what_was_run_on_it_and_of_nothing_else() -> None:
    sizes = {name: task.size() for name, task in net_tasks.small_size().items()}
    both, plays = net_tasks.scope_of(sizes), net_tasks.scope_of({ROLES: sizes[ROLES]})
    assert both.count("instead of all") == 2
    assert both.startswith("**Not the paper's size")
    assert (WRITERS in plays, "12 roles instead of all" in plays) == (False, True)
    assert net_tasks.scope_of({WRITERS: ""}) == ""


def test_a_page_names_the_rounds_that_are_run_beside_each_papers() -> None:
    small, large = net_tasks.small_size()[ROLES], net_tasks.accelerator_size()[ROLES]
    assert "30 rounds instead of 1,000" in small.size()
    assert "30 rounds instead of 3,000" in small.whole_size(net_tasks.FLIX_ROUNDS)
    assert large.size().endswith("1,000 rounds")
    assert "1,000 rounds instead of 3,000, alpha = 0.1" in large.whole_size(net_tasks.FLIX_ROUNDS)
    assert large.size(rounds=300).endswith("300 rounds instead of 1,000")
    assert net_tasks.quick_size()[ROLES].whole_size() == ""
