"""Scafflix: stepsizes, probability, rounds and noise, by hand and at their limits."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed import theory
from polyfed.core.errors import PolyfedError

L = np.array([4.0, 1.0, 2.0, 9.0])
MU = np.array([0.5, 0.1, 0.4, 3.0])


def test_scafflix_by_hand() -> None:
    np.testing.assert_allclose(theory.scafflix_stepsizes(L, MU), 1 / L)
    noisy = theory.scafflix_stepsizes(L, MU, [0.0, 0.01, 10.0, 1e-9], epsilon=0.5)
    np.testing.assert_allclose(noisy, [0.25, 1, 0.5 * 0.1 / 20, 1 / 9])
    assert theory.scafflix_probability(1 / L, MU) == pytest.approx(np.sqrt(0.1))
    assert theory.scafflix_rate(1 / L, MU, 0.2) == pytest.approx(0.04)
    assert theory.scafflix_rate(1 / L, MU, 0.9) == pytest.approx(0.1)
    personal, goal = np.array([[1.0, 0.0], [0.0, 2.0]]), np.zeros((2, 2))
    h, gradients = np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 3.0]])
    expected = 0.5 * (0.25 / 0.5 * 1 + 0.25 / 0.25 * 4) + 0.25 / 0.2**2 * 0.5 * (0.5 * 1 + 0.25 * 9)
    assert theory.scafflix_lyapunov(personal, goal, h, gradients, [0.5, 0.25], 0.2) == pytest.approx(expected)
    many = theory.scafflix_lyapunov(np.stack([personal, goal]), goal, np.stack([h, gradients]), gradients, 0.5, 0.2)
    assert many.shape == (2,)
    assert many[1] == 0


def test_scafflix_needs_fewest_rounds_at_its_probability() -> None:
    stepsizes = 1 / np.array([1.0, 50.0])
    mu = np.array([0.01, 0.4])
    best = theory.scafflix_probability(stepsizes, mu)
    rounds = {p: theory.scafflix_rounds(1e-12, 1.0, stepsizes, mu, p) for p in best * np.array([0.3, 0.6, 1, 1.5, 4])}
    assert min(rounds, key=rounds.__getitem__) == best
    # sqrt(kappa_max) log(1/epsilon), eq. (8), up to rounding and log(1 - zeta) against -zeta
    assert rounds[best] == pytest.approx(np.sqrt(1 / (mu * stepsizes).min()) * np.log(1e12), rel=0.01)


def test_noise_takes_up_half_of_the_accuracy_at_the_stepsizes_of_corollary_2() -> None:
    C = np.array([0.3, 2.0, 0.0, 5.0])
    stepsizes = theory.scafflix_stepsizes(L, MU, C, epsilon=0.01)
    p = theory.scafflix_probability(stepsizes, MU)
    assert 0 < theory.scafflix_noise(stepsizes, MU, p, C) <= 0.005
    steps = theory.scafflix_iterations(0.01, 3.0, stepsizes, MU, p, C)
    assert theory.scafflix_bound(steps, 3.0, stepsizes, MU, p, C) <= 0.01
    assert theory.scafflix_bound(steps - 1, 3.0, stepsizes, MU, p, C) > 0.01
    assert theory.scafflix_iterations(1e-9, 3.0, stepsizes, MU, p, C) == np.inf
    with pytest.raises(PolyfedError, match="epsilon is needed"):
        theory.scafflix_stepsizes(L, MU, C)


@pytest.mark.parametrize("batch", [1, 3])
def test_expected_smoothness_holds_at_random_points(batch: int) -> None:
    """Assumption 3 (2), exactly: E|g - grad f(x*)|^2 of a batch drawn with replacement, on quadratics of examples."""
    rng = np.random.default_rng(0)
    curvature, centre = rng.uniform(0.1, 5.0, size=(7, 3)), rng.normal(size=(7, 3))
    star = rng.normal(size=3)
    gradients = curvature * (star - centre)
    smooth, noise = theory.expected_smoothness(curvature.max(axis=1), gradients, batch)
    assert batch > 1 or smooth == 2 * curvature.max()
    assert noise == pytest.approx((2 * np.mean(np.sum(gradients**2, 1)) - 2 * np.sum(gradients.mean(0) ** 2)) / batch)
    for x in star + rng.normal(size=(200, 3)) * 10.0 ** rng.uniform(-3, 3, size=(200, 1)):
        each = curvature * (x - centre)
        bias = np.sum((each.mean(0) - gradients.mean(0)) ** 2)
        error = bias + np.mean(np.sum((each - each.mean(0)) ** 2, 1)) / batch
        bregman = 0.5 * np.sum(curvature.mean(0) * (x - star) ** 2)
        assert error <= (2 * smooth * bregman + noise) * (1 + 1e-12)
