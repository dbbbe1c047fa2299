"""FLIX's supplement against DCGD and DIANA, and where it is printed wrong."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed import theory

SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 40))]


def test_theorem_3_as_stated_fails_and_by_its_proof_holds() -> None:
    """f_1 = x^2/2, f_2 = 3 (x - 1)^2/2, epsilon = 0.05: the stated limit allows alpha = 0.745, gradient 0.167."""
    h, c, epsilon = np.array([1.0, 3.0]), np.array([0.0, 1.0]), 0.05
    weights = theory.stationary_weights(h, 0.5)
    variance = theory.spread(c[:, None], weights).variance
    gradient = abs(np.mean(h * (weights @ c - c)))  # times alpha^2

    def reached(alpha: float) -> float:
        return float(alpha**2 * gradient)

    stated = np.sqrt(2 * epsilon / (h.mean() * variance))
    assert stated == pytest.approx(0.7454, abs=1e-4)
    assert reached(stated) == pytest.approx(0.1667, abs=1e-4)
    assert reached(theory.stationary_limit(epsilon, h, variance)) <= epsilon


@pytest.mark.parametrize("seed", SEEDS)
def test_one_average_is_as_stationary_as_theorem_3_says(seed: int) -> None:
    """Losses that are not convex, (L_i/2) sum u^2/(1 + u^2), equal and unequal alpha_i up to the limit."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 6)), 3
    L, c, epsilon = 10.0 ** rng.uniform(-1, 1, n), rng.normal(size=(n, d)), 10.0 ** rng.uniform(-3, 0)
    shares = rng.uniform(0.2, 1, n)
    for relative, unequal in ((np.ones(n), False), (shares / shares.max(), True)):
        spread = theory.spread(c, theory.stationary_weights(L, relative))
        limit = theory.stationary_limit(epsilon, L, spread.diameter**2 if unequal else spread.variance)
        alpha = (min(1.0, limit) * relative)[:, None]
        u = alpha * (theory.stationary_weights(L, alpha[:, 0]) @ c - c)
        gradient = np.mean(alpha * L[:, None] * u / (1 + u**2) ** 2, axis=0)
        assert np.linalg.norm(gradient) <= epsilon * (1 + 1e-12)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_corollary_1_needs_the_cube_of_max_L(scale: float) -> None:
    """Clients s (x -+ 1)^2/2, a gradient sent doubled or not at all (omega = 1): E x^2 settles at 0.2 for every s."""
    rng, x = np.random.default_rng(0), np.zeros(20_000)
    gamma = theory.dcgd_stepsize(np.full(2, scale), 1.0, 1.0)
    for _ in range(60):
        coins = 2.0 * (rng.random((len(x), 2)) < 0.5)
        x = x - gamma * np.mean(coins * scale * (x[:, None] - [1.0, -1.0]), axis=1)
    found = np.mean(x**2)
    assert found == pytest.approx(0.2, abs=0.01)
    repaired = float(theory.dcgd_equal_bound(10**6, np.full(2, scale), np.full(2, scale), 1.0, [1.0, 1.0], 2.0))
    assert repaired == pytest.approx(2.0)
    assert (found > repaired / scale) == (scale > 1)  # (max L)^2 in place of the cube: 2 / s


@pytest.mark.parametrize("seed", SEEDS)
def test_dcgd_and_diana_stay_under_the_supplement(seed: int) -> None:
    """Quadratics in three dimensions with one alpha, coordinates sent with probability q: omega = 1/q - 1."""
    rng = np.random.default_rng(seed)
    n, d, alpha, q, runs, k = int(rng.integers(2, 6)), 3, rng.uniform(0.2, 1), rng.uniform(0.3, 0.9), 100, 60
    omega, scale = 1 / q - 1, 10.0 ** rng.uniform(-1, 1)
    h, c, x0 = scale * rng.uniform(0.2, 1, (n, d)), rng.normal(size=(n, d)), rng.normal(size=d)
    L, mu = h.max(axis=1), h.min(axis=1)
    best = np.sum(h * c, axis=0) / h.sum(axis=0)  # for every alpha, since Hessians commute with T_i
    squares, diameter = np.sum((x0 - c) ** 2, axis=1), theory.spread(c, np.full(n, 1 / n)).diameter
    distance = float(np.sum((x0 - best) ** 2))
    assert distance <= theory.start_distance_bound(L, mu, squares)
    assert np.mean(np.sum((c - best) ** 2, axis=1)) <= theory.local_distance_bound(L, mu, diameter)

    def value(x: np.ndarray, a: float) -> np.ndarray:
        return np.mean(a**2 * np.sum(h * (x[..., None, :] - c) ** 2, axis=-1) / 2, axis=-1)

    def run(gamma: float, memory: bool) -> tuple[float, float]:
        x, h_i, total = np.tile(x0, (runs, 1)), np.zeros((runs, n, d)), np.zeros((runs, d))
        for _ in range(k):
            sent = (rng.random((runs, n, d)) < q) / q * (alpha**2 * h * (x[:, None] - c) - h_i)
            x = x - gamma * np.mean(h_i + sent, axis=1)
            h_i = h_i + sent / (1 + omega) if memory else h_i
            total += x
        return float(np.mean(value(total / k, alpha) - value(best, alpha))), float(np.mean(np.sum((x - best) ** 2, -1)))

    gap, gradients = float(value(x0, alpha) - value(best, alpha)), alpha * h * (best - c)
    excess, radius = float(value(best, 1.0)), np.sqrt(distance)
    for memory in (False, True):
        rule = theory.diana_stepsize if memory else theory.dcgd_stepsize
        gamma = rule(L, alpha, omega, regime="convex")
        found, _ = run(gamma, memory)
        bound = theory.diana_convex_bound if memory else theory.dcgd_convex_bound
        theorem = float(bound(k, gap, distance, gradients, alpha, omega, gamma))
        assert found < theorem
        assert theorem <= theory.convex_equal_bound(k, alpha, L, omega, squares, float(radius), excess, memory)
    _, last = run(theory.dcgd_stepsize(L, alpha, omega), False)
    assert last < theory.dcgd_equal_bound(k, L, mu, omega, squares, diameter)
