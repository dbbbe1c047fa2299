"""The theorems' formulas: closed forms by hand, and limits."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from polyfed import theory
from polyfed.core.errors import PolyfedError

L = np.array([4.0, 1.0, 2.0, 9.0])
MU = np.array([0.5, 0.1, 0.4, 3.0])
ALPHA = np.array([1.0, 0.5, 0.1, 0.3])
OMEGA = np.array([0.0, 3.0, 7.0, 1.0])


# Closed forms


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


def test_stepsizes_of_dcgd_and_diana_by_hand() -> None:
    total, noisy, beta = 5.08 / 4, 0.81, 1 / (1 + OMEGA)  # L alpha^2 omega = 0, .75, .14, .81
    np.testing.assert_allclose(theory.diana_beta(OMEGA), [1, 0.25, 0.125, 0.5])
    assert theory.dcgd_stepsize(L, ALPHA, OMEGA) == pytest.approx(1 / (total + 2 * noisy / 4))
    assert theory.dcgd_stepsize(L, ALPHA, OMEGA, "convex") == pytest.approx(0.25 / (total + 2 * noisy / 4))
    assert theory.dcgd_stepsize(L, ALPHA, OMEGA, "nonconvex") == pytest.approx(1 / total)
    memory = 4 * max(beta * OMEGA * L * ALPHA**2) / (4 * 0.125)
    assert theory.diana_stepsize(L, ALPHA, OMEGA) == pytest.approx(1 / (total + 2 * noisy / 4 + memory))
    assert theory.diana_stepsize(L, ALPHA, OMEGA, beta / 2, "convex") == pytest.approx(
        0.25 / (total + 2 * noisy / 4 + memory)
    )
    # Corollary 4: equal alpha and omega give 1 / (4 (L_bar + 6 omega max L / n) alpha^2)
    assert theory.diana_stepsize(L, 0.1, 3.0, regime="convex") == pytest.approx(25 / (4 + 6 * 3 * 9 / 4))


def test_without_compression_the_stepsizes_are_those_of_gradient_descent() -> None:
    plain = theory.gd_stepsize(L, ALPHA)
    for rule in (theory.dcgd_stepsize, theory.diana_stepsize):
        assert rule(L, ALPHA, 0.0) == pytest.approx(plain)
        assert rule(L, ALPHA, 0.0, regime="nonconvex") == pytest.approx(plain)
        assert rule(L, ALPHA, 0.0, regime="convex") == pytest.approx(plain / 4)
        assert rule(L, 0.0, 1.0) == np.inf


@pytest.mark.parametrize("regime", ["strong", "convex", "nonconvex"])
def test_more_compression_or_more_sharing_means_smaller_stepsizes(regime: theory.Regime) -> None:
    for rule in (theory.dcgd_stepsize, theory.diana_stepsize):
        found = [rule(L, 0.5, omega, regime=regime) for omega in (0.0, 1.0, 10.0, 100.0)]
        assert found == sorted(found, reverse=True)
        assert rule(L, 0.1, 2.0, regime=regime) == pytest.approx(100 * rule(L, 1.0, 2.0, regime=regime))
    beta = theory.diana_beta(OMEGA)
    assert theory.diana_stepsize(L, ALPHA, OMEGA) < theory.dcgd_stepsize(L, ALPHA, OMEGA)
    assert (np.diff(beta[np.argsort(OMEGA)]) < 0).all()


def test_nonconvex_stepsizes() -> None:
    """Equal clients: Theorem 9 as printed, eta = omega (1 + omega) (1 + 2 (1 + omega)) / n. Unequal ones: smaller."""
    eta = 3 * 4 * 9 / 4
    expected = min(0.5 / np.sqrt(eta), 2 / (np.sqrt(1 + 8 * eta) + 1)) / 2
    assert theory.diana_stepsize(np.full(4, 2.0), 1.0, 3.0, regime="nonconvex") == pytest.approx(expected)
    assert theory.diana_stepsize([0.5, 3.5, 0.5, 3.5], 1.0, 3.0, regime="nonconvex") < expected
    short, long = (theory.dcgd_stepsize(L, 1.0, 3.0, "nonconvex", rounds=rounds) for rounds in (1, 10_000))
    assert long < short <= theory.gd_stepsize(L, 1.0)
    assert (1 + 2 * 4 * long**2 * 27 / 4) ** 10_000 <= np.e  # the growth of Theorem 8's bound
    with pytest.raises(PolyfedError, match="one omega and one beta"):
        theory.diana_stepsize(L, 1.0, OMEGA, regime="nonconvex")
    with pytest.raises(PolyfedError, match=r"beta must lie in \[0.25, 0.28125\]"):
        theory.diana_stepsize(L, 1.0, 3.0, 0.5, regime="nonconvex")


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


def test_rounds_are_the_least_that_the_bound_needs() -> None:
    gd = theory.gd_rounds(1e-6, 5.0, L, MU, ALPHA)
    rate = theory.gd_rate(L, MU, ALPHA)
    assert 5 * (1 - rate) ** gd <= 1e-6 < 5 * (1 - rate) ** (gd - 1)
    step = theory.diana_stepsize(L, ALPHA, OMEGA)
    diana = theory.diana_rounds(1e-6, 5.0, MU, ALPHA, OMEGA, step)
    found = theory.diana_bound(np.array([diana - 1, diana]), 5.0, MU, ALPHA, OMEGA, step)
    assert found[1] <= 1e-6 < found[0]
    assert theory.diana_rate(MU, ALPHA, OMEGA, step) == pytest.approx(min(step * 0.799 / 4, 0.125 / 2))
    assert theory.gd_rounds(1.0, 0.5, L, MU, ALPHA) == 0
    assert theory.gd_rounds(1e-9, 1.0, L, 0.0, 1.0) == np.inf
    assert theory.gd_rounds(1e-9, 1.0, 2.0, 2.0, 1.0) == 1
    assert theory.diana_rounds(1e-9, 1.0, 0.0, 1.0, 1.0, 0.1) == np.inf


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


# Bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.smoothness(L, [0.1, 0.2, 1.5, 0.1]), "at least 0 and at most 1, found 1.5 of client 2"),
        (lambda: theory.smoothness(L, [0.1, 0.2]), "found 4 of L and 2 of alpha"),
        (lambda: theory.smoothness([1.0, np.nan], 1.0), "L must be above 0, found nan of client 1"),
        (lambda: theory.smoothness([], 1.0), "L must be above 0, found nothing"),
        (lambda: theory.smoothness(np.ones((2, 2)), 1.0), "one number per client"),
        (lambda: theory.gd_rate(1.0, 2.0, 1.0), "mu must be at most L"),
        (lambda: theory.communications(0.5, 0.0, L, MU, 1.0), "epsilon must be above 0, found 0"),
        (lambda: theory.communications(-0.5, 0.1, L, MU, 1.0), "alpha must be at least 0"),
        (lambda: theory.largest_alpha(-1, 0.1, L, MU, 1.0), "communications must be a whole number"),
        (lambda: theory.dcgd_stepsize(L, 1.0, -1.0), "omega must be at least 0"),
        (lambda: theory.dcgd_stepsize(L, 1.0, 1.0, "weak"), "regime must be one of"),  # type: ignore[arg-type]
        (lambda: theory.diana_stepsize(L, 1.0, 1.0, 1.5), "beta must be above 0 and at most 1"),
        (lambda: theory.gd_gap_bound(1, L, MU, 1.0), "either the variance or the diameter"),
        (lambda: theory.dcgd_neighbourhood(np.ones(3), MU, 1.0, 1.0, 0.1), "a row per client"),
        (lambda: theory.scafflix_rate(1 / L, MU, 0.0), "probability must be above 0 and at most 1, found 0"),
        (lambda: theory.scafflix_rate(1 / L, MU, 1.1), "probability"),
        (lambda: theory.scafflix_stepsizes(-L, MU), "A must be above 0, found -4 of client 0"),
        (lambda: theory.scafflix_stepsizes(L, 0.0, 1.0, 0.1), "mu must be above 0"),
        (lambda: theory.expected_smoothness(1.0, np.ones((3, 2)), batch=0), "batch must be a whole number"),
        (lambda: theory.expected_smoothness([1.0, 2.0], np.ones((3, 2))), "a gradient per example"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(PolyfedError, match=message):
        call()
