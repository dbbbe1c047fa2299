"""The claims of Scafflix's figure on made-up costs, where it is known whether they hold."""

from __future__ import annotations

from polyfed.papers.scafflix import convex


def test_scafflix_is_judged_by_the_mean_over_seeds_and_says_how_many_do_alone():
    cost: convex.Costs = {
        ("mushrooms", "GD", 1.0): [400],
        ("mushrooms", "GD", 0.1): [300],
        ("mushrooms", "GD", 0.01): [200],
        ("mushrooms", "Scafflix", 1.0): [70, 90],
        ("mushrooms", "Scafflix", 0.1): [59, 63],
        ("mushrooms", "Scafflix", 0.01): [40, None],
    }
    first, second, third, gd, own = convex._claims("mushrooms", cost, (1.0, 0.1, 0.01))
    assert first.passed  # 80 is a fifth of 400
    assert "1 of 2 single seeds would do" in first.measured
    assert not second.passed  # 61 is more than 60
    assert not third.passed
    assert "not reached by 1 of 2 seeds" in third.measured
    assert gd.passed
    assert not own.passed


def test_elsewhere_scafflix_must_be_faster_and_no_more():
    cost: convex.Costs = {
        ("toy", method, alpha): [rounds]
        for method, costs in (("GD", (90, 80, 70)), ("Scafflix", (30, 20, 90)))
        for alpha, rounds in zip((1.0, 0.1, 0.01), costs, strict=True)
    }
    first, second, third, *_ = convex._claims("toy", cost, (1.0, 0.1, 0.01))
    assert first.passed
    assert "3.0 times fewer" in first.measured
    assert second.passed
    assert not third.passed  # 90 rounds against GD's 90
