"""FLIX: the mixture's constants, one-shot averaging, and the communication budget, by hand and at their limits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from polyfed import theory
from polyfed.core.errors import PolyfedError

L = np.array([4.0, 1.0, 2.0, 9.0])
MU = np.array([0.5, 0.1, 0.4, 3.0])
ALPHA = np.array([1.0, 0.5, 0.1, 0.3])


def test_the_mixture_has_the_mean_of_the_scaled_constants() -> None:
    assert theory.smoothness(L, ALPHA) == pytest.approx((4 + 0.25 + 0.02 + 0.81) / 4)
    assert theory.convexity(MU, ALPHA) == pytest.approx((0.5 + 0.025 + 0.004 + 0.27) / 4)
    assert theory.smoothness(L, 1.0) == pytest.approx(L.mean())  # alpha = 1: the average risk
    assert theory.convexity(MU, 1) == pytest.approx(MU.mean())
    assert theory.smoothness(L, 0.1) == pytest.approx(0.01 * L.mean())
    assert theory.gd_stepsize(L, 1) == pytest.approx(1 / L.mean())
    assert theory.gd_stepsize(L, 0) == np.inf


def test_one_shot_weights_minimise_the_weighted_distance() -> None:
    """A client's weight is its share of sum_i alpha_i^2 L_i: with equal alpha its share of L, with zero alpha none."""
    np.testing.assert_allclose(theory.one_shot_weights(L, 0.3), L / 16)
    np.testing.assert_allclose(theory.one_shot_weights(L, ALPHA), np.array([4, 0.25, 0.02, 0.81]) / 5.08)
    np.testing.assert_allclose(theory.one_shot_weights([1.0, 5.0], [1.0, 0.0]), [1, 0])
    np.testing.assert_allclose(theory.one_shot_weights(L, 0), L / 16)


def test_spread_is_the_weighted_variance_and_the_diameter() -> None:
    models = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 4.0]])
    found = theory.spread(models, [0.5, 0.25, 0.25])
    mean = np.array([0.75, 2.0])
    assert found.variance == pytest.approx(np.array([0.5, 0.25, 0.25]) @ np.sum((models - mean) ** 2, axis=1))
    assert found.diameter == pytest.approx(5)
    assert theory.spread([[1.0, 2.0]], [1.0]) == (0, 0)
    with pytest.raises(PolyfedError, match="a model and a weight per client"):
        theory.spread(models, [0.5, 0.5])


def test_the_budget_by_hand() -> None:
    """L_hat = 4, V = 2, epsilon = 0.04: A = 0.1. mu_hat = 3: q = 2. So alpha reaches .1, .2, .4, .8, 1 with 1..5."""
    case = {"epsilon": 0.04, "L": [4.0, 4.0], "mu": [3.0, 3.0], "variance": 2.0}
    assert theory.one_shot_limit(0.04, 4.0, 2.0) == pytest.approx(0.1)
    assert theory.growth(4.0, 3.0) == pytest.approx(2)
    pairs = {0.0: 0, 0.05: 1, 0.1: 1, 0.11: 2, 0.2: 2, 0.21: 3, 0.4: 3, 0.8: 4, 0.81: 5, 1.0: 5}
    for beta, expected in pairs.items():
        assert theory.communications(beta * (1 - 1e-12), **case) == expected
    for budget, expected in enumerate([0, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]):
        assert theory.largest_alpha(budget, **case) == pytest.approx(expected)
    table = theory.budget_table(**case)
    assert [row.communications for row in table] == [0, 1, 2, 5]
    np.testing.assert_allclose([row.alpha for row in table], [0, 0.1, 0.2, 1])
    np.testing.assert_allclose([row.gap for row in table], [0, 0.04, 0.04, 4 / 4**4])
    assert [row.communications for row in theory.budget_table(**case, budgets=[3, 4])] == [3, 4]


def test_budget_and_communications_are_inverse_and_monotone() -> None:
    case = {"epsilon": 1e-3, "L": L, "mu": MU, "variance": 7.0}
    alphas = [theory.largest_alpha(budget, **case) for budget in range(60)]
    assert all(a < b or a == b == 1 for a, b in pairwise(alphas))
    for budget, alpha in enumerate(alphas):
        assert theory.communications(alpha, **case) == (budget if alpha < 1 else theory.communications(1.0, **case))
        if alpha < 1:
            assert theory.communications(min(1.0, alpha * (1 + 1e-12) + 1e-300), **case) == budget + 1
    # alpha = 1 stays within the textbook's 1 + (L/mu) log(L V / (2 epsilon)) of the paper's last item.
    textbook = 1 + np.ceil(L.mean() / MU.mean() * np.log(L.mean() * 7.0 / 2e-3))
    assert 0.8 * textbook < theory.communications(1.0, **case) <= textbook


def test_the_budget_at_its_extremes() -> None:
    assert theory.communications(1.0, 0.1, L, MU, 0.0) == 1  # equal local models: one average
    assert theory.communications(1.0, 1e-9, L, 0.0, 1.0) == np.inf  # no strong convexity: no guarantee
    assert theory.communications(1.0, 1e-9, 2.0, 2.0, 1.0) == 2  # condition number 1: one step of GD
    assert theory.largest_alpha(10**9, 1e-9, L, MU, 1.0) == 1
    assert theory.budget_table(1e-9, L, 0.0, 1.0)[-1].alpha < 1e-3
