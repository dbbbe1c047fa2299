"""FLIX's theorems without convexity against DCGD and DIANA, its propositions on mixtures, and Scafflix's start."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from polyfed import theory

SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(3, 40))]
RUNS = 100


class Wells:
    """f_i(y) = (L_i/2) sum_j u^2/(1 + u^2) with u = y_j - c_ij: not convex, L_i-smooth, least at c_i with value 0."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.n, self.d = int(rng.integers(2, 6)), 3
        self.L = 10.0 ** rng.uniform(-1, 1, self.n)
        self.c, self.x0 = rng.normal(size=(self.n, self.d)), 2 * rng.normal(size=self.d)
        self.q = rng.uniform(0.3, 0.9)  # the share of coordinates that is sent: omega = 1/q - 1
        self.omega = 1 / self.q - 1
        self.rng = rng

    def value(self, x: np.ndarray, alpha: np.ndarray) -> np.ndarray:
        u = alpha[:, None] * (x[..., None, :] - self.c)
        return np.mean(self.L / 2 * np.sum(u**2 / (1 + u**2), axis=-1), axis=-1)

    def gradients(self, x: np.ndarray, alpha: np.ndarray) -> np.ndarray:
        """alpha_i grad f_i(T_i(x)), shape (runs, clients, d)."""
        u = alpha[:, None] * (x[:, None] - self.c)
        return alpha[:, None] * self.L[:, None] * u / (1 + u**2) ** 2

    def send(self, vectors: np.ndarray) -> np.ndarray:
        return (self.rng.random(vectors.shape) < self.q) / self.q * vectors

    def run(self, gamma: float, alpha: np.ndarray, steps: int, memory: bool) -> np.ndarray:
        """E|grad f(x^t)|^2 for t = 0 .. steps - 1, over many runs; memories start at the gradients."""
        x, found = np.tile(self.x0, (RUNS, 1)), []
        h = self.gradients(x, alpha) if memory else np.zeros((RUNS, self.n, self.d))
        for _ in range(steps):
            own = self.gradients(x, alpha)
            found.append(np.mean(np.sum(own.mean(axis=1) ** 2, axis=1)))
            sent = self.send(own - h)
            x = x - gamma * np.mean(h + sent, axis=1)
            h = h + sent / (1 + self.omega) if memory else h
        return np.array(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_dcgd_and_diana_stay_under_theorems_8_and_9_and_their_corollaries(seed: int) -> None:
    wells, k = Wells(np.random.default_rng(seed)), 40
    alpha = wells.rng.uniform(0.2, 1, wells.n)
    gap = float(wells.value(wells.x0, alpha))
    steps = np.arange(1, k + 1)
    gamma = theory.dcgd_stepsize(wells.L, alpha, wells.omega, "nonconvex", rounds=k)
    found = np.minimum.accumulate(wells.run(gamma, alpha, k, memory=False))
    assert (found <= theory.dcgd_nonconvex_bound(steps, gap, wells.L, alpha, wells.omega, gamma)).all()
    gamma = theory.diana_stepsize(wells.L, alpha, wells.omega, regime="nonconvex")
    found = np.cumsum(wells.run(gamma, alpha, k, memory=True)) / steps
    assert (found <= theory.diana_nonconvex_bound(steps, gap, gamma)).all()

    one = np.full(wells.n, wells.rng.uniform(0.2, 1))
    sup = float(wells.value(wells.x0, np.ones(wells.n)))  # f_i rises on the way from x_i to x^0
    plain, remembering = (
        theory.dcgd_stepsize(wells.L, 1.0, wells.omega, "nonconvex", rounds=k),
        theory.diana_stepsize(wells.L, 1.0, wells.omega, regime="nonconvex"),
    )
    found = wells.run(plain / one[0] ** 2, one, k, memory=False).min()
    bound = theory.nonconvex_equal_bound(k, one[0], plain, sup, wells.L, wells.omega)
    assert found <= theory.dcgd_nonconvex_bound(k, sup, wells.L, one, wells.omega, plain / one[0] ** 2)
    assert bound == pytest.approx(
        float(theory.dcgd_nonconvex_bound(k, sup, wells.L, one, wells.omega, plain / one[0] ** 2))
    )
    found = wells.run(remembering / one[0] ** 2, one, k, memory=True).mean()
    assert found <= theory.nonconvex_equal_bound(k, one[0], remembering, sup, memory=True)


def test_a_stepsize_beyond_theorem_8s_limit_breaks_it() -> None:
    """x -> 8 (x - c) has L = 8: a step of 3/L grows by 2 in each coordinate until it leaves the well."""
    alpha, L, k = np.ones(1), np.array([8.0]), 3
    wells = Wells(np.random.default_rng(0))
    wells.n, wells.d, wells.L, wells.c, wells.x0, wells.q, wells.omega = (
        1,
        1,
        L,
        np.zeros((1, 1)),
        np.full(1, 0.01),
        1,
        0,
    )
    found = wells.run(3 / 8, alpha, k, memory=False).min()
    assert found > 0.9 * (8 * 0.01) ** 2  # the first is the least
    allowed = wells.run(1 / 8, alpha, k, memory=False).min()
    assert allowed < 1e-6 * found
    gap = float(wells.value(wells.x0, alpha))
    assert allowed <= theory.dcgd_nonconvex_bound(k, gap, L, alpha, 0.0, 1 / 8) < found


def test_theorem_9s_own_smoothness_is_too_small_for_unequal_clients() -> None:
    """(73) takes the mean of |grad f_i(x) - grad f_i(y)|^2 for at most L_alpha^2 |x - y|^2: not with L = 2, 0."""
    L, alpha, x, y = np.array([2.0, 1e-9]), np.ones(2), 0.7, -0.3
    found = np.mean((L * (x - y)) ** 2)
    assert found == pytest.approx(2 * theory.smoothness(L, alpha) ** 2 * (x - y) ** 2)
    omega, n = 3.0, 2
    eta = omega * (1 + omega) * (3 + 2 * omega) / n
    printed = min(1 / (2 * np.sqrt(eta)), 2 / (np.sqrt(1 + 8 * eta) + 1)) / theory.smoothness(L, alpha)
    assert theory.diana_stepsize(L, alpha, omega, regime="nonconvex") < printed


@pytest.mark.parametrize("seed", SEEDS)
def test_diana_stays_under_corollary_2_for_every_alpha(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, d, q = int(rng.integers(2, 6)), 3, rng.uniform(0.3, 0.9)
    omega, scale, k = 1 / q - 1, 10.0 ** rng.uniform(-1, 1), 60
    h, c, x0 = scale * rng.uniform(0.2, 1, (n, d)), rng.normal(size=(n, d)), rng.normal(size=d)
    best, squares = np.sum(h * c, axis=0) / h.sum(axis=0), np.sum((x0 - c) ** 2, axis=1)
    bound = theory.diana_equal_bound(np.arange(k), h.max(axis=1), h.min(axis=1), omega, squares)
    for alpha in (0.1, 1.0):
        gamma = theory.diana_stepsize(h.max(axis=1), alpha, omega)
        x = np.tile(x0, (RUNS, 1))
        memory, found = alpha**2 * h * (x[:, None] - c), []
        for _ in range(k):
            found.append(np.mean(np.sum((x - best) ** 2, axis=1)))
            own = alpha**2 * h * (x[:, None] - c)
            sent = (rng.random(own.shape) < q) / q * (own - memory)
            x, memory = x - gamma * np.mean(memory + sent, axis=1), memory + sent / (1 + omega)
        assert (np.array(found) <= bound).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_fine_tuning_is_a_mixture_and_alpha_alone_sets_the_spread(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, steps = 4, int(rng.integers(1, 30))
    A = (lambda r: r @ r.T / d + 0.1 * np.eye(d))(rng.normal(size=(d, d)))
    own, start = rng.normal(size=(2, d))
    gamma, x = rng.uniform(0.2, 1) / np.linalg.eigvalsh(A)[-1], start
    for _ in range(steps):
        x = x - gamma * A @ (x - own)
    np.testing.assert_allclose(theory.finetuned_model(A, own, start, gamma, steps), x, atol=1e-10)
    locals_, alpha, x = rng.normal(size=(5, d)), rng.uniform(0, 1), rng.normal(size=d)
    assert theory.deployed_variance(locals_, alpha) == pytest.approx(
        float(np.var(alpha * x + (1 - alpha) * locals_, axis=0).sum())
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_psi_starts_under_its_bound_with_gradients_and_with_their_projection(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, d, p = int(rng.integers(2, 7)), 3, rng.uniform(0.1, 1)
    h, c, x0 = 10.0 ** rng.uniform(-1, 1, (n, d)), rng.normal(size=(n, d)), rng.normal(size=d)
    alpha, L = rng.uniform(0.05, 1, n), h.max(axis=1)
    column, weights = alpha[:, None], alpha[:, None] ** 2 * h
    star = np.sum(weights * c, axis=0) / weights.sum(axis=0)
    step = theory.scafflix_stepsizes(L, h.min(axis=1)) * rng.uniform(0.3, 1, n)
    goal, models = column * star + (1 - column) * c, column * x0 + (1 - column) * c
    own, there = h * (models - c), h * (goal - c)
    pull = column / step[:, None]
    projected = own - pull * np.sum(column * own, axis=0) / np.sum(column * pull, axis=0)
    np.testing.assert_allclose(np.sum(column * projected, axis=0), 0, atol=1e-9)
    bound = theory.scafflix_start_bound(float(np.sum((x0 - star) ** 2)), L, alpha, step, p)
    for control in (own, projected):
        assert theory.scafflix_lyapunov(models, goal, control, there, step, p) <= bound
    assert np.abs(np.sum(column * own, axis=0)).max() > 1e-6  # the paper's start is not one of its algorithm


def test_a_hessian_of_another_size_is_refused() -> None:
    with pytest.raises(pf.PolyfedError, match="a Hessian and two models of one size"):
        theory.finetuned_model(np.eye(3), np.zeros(2), np.zeros(2), 0.1, 3)
