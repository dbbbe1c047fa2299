"""Scafflix's Fig. 2 and 4: equal budgets, one step for all deployed models, and claims that can fail."""

from __future__ import annotations

import math

import pytest

from polyfed.papers.scafflix import nets
from tests.papers.apfl.made_up import rows_of


@pytest.mark.parametrize("size", [nets.paper_size, nets.small_size])
def test_every_method_has_as_many_candidates(size) -> None:
    for task in size().values():
        spaces = {**nets.lonely(task), **nets.entries(task, 0.1)}
        counts = {math.prod(len(values) for _, values in entry.space) for entry in spaces.values()}
        assert counts == {task.budget}


def test_flix_moves_a_deployed_model_as_far_as_scafflix() -> None:
    """FLIX: alpha * lr * alpha times a gradient; Scafflix: alpha * lr / alpha."""
    task = nets.small_size()[nets.WRITERS]
    made = nets.entries(task, 0.1)
    for alpha in task.alphas:
        flix, scafflix = (dict(made[nets.label_of(name, alpha)].space)["lr"] for name in ("FLIX", "Scafflix"))
        assert [alpha**2 * lr for lr in flix] == pytest.approx(scafflix)


def test_scafflix_must_end_ahead() -> None:
    def verdicts(ours: float) -> list[str]:
        labels = {nets.label_of("Scafflix", 0.1): ours, nets.label_of("FLIX", 0.1): 0.8}
        labels |= dict.fromkeys(nets.OTHERS, 0.8)
        rows = [row for label, value in labels.items() for row in rows_of(nets.WRITERS, label, value)]
        return [claim.verdict for claim in nets.judge(rows)]

    assert verdicts(0.9) == ["holds"] * 5
    assert verdicts(0.7) == ["does not hold"] * 5
