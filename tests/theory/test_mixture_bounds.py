"""Simulations in plain NumPy stay under every bound of the theorems on mixtures."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from polyfed import theory


class Quadratics(NamedTuple):
    """f_i(x) = (x - b_i)' H_i (x - b_i) / 2, so that x_i = b_i and grad f_i(T_i(x)) = alpha_i H_i (x - b_i)."""

    curvature: np.ndarray
    centre: np.ndarray
    L: np.ndarray
    mu: np.ndarray
    alpha: np.ndarray

    @classmethod
    def draw(cls, seed: int) -> Quadratics:
        """Five clients in six dimensions; L from 0.3 to 30, condition numbers up to 30, alpha from 0.05 to 1."""
        rng = np.random.default_rng(seed)
        smooth = 10 ** rng.uniform(-0.5, 1.5, 5)
        spectra = smooth[:, None] * 10 ** rng.uniform(-1.5, 0, size=(5, 6))
        spectra[:, 0] = smooth
        turns = np.linalg.qr(rng.normal(size=(5, 6, 6)))[0]
        curvature = np.einsum("nij,nj,nkj->nik", turns, spectra, turns)
        alpha = rng.permutation([1.0, 0.6, 0.3, 0.1, 0.05])
        return cls(curvature, 3 * rng.normal(size=(5, 6)), smooth, spectra.min(axis=1), alpha)

    @property
    def column(self) -> np.ndarray:
        return self.alpha[:, None]

    @property
    def solution(self) -> np.ndarray:
        mixed = self.column[:, :, None] ** 2 * self.curvature
        return np.linalg.solve(mixed.sum(0), np.einsum("nij,nj->i", mixed, self.centre))

    def grad(self, x: np.ndarray) -> np.ndarray:
        """grad f_i(T_i(x)) of each client, for x of shape (..., n, d) or (..., 1, d)."""
        return np.einsum("nij,...nj->...ni", self.curvature, self.column * (x - self.centre))

    def deployed(self, x: np.ndarray) -> np.ndarray:
        return self.column * x + (1 - self.column) * self.centre

    def value(self, x: np.ndarray) -> float:
        return float(np.mean(np.sum(self.column * (x - self.centre) * self.grad(x[None]), axis=-1)) / 2)


def stays_under(measured: np.ndarray, bound: np.ndarray) -> None:
    """The mean over seeds, at every step, as far as rounding lets a bound be told from zero."""
    seen = bound > 1e-20 * bound[0]
    assert (measured[seen] <= bound[seen] * (1 + 1e-9)).all()


def rand_k(rng: np.random.Generator, k: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    def compress(x: np.ndarray) -> np.ndarray:
        chosen = np.argsort(np.argsort(rng.random(x.shape), axis=-1), axis=-1) < k[:, None]
        return x * chosen * (x.shape[-1] / k)[:, None]

    return compress


SEEDS, STEPS = 300, np.arange(400)
KEPT = np.array([1, 2, 3, 6, 2])
NOISE = 6 / KEPT - 1


@pytest.mark.parametrize("case", range(3))
def test_gradient_descent_stays_under_theorem_2(case: int) -> None:
    q = Quadratics.draw(case)
    weights = theory.one_shot_weights(q.L, q.alpha)
    spread = theory.spread(q.centre, weights)
    x, gaps = weights @ q.centre, []
    for _ in STEPS:
        gaps.append(q.value(x) - q.value(q.solution))
        x = x - theory.gd_stepsize(q.L, q.alpha) * np.mean(q.column * q.grad(x[None]), axis=0)
    by_diameter = theory.gd_gap_bound(STEPS, q.L, q.mu, q.alpha, diameter=spread.diameter)
    by_variance = theory.gd_gap_bound(STEPS, q.L, q.mu, q.alpha, variance=spread.variance)
    assert (by_variance <= by_diameter).all()
    gaps = np.maximum(gaps, 0) * (np.array(gaps) > 1e-12)  # below, the difference of values is rounding
    stays_under(gaps, by_variance)
    stays_under(gaps, by_diameter)
    equal = theory.gd_gap_bound(STEPS, q.L, q.mu, 0.2, variance=2.0)  # (ii): beta^2 L_hat V / 2
    np.testing.assert_allclose(equal, (1 - q.mu.mean() / q.L.mean()) ** STEPS * 0.04 * q.L.mean())


def test_theorem_2_needs_the_square_of_the_diameter() -> None:
    """Two clients, each flat where the other is steep, 141 apart: x_avg is 1,213 above the minimum.

    As printed, with D = 141 and L = 1, the bound would be 71.
    """
    curvature = np.array([np.diag([1.0, 0.01]), np.diag([0.01, 1.0])])
    q = Quadratics(curvature, np.array([[0.0, 0.0], [100.0, 100.0]]), np.ones(2), np.full(2, 0.01), np.ones(2))
    gap = q.value(np.array([50.0, 50.0])) - q.value(q.solution)
    diameter = 100 * np.sqrt(2)
    assert gap == pytest.approx(1213, abs=1)
    assert diameter / 2 < gap <= theory.gd_gap_bound(0, q.L, q.mu, 1.0, variance=diameter**2 / 4)
    assert theory.gd_gap_bound(0, q.L, q.mu, 1.0, diameter=diameter) == pytest.approx(diameter**2 / 2)


@pytest.mark.parametrize("case", range(3))
def test_dcgd_stays_under_theorem_4(case: int) -> None:
    q = Quadratics.draw(case)
    compress, star = rand_k(np.random.default_rng(case), KEPT), q.solution
    step = theory.dcgd_stepsize(q.L, q.alpha, NOISE)
    x, found = np.full((SEEDS, 6), 2.0), []
    for _ in STEPS:
        found.append(np.mean(np.sum((x - star) ** 2, axis=-1)))
        x = x - step * np.mean(compress(q.column * q.grad(x[:, None])), axis=1)
    gradients = q.grad(star[None])
    bound = theory.dcgd_distance_bound(STEPS, found[0], gradients, q.mu, q.alpha, NOISE, step)
    stays_under(np.array(found), bound)
    level = theory.dcgd_neighbourhood(gradients, q.mu, q.alpha, NOISE, step)
    assert bound[-1] >= level
    assert 0 < np.mean(found[-50:]) < level  # it stalls, and within the neighbourhood
    by_hand = 2 * step / theory.convexity(q.mu, q.alpha) / 25
    assert level == pytest.approx(by_hand * np.sum(NOISE * np.sum((q.column * gradients) ** 2, axis=1)))
    assert theory.dcgd_neighbourhood(gradients, q.mu, q.alpha, 0.0, step) == 0


@pytest.mark.parametrize("case", range(3))
def test_diana_stays_under_theorem_5(case: int) -> None:
    q = Quadratics.draw(case)
    compress, star = rand_k(np.random.default_rng(case), KEPT), q.solution
    step, beta = theory.diana_stepsize(q.L, q.alpha, NOISE), theory.diana_beta(NOISE)[:, None]
    x, h, found = np.full((SEEDS, 6), 2.0), np.zeros((SEEDS, 5, 6)), []
    for _ in STEPS:
        found.append(np.mean(theory.diana_lyapunov(x, star, h, q.grad(star[None]), q.alpha, NOISE, step)))
        change = compress(q.column * q.grad(x[:, None]) - h)
        x, h = x - step * np.mean(h + change, axis=1), h + beta * change
    stays_under(np.array(found), theory.diana_bound(STEPS, found[0], q.mu, q.alpha, NOISE, step))
    memory = np.mean(NOISE * np.sum((q.column * q.grad(star[None])) ** 2, axis=1))  # h = 0 at the start
    assert found[0] == pytest.approx(np.sum((2.0 - star) ** 2) + 4 * 6 * step**2 / 5 * memory)
    assert found[-1] < 0.1 * found[0]


@pytest.mark.parametrize("noise", [0.0, 2.0])
@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_scafflix_stays_under_theorem_1(noise: float, factor: float) -> None:
    """At, below and above the best probability; with exact gradients and with noise of variance C_i."""
    q = Quadratics.draw(int(10 * factor))
    rng, star = np.random.default_rng(0), q.solution
    C = noise * np.array([0.1, 1.0, 2.0, 0.0, 4.0])
    step = theory.scafflix_stepsizes(q.L, q.mu, C, epsilon=1.0)
    p = min(1.0, factor * theory.scafflix_probability(step, q.mu))
    gain, weights = (step / q.alpha)[:, None], (q.alpha**2 / step)[:, None]
    x, h, found = np.full((SEEDS, 5, 6), 2.0), np.zeros((SEEDS, 5, 6)), []
    for _ in STEPS:
        found.append(
            np.mean(theory.scafflix_lyapunov(q.deployed(x), q.deployed(star[None]), h, q.grad(star[None]), step, p))
        )
        estimate = q.grad(x) + np.sqrt(C / 6)[:, None] * rng.normal(size=x.shape)
        ahead = x - gain * (estimate - h)
        mean = np.sum(weights * ahead, axis=1, keepdims=True) / weights.sum()
        coin = (rng.random(SEEDS) < p)[:, None, None]
        x, h = np.where(coin, mean, ahead), np.where(coin, h + p / gain * (mean - ahead), h)
        np.testing.assert_allclose(np.sum(q.column * h, axis=1), 0, atol=1e-9 * np.abs(h).max() + 1e-12)
    stays_under(np.array(found), theory.scafflix_bound(STEPS, found[0], step, q.mu, p, C))
    assert found[-1] < found[0]


def test_a_scafflix_accuracy_bounds_the_gap_of_a_shared_model() -> None:
    q = Quadratics.draw(0)
    step = theory.scafflix_stepsizes(2 * q.L, q.mu)
    for x in q.solution + np.random.default_rng(0).normal(size=(50, 6)):
        gap = q.value(x) - q.value(q.solution)
        zero = np.zeros((5, 6))
        psi = theory.scafflix_lyapunov(q.deployed(x[None]), q.deployed(q.solution[None]), zero, zero, step, 0.5)
        assert psi >= theory.scafflix_accuracy(gap, q.L, step)
