"""DCGD and DIANA on FLIX (Gasanov et al. 2022, Section 8): stepsizes, bounds and rates.

The i-th client compresses with a variance factor omega_i. What it compresses is the gradient of x -> f_i(T_i(x)), which
is alpha_i grad f_i(T_i(x)); wherever a function here asks for gradients, it asks for grad f_i(T_i(x*)) without the
factor and multiplies.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from polyfed.core.errors import PolyfedError
from polyfed.theory.inputs import INFINITE, Vector, clients, count, number, steps_to

Regime = Literal["strong", "convex", "nonconvex"]


def dcgd_stepsize(
    L: ArrayLike, alpha: ArrayLike, omega: ArrayLike, regime: Regime = "strong", *, rounds: int | None = None
) -> float:
    """The largest stepsize of DCGD on FLIX.

    Theorem 4 (strongly convex): 1 / (L_alpha + 2 max_i(L_i alpha_i^2 omega_i) / n). Theorem 6 (convex): a quarter.
    Theorem 8 (nonconvex): 1 / L_alpha; its bound grows like (1 + 2 L_alpha gamma^2 max_i(L_i alpha_i^2 omega_i) / n)^k,
    so that a run of `rounds` should also keep that below e: gamma^2 <= n / (2 rounds L_alpha max_i(..)).
    """
    L_i, alpha, omega = clients(L=L, alpha=alpha, omega=omega)
    total, noisy = np.mean(alpha**2 * L_i), _noisy(L_i, alpha, omega)
    if total == 0:
        return INFINITE
    if _regime(regime) == "nonconvex":
        steps = 0 if rounds is None else count("rounds", rounds)
        growth = 2 * steps * total * noisy
        return float(min(1 / total, growth**-0.5 if growth > 0 else INFINITE))
    return float(1 / (total + 2 * noisy) / (4 if regime == "convex" else 1))


def diana_beta(omega: ArrayLike) -> Vector:
    """beta_i = 1 / (1 + omega_i): the largest stepsize of DIANA's memory (Lemma 4)."""
    factors = np.asarray(omega, np.float64)
    clients(omega=factors)
    return 1 / (1 + factors)


def diana_stepsize(
    L: ArrayLike, alpha: ArrayLike, omega: ArrayLike, beta: ArrayLike | None = None, regime: Regime = "strong"
) -> float:
    """The largest stepsize of DIANA on FLIX; beta_i = 1 / (1 + omega_i) unless given.

    Theorem 5 (strongly convex): 1 / (L_alpha + 2 max_i(L_i alpha_i^2 omega_i) / n + 4 max_i(beta_i omega_i L_i
    alpha_i^2) / (n min_i beta_i)). Theorem 7 (convex): a quarter of it.

    Theorem 9 (nonconvex, one omega and one beta for all): min(1 / (2 Q sqrt(eta)), 2 / (L_alpha + sqrt(L_alpha^2 +
    8 Q^2 eta))) with eta = omega (1 + omega) (3 + 2 omega) / n. The paper writes L_alpha for Q; what its proof bounds
    is (1/n) sum_i |grad f_i(x) - grad f_i(y)|^2, so Q^2 is the mean of the alpha_i^4 L_i^2. The two agree where
    alpha_i^2 L_i is the same for all.
    """
    L_i, alpha, omega = clients(L=L, alpha=alpha, omega=omega)
    beta = _beta(omega, beta)
    total = np.mean(alpha**2 * L_i)
    if total == 0:
        return INFINITE
    if _regime(regime) == "nonconvex":
        return _diana_nonconvex(alpha**2 * L_i, omega, beta)
    memory = 4 * np.max(beta * omega * L_i * alpha**2) / (L_i.size * np.min(beta))
    return float(1 / (total + 2 * _noisy(L_i, alpha, omega) + memory) / (4 if regime == "convex" else 1))


def _diana_nonconvex(smoothness: Vector, omega: Vector, beta: Vector) -> float:
    if np.ptp(omega) > 0 or np.ptp(beta) > 0:
        raise PolyfedError("the nonconvex theory of DIANA needs one omega and one beta for all clients")
    noise, step = float(omega[0]), float(beta[0])
    largest = min(1 + 0.5 / (1 + noise), np.sqrt(1.5 + noise + 0.5 / noise) if noise > 0 else INFINITE) / (1 + noise)
    if not (1 - 1e-9) / (1 + noise) <= step <= largest * (1 + 1e-9):
        raise PolyfedError(
            f"beta must lie in [{1 / (1 + noise):g}, {largest:g}] for the nonconvex theory of DIANA, found {step:g}"
        )
    mean, square = np.mean(smoothness), np.mean(smoothness**2)
    eta = noise * (1 + noise) * (3 + 2 * noise) / smoothness.size
    memory = 0.5 / np.sqrt(eta * square) if eta > 0 else INFINITE
    return float(min(memory, 2 / (mean + np.sqrt(mean**2 + 8 * eta * square))))


def dcgd_neighbourhood(
    gradients: ArrayLike, mu: ArrayLike, alpha: ArrayLike, omega: ArrayLike, stepsize: float
) -> float:
    """2 gamma / (mu_alpha n^2) sum_i omega_i alpha_i^2 |grad f_i(T_i(x*))|^2: where DCGD may stall (Theorem 4, eq. 50).

    `gradients` has a row per client: grad f_i(T_i(x*)), without the factor alpha_i.
    """
    squares = np.sum(_rows(gradients) ** 2, axis=-1)
    mu, alpha, omega, _ = clients(mu=mu, alpha=alpha, omega=omega, start=squares)
    total = np.sum(omega * alpha**2 * squares)
    strength = np.mean(alpha**2 * mu)
    if total == 0:
        return 0.0
    return (
        float(2 * number("stepsize", stepsize) * total / (strength * len(squares) ** 2)) if strength > 0 else INFINITE
    )


def dcgd_distance_bound(
    steps: ArrayLike,
    start: float,
    gradients: ArrayLike,
    mu: ArrayLike,
    alpha: ArrayLike,
    omega: ArrayLike,
    stepsize: float,
) -> Vector:
    """E|x^k - x*|^2 <= (1 - gamma mu_alpha)^k |x^0 - x*|^2 + neighbourhood, of DCGD (Theorem 4, eq. 50).

    `start` is |x^0 - x*|^2; the stepsize must be at most `dcgd_stepsize`.
    """
    mu, alpha, omega = clients(mu=mu, alpha=alpha, omega=omega)
    shrink = 1 - number("stepsize", stepsize) * np.mean(alpha**2 * mu)
    falling = shrink ** np.asarray(steps, np.float64) * number("start", start)
    return falling + dcgd_neighbourhood(gradients, mu, alpha, omega, stepsize)


def diana_lyapunov(
    x: ArrayLike,
    solution: ArrayLike,
    h: ArrayLike,
    gradients: ArrayLike,
    alpha: ArrayLike,
    omega: ArrayLike,
    stepsize: float,
    beta: ArrayLike | None = None,
) -> Vector:
    """D = |x - x*|^2 + 4 gamma^2 / (n min beta) (1/n) sum_i omega_i |h_i - alpha_i grad f_i(T_i(x*))|^2 (Theorem 5).

    x has shape (..., d) and the memories h (..., n, d), so that many runs are measured at once; `gradients` (n, d) are
    grad f_i(T_i(x*)), without the factor alpha_i.
    """
    goal = _rows(gradients)
    alpha, omega, _ = clients(alpha=alpha, omega=omega, start=np.zeros(len(goal)))
    distance = np.sum((np.asarray(x, np.float64) - np.asarray(solution, np.float64)) ** 2, axis=-1)
    memory = np.sum((np.asarray(h, np.float64) - alpha[:, None] * goal) ** 2, axis=-1) @ omega / len(goal)
    weight = 4 * number("stepsize", stepsize) ** 2 / (len(goal) * np.min(_beta(omega, beta)))
    return distance + weight * memory


def diana_rate(
    mu: ArrayLike, alpha: ArrayLike, omega: ArrayLike, stepsize: float, beta: ArrayLike | None = None
) -> float:
    """rho = min(gamma mu_alpha, min_i beta_i / 2): E D^k <= (1 - rho)^k D^0 (Theorem 5, eq. 61)."""
    mu, alpha, omega = clients(mu=mu, alpha=alpha, omega=omega)
    fall = number("stepsize", stepsize) * np.mean(alpha**2 * mu)
    return float(min(fall, np.min(_beta(omega, beta)) / 2))


def diana_bound(
    steps: ArrayLike,
    start: float,
    mu: ArrayLike,
    alpha: ArrayLike,
    omega: ArrayLike,
    stepsize: float,
    beta: ArrayLike | None = None,
) -> Vector:
    """(1 - rho)^k D^0, from D^0 = `start`: the bound on E D^k, hence on E|x^k - x*|^2 (Theorem 5, eq. 61)."""
    rate = diana_rate(mu, alpha, omega, stepsize, beta)
    return (1 - rate) ** np.asarray(steps, np.float64) * number("start", start)


def diana_rounds(
    epsilon: float,
    start: float,
    mu: ArrayLike,
    alpha: ArrayLike,
    omega: ArrayLike,
    stepsize: float,
    beta: ArrayLike | None = None,
) -> float:
    """The rounds of DIANA that bring E D from `start` under epsilon (Theorem 5); infinite where mu = 0.

    For f - min f <= e take epsilon = 2 e / L_alpha, as f - min f <= L_alpha / 2 |x - x*|^2.
    """
    rate = diana_rate(mu, alpha, omega, stepsize, beta)
    return steps_to(number("epsilon", epsilon), number("start", start), rate)


def _noisy(L: Vector, alpha: Vector, omega: Vector) -> float:
    """max_i(L_i alpha_i^2 omega_i) / n."""
    return float(np.max(L * alpha**2 * omega) / L.size)


def _beta(omega: Vector, beta: ArrayLike | None) -> Vector:
    omega, beta = clients(omega=omega, beta=diana_beta(omega) if beta is None else beta)
    return beta


def _regime(regime: str) -> str:
    if regime not in ("strong", "convex", "nonconvex"):
        raise PolyfedError(f"regime must be one of strong, convex, nonconvex; found {regime!r}")
    return regime


def _rows(gradients: ArrayLike) -> Vector:
    rows = np.asarray(gradients, np.float64)
    if rows.ndim != 2:
        raise PolyfedError(f"gradients must have a row per client, found an array of shape {rows.shape}")
    return rows
