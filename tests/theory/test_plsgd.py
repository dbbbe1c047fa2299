"""PLSGD's theory: bounds and laws against NumPy loops, Table 1 by hand, and where the paper's statements end."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from polyfed import theory
from polyfed.core.errors import PolyfedError
from polyfed.theory import Federated

CASE = Federated(clients=4, local_steps=5, rounds=10, L=2.0, mu=0.5, radius=3.0, noise=0.7, heterogeneity=1.5)


def plsgd(curvature: Any, optima: Any, eta, alpha, beta, K, R, sigma=0.0, runs=1) -> tuple[np.ndarray, np.ndarray]:
    """One-dimensional clients h/2 (v - c)^2 with additive noise, many runs at once: distances and consensus errors."""
    h, c, rng = np.asarray(curvature, float), np.asarray(optima, float), np.random.default_rng(0)
    w, theta = np.zeros((runs, 1)), np.zeros((runs, len(c)))
    distances, consensus = [np.mean((w + theta - c) ** 2, axis=1)], []
    for _ in range(R):
        own = w + np.zeros_like(theta)
        for _ in range(K):
            consensus.append(np.mean(np.var(own, axis=1)))
            gradient = h * (own + theta - c) + sigma * rng.normal(size=theta.shape)
            own, theta = own - eta * gradient, theta - alpha * eta * gradient
        w = w + beta * np.mean(own - w, axis=1, keepdims=True)
        distances.append(np.mean((w + theta - c) ** 2, axis=1))
    return np.mean(distances, axis=1), np.reshape(consensus, (R, K))


@pytest.mark.parametrize(
    ("alpha", "beta", "K", "h", "sigma"),
    [(1.0, 1.0, 3, 1.0, 0.0), (0.3, 2.0, 10, 1.0, 0.5), (1.0, 2.0, 2, 0.2, 1.0), (4.0, 0.5, 5, 0.5, 0.3)],
)
def test_the_mean_distance_stays_under_14(alpha, beta, K, h, sigma) -> None:
    """Curvature h of all clients between mu = 0.2 and L = 1."""
    optima, eta = np.array([1.0, -0.5, 0.8, 0.9]), 0.8 / (1 + alpha)
    case = Federated(clients=4, local_steps=K, rounds=np.arange(31), L=1.0, mu=0.2, radius=1.0, noise=sigma)
    found, _ = plsgd(np.full(4, h), optima, eta, alpha, beta, K, 30, sigma, runs=400)
    bound = theory.plsgd_bound(case, eta, alpha, beta)
    assert beta <= theory.plsgd_outer_limit(case, eta, alpha)
    assert (found <= bound).all()
    assert bound[0] >= 1 > bound[-1] - bound[-1] * (sigma > 0)


def test_without_noise_the_differences_of_clients_shrink_as_14_says_and_no_faster() -> None:
    """Opposite optima at the curvature mu: the paper's rate with (1 - eta (1 + alpha) mu)^K for its exponential."""
    eta, alpha, K = 0.4, 1.0, 3
    found, _ = plsgd([0.2, 0.2], [1.0, -1.0], eta, alpha, 1.0, K, 20)
    shrink = 1 - alpha / (1 + alpha) * (1 - (1 - eta * (1 + alpha) * 0.2) ** K)
    np.testing.assert_allclose(found, shrink ** (2 * np.arange(21)), rtol=1e-12)


def test_15_is_14_at_alpha_1_and_beta_sqrt_m() -> None:
    case = dataclasses.replace(CASE, rounds=np.arange(5))
    balanced = theory.plsgd_balanced_bound(case, 0.2)
    np.testing.assert_allclose(balanced, theory.plsgd_bound(case, 0.2, 1.0, 2.0), rtol=1e-14)
    by_hand = 9 * np.exp(-np.arange(5) * (1 - np.exp(-2 * 0.2 * 0.5 * 5))) + 8 * 0.2 * 0.49 / 0.5
    np.testing.assert_allclose(balanced, by_hand, rtol=1e-14)
    assert (balanced >= theory.plsgd_bound(case, 0.2, 1.0, 0.5)).all()


def test_beyond_the_outer_limit_15_breaks() -> None:
    """beta = sqrt(16), equal clients, twenty steps: the mean of the errors grows where (15) says that it shrinks."""
    case = Federated(clients=16, local_steps=20, rounds=np.arange(6), L=1.0, mu=0.5)
    limit = theory.plsgd_outer_limit(case, 0.45, 1.0)
    assert 2 <= limit < 4
    bound = theory.plsgd_balanced_bound(case, 0.45)
    broken, _ = plsgd(np.ones(16), np.ones(16), 0.45, 1.0, 4.0, 20, 5)
    assert broken[-1] > 50 > 50 * bound[-1]
    held, _ = plsgd(np.ones(16), np.ones(16), 0.45, 1.0, limit, 20, 5)
    assert (held <= bound).all()


def test_with_unequal_hessians_and_a_small_alpha_14_breaks() -> None:
    """Two clients on opposite sides, one steep and one flat: the steep one drags w away from the flat one."""
    case = Federated(clients=2, local_steps=10, rounds=np.arange(6), L=1.0, mu=0.01)
    found, _ = plsgd([1.0, 0.01], [1.0, -1.0], 0.9 / 1.1, 0.1, 1.0, 10, 5)
    assert found[4] > 1.4 * theory.plsgd_bound(case, 0.9 / 1.1, 0.1)[4]
    found, _ = plsgd([1.0, 0.01], [1.0, -1.0], 0.45, 1.0, 1.0, 10, 5)
    assert (found <= theory.plsgd_bound(case, 0.45, 1.0)).all()


def test_the_window_of_16_is_never_empty_and_16_is_15_there() -> None:
    low, high = theory.plsgd_window(10, 3, 10)
    assert low / 3 == pytest.approx(200.25, abs=0.01)  # the paper: roughly 201 K to 400 K
    assert high / 3 == 400
    for clients in (1, 2, 50):
        for rounds in (1, 7, 1000):
            low, high = theory.plsgd_window(clients, 5, rounds)
            assert 1 < low < high
    M, K, R, mu = 4, 2, 5, 0.01
    case = Federated(clients=M, local_steps=K, rounds=R, L=1.0, mu=mu, radius=2.0, noise=0.3)
    assert 100 in theory.plsgd_window(M, K, R)
    eta = float(theory.plsgd_window_stepsize(case))
    assert theory.plsgd_window_bound(case) == pytest.approx(4 * np.exp(-10 / 200) + 0.09 / (mu**2 * 40))
    assert theory.plsgd_balanced_bound(case, eta) <= theory.plsgd_window_bound(case)
    with pytest.raises(PolyfedError, match=r"condition number from 80\.5 to 160, found 200"):
        theory.plsgd_window_bound(dataclasses.replace(case, L=2.0))


def test_in_the_window_nothing_has_been_optimised() -> None:
    for M, K, R in ((1, 1, 1), (2, 10, 3), (10, 5, 100), (100, 20, 1000)):
        low, high = theory.plsgd_window(M, K, R)
        floor = theory.plsgd_window_floor(M, 2.0)
        for kappa in np.linspace(low, high, 20, endpoint=False):
            case = Federated(clients=M, local_steps=K, rounds=R, L=1.0, mu=1 / kappa, radius=2.0)
            assert theory.plsgd_rate(case).optimization >= floor * (1 - 1e-12)
        assert floor == pytest.approx(4 * np.exp(-1 / (4 * M)))


def test_18_with_its_constants_is_the_proofs_bound_at_its_best_stepsize() -> None:
    T, B, L, sigma = 50, 3.0, 2.0, 20.0
    noisy = dataclasses.replace(CASE, noise=sigma)
    assert theory.plsgd_convex_bound(noisy) == pytest.approx(4 * np.sqrt(5) * sigma * B / np.sqrt(T))
    etas = np.geomspace(1e-4, 1 / (4 * L), 4001)
    assert theory.plsgd_convex_bound(noisy) == pytest.approx(np.min(10 * B**2 / (etas * T) + 2 * etas * sigma**2))
    assert theory.plsgd_convex_bound(dataclasses.replace(CASE, noise=0.0)) == pytest.approx(40 * L * B**2 / T)


def test_18_holds_for_output_iii_on_noisy_quadratics() -> None:
    K, R, h, optima, sigma = 5, 40, 1.0, np.array([1.0, -0.4, 0.7]), 0.8
    case = Federated(clients=3, local_steps=K, rounds=R, L=h, radius=1.0, noise=sigma)
    eta, rng = float(theory.plsgd_convex_stepsize(case)), np.random.default_rng(1)
    w, theta, total = np.zeros((300, 1)), np.zeros((300, 3)), 0.0
    for _ in range(R):
        own = w + np.zeros_like(theta)
        for _ in range(K):
            total = total + (own + theta)
            gradient = h * (own + theta - optima) + sigma * rng.normal(size=theta.shape)
            own, theta = own - eta * gradient, theta - eta * gradient
        w = np.mean(own, axis=1, keepdims=True)
    assert np.mean(h / 2 * (total / (K * R) - optima) ** 2) < theory.plsgd_convex_bound(case)


@pytest.mark.parametrize(("alpha", "eta", "beta"), [(0.0, 0.5, 1.0), (1.0, 0.25, 1.0), (0.4, 0.6, 1.7)])
def test_the_consensus_laws_are_exact_on_the_two_clients_of_proposition_1(alpha, eta, beta) -> None:
    K, R, zeta = 6, 9, 1.3
    _, found = plsgd([1.0, 1.0], [2 - zeta, 2 + zeta], eta, alpha, beta, K, R)
    r, k = np.arange(R)[:, None], np.arange(K)
    np.testing.assert_allclose(found, theory.consensus_plsgd(r, k, eta, alpha, K, zeta), rtol=0, atol=1e-13)
    assert np.mean(found) == pytest.approx(theory.consensus_plsgd_mean(eta, alpha, K, R, zeta), rel=1e-12)
    if alpha == 0:
        np.testing.assert_allclose(found[-1], theory.consensus_local_sgd(k, eta, zeta), atol=1e-13)
        assert np.mean(found) == pytest.approx(theory.consensus_local_sgd_mean(eta, K, zeta), rel=1e-12)
    else:
        assert found[-1, -1] < found[0, -1]


def test_21_bounds_the_exact_law_from_alpha_0_62_on_and_not_for_small_alpha() -> None:
    def worst(alpha: float) -> float:
        return max(
            theory.consensus_plsgd_mean(eta, alpha, K, R) / theory.consensus_plsgd_bound(eta, alpha, K, R)
            for eta in np.linspace(0.01, 0.999, 20) / (1 + alpha)
            for K in (2, 5, 30)
            for R in (1, 5, 100)
        )

    assert worst(0.62) <= 1
    assert worst(1.0) < 0.7
    assert worst(0.3) > 1.8
    assert theory.consensus_plsgd_bound(0.5, 0.0, 5, 1000) < 0.01 * theory.consensus_local_sgd_mean(0.5, 5)


def test_table_1_row_by_row() -> None:
    """M = 4, K = 5, R = 10, L = 2, mu = 1/2, B = 3, sigma = 0.7, zeta* = 1.5; kappa = 4."""
    shared, convex_shared = 0.49 / (0.25 * 200), 2.1 / np.sqrt(200)
    drift_noise, drift = (2 * 0.49 * 81 / (5 * 100)) ** (1 / 3), (2 * 2.25 * 81 / 100) ** (1 / 3)
    expected = {
        "strongly convex": {
            "minibatch SGD": (9 * np.exp(-2.5), shared, 2.25 / 4),
            "local SGD": (36 * np.exp(-2.5), shared + 4 * 0.49 / (0.25 * 500), 2.25 * (0.25 + 4 / 25)),
            "pure local training": (9 * np.exp(-6.25), 4 * shared, 0),
            "PLSGD (16)": (9 * np.exp(-6.25), shared, 0),
        },
        "convex": {
            "minibatch SGD": (1.8, convex_shared, 2.25 / 2),
            "local SGD": (1.8, convex_shared + drift_noise, 2.25 / 2 + drift),
            "pure local training": (0.36, 2 * convex_shared, 0),
            "PLSGD (Hanzely et al.)": (
                7.2,
                2 * convex_shared + (2 * 0.49 * 16 * 81 / 100) ** (1 / 3),
                (2 * 2.25 * 16 * 81 / 100) ** (1 / 3),
            ),
            "PLSGD with K = 1 (Bietti et al.)": (1.8, convex_shared, 0),
            "PLSGD (Conjecture 1)": (1.44, convex_shared, 0),
        },
    }
    for setting, rows in expected.items():
        assert list(rows) == list(theory.TABLE_1[setting])
        for name, terms in rows.items():
            rate = theory.TABLE_1[setting][name](CASE)
            np.testing.assert_allclose(rate, terms, rtol=1e-12, err_msg=name)
            assert rate.total == pytest.approx(sum(terms))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.plsgd_bound(CASE, 0.3), r"at most 1/\(\(1 \+ alpha\) L\) = 0.25, found 0.3"),
        (lambda: theory.plsgd_bound(CASE, 0.1, alpha=0.0), "needs alpha above 0"),
        (lambda: theory.plsgd_bound(dataclasses.replace(CASE, mu=0.0), 0.1), "mu must be above 0"),
        (lambda: dataclasses.replace(CASE, mu=3.0), "mu must be at most L, found mu = 3 and L = 2"),
        (lambda: dataclasses.replace(CASE, clients=0), "clients must be a whole number, at least 1, found 0"),
        (lambda: dataclasses.replace(CASE, noise=-1.0), "noise must be at least 0, found -1"),
        (lambda: dataclasses.replace(CASE, rounds=-2), "rounds must be at least 0, found -2"),
    ],
)
def test_bad_input_is_refused_by_name(call, message) -> None:
    with pytest.raises(PolyfedError, match=message):
        call()
