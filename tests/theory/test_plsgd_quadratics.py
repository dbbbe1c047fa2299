"""PLSGD's exact error and its regimes, and where it goes from zero."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed import theory


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.3, 1.7), (2.0, 0.0), (0.0, 1.2)])
def test_the_exact_error_is_that_of_simulated_runs(alpha: float, beta: float) -> None:
    rng, runs, K, R, h, sigma, eta = np.random.default_rng(0), 20_000, 4, 6, 1.3, 0.7, 0.2
    optima = np.array([1.0, -0.5, 0.8])
    w, theta = np.zeros((runs, 1)), np.zeros((runs, 3))
    for _ in range(R):
        own = w + np.zeros_like(theta)
        for _ in range(K):
            gradient = h * (own + theta - optima) + sigma * rng.normal(size=theta.shape)
            own, theta = own - eta * gradient, theta - alpha * eta * gradient
        w = w + beta * np.mean(own - w, axis=1, keepdims=True)
    case = theory.Clients(3, h, float(optima.mean() ** 2), float(optima.var()), sigma**2)
    exact = theory.plsgd_exact_error(case, eta, alpha, beta, K, R)
    assert np.mean((w + theta - optima) ** 2) == pytest.approx(float(exact), rel=0.02)


def test_the_regimes_in_their_limits() -> None:
    def case(apart: float, noise: float) -> theory.Phase:
        return theory.plsgd_phase(theory.Clients(20, 1.0, 1.0, apart, noise), local_steps=5, rounds=20)

    assert case(0.0, 1.0).winner == "global"
    assert case(100.0, 1e-4).winner == "local"
    mixed = case(0.1, 1.0)
    assert mixed.winner == "personalized"
    assert mixed.personalized.alpha > 0
    assert mixed.personalized.beta > 0


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.4, 1.6), (3.0, 0.5)])
def test_from_zero_plsgd_ends_at_the_least_weighted_norm(alpha: float, beta: float) -> None:
    """Linear regression with fewer rows than parameters: w = (beta/alpha) mean theta after every round."""
    rng = np.random.default_rng(1)
    M, rows, d, K, eta = 3, 2, 9, 3, 0.02
    X, y = rng.normal(size=(M, rows, d)), rng.normal(size=(M, rows))
    w, theta = np.zeros(d), np.zeros((M, d))
    for _ in range(6000):
        own = np.tile(w, (M, 1))
        for _ in range(K):
            gradient = np.einsum("mrd,mr->md", X, np.einsum("mrd,md->mr", X, own + theta) - y)
            own, theta = own - eta * gradient, theta - alpha * eta * gradient
        w = w + beta * np.mean(own - w, axis=0)
        assert np.abs(w - beta / alpha * theta.mean(axis=0)).max() < 1e-12
    # min |w|^2/beta + sum |theta_m|^2/(alpha M) under X_m (w + theta_m) = y_m, by scaling to a plain least norm
    A = np.zeros((M * rows, (M + 1) * d))
    for m in range(M):
        A[m * rows : (m + 1) * rows, :d] = np.sqrt(beta) * X[m]
        A[m * rows : (m + 1) * rows, (m + 1) * d : (m + 2) * d] = np.sqrt(alpha * M) * X[m]
    least = np.linalg.lstsq(A, y.ravel(), rcond=None)[0].reshape(M + 1, d)
    np.testing.assert_allclose(w, np.sqrt(beta) * least[0], atol=1e-10)
    np.testing.assert_allclose(theta, np.sqrt(alpha * M) * least[1:], atol=1e-10)
