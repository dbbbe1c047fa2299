"""FLIX's supplement: Theorem 3, Propositions 5 and 6, convex bounds of DCGD and DIANA, and their corollaries.

Where a corollary loses a factor against its own proof, the function has the proof's: see docs/errata.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from polyfed.theory.compressed import diana_beta, diana_stepsize
from polyfed.theory.inputs import INFINITE, Vector, clients, number


def stationary_weights(L: ArrayLike, alpha: ArrayLike) -> Vector:
    """w_i = alpha_i^4 L_i^2 / sum_j alpha_j^4 L_j^2: the weights of the pure local models in Theorem 3's x_avg."""
    L_i, alpha = clients(L=L, alpha=alpha)
    weights = ((alpha**4 if alpha.any() else 1.0) * L_i**2).astype(np.float64)
    return weights / weights.sum()


def stationary_limit(epsilon: float, L: ArrayLike, variance: float) -> float:
    """The alpha up to which |grad f(x_avg)| <= epsilon (Theorem 3, by its proof): sqrt(epsilon) / (mean L_i^2 V)^(1/4).

    V = sum_i w_i |x_i - x_avg|^2 for equal alpha; for unequal ones max_ij |x_i - x_j|^2 in its place and the largest
    alpha_i below. The theorem states sqrt(2 epsilon / (mean L_i V)), which is not a length's power and is false.
    """
    (L_i,) = clients(L=L)
    scale = np.sqrt(np.mean(L_i**2) * number("variance", variance))
    return float(np.sqrt(number("epsilon", epsilon) / scale)) if scale > 0 else INFINITE


def start_distance_bound(L: ArrayLike, mu: ArrayLike, distance: ArrayLike) -> float:
    """|x - x*|^2 <= mean(L_i |x - x_i|^2) / mean mu_i, for equal alpha (Proposition 5); `distance` is |x - x_i|^2."""
    L_i, mu, distance = clients(L=L, mu=mu, start=distance)
    return float(np.mean(L_i * distance) / np.mean(mu)) if mu.any() else INFINITE


def local_distance_bound(L: ArrayLike, mu: ArrayLike, diameter: float) -> float:
    """The mean of |x_i - x*|^2 is at most max L_i / mean mu_i max_ij |x_i - x_j|^2, for equal alpha (Prop. 6)."""
    L_i, mu = clients(L=L, mu=mu)
    return float(L_i.max() / np.mean(mu) * number("diameter", diameter) ** 2) if mu.any() else INFINITE


def dcgd_equal_bound(
    steps: ArrayLike, L: ArrayLike, mu: ArrayLike, omega: float, distance: ArrayLike, diameter: float
) -> Vector:
    """Corollary 1, (51) repaired: E|x^k - x*|^2 of DCGD for one alpha, at the stepsize `dcgd_stepsize`.

    (1 - gamma_0 mu)^k mean(L_i |x^0 - x_i|^2)/mu + 2 gamma_0 omega (max L_i)^3 D^2/(mu^2 n), mu = mean mu_i. The paper
    has (max L_i)^2: it takes |grad f_i(x) - grad f_i(y)|^2 to be at most L_i |x - y|^2. Times alpha^2 mean L_i / 2 it
    bounds E f - min f (52).
    """
    L_i, mu, distance = clients(L=L, mu=mu, start=distance)
    omega, least = number("omega", omega), float(np.mean(mu))
    gamma = 1 / (np.mean(L_i) + 2 * omega * L_i.max() / distance.size)
    floor = 2 * gamma * omega * L_i.max() ** 3 * number("diameter", diameter) ** 2 / (least**2 * distance.size)
    falling = (1 - gamma * least) ** np.asarray(steps, np.float64)
    return falling * start_distance_bound(L_i, mu, distance) + floor


def diana_equal_bound(
    steps: ArrayLike,
    L: ArrayLike,
    mu: ArrayLike,
    omega: ArrayLike,
    distance: ArrayLike,
    beta: ArrayLike | None = None,
) -> Vector:
    """Corollary 2, (62): E|x^k - x*|^2 of DIANA for one alpha, at `diana_stepsize`, from memories at the gradients.

    max(1 - gamma_0 mu, 1 - min beta_i/2)^k (1 + 4 gamma_0^2 mean(omega_i L_i^2)/(n min beta_i)) mean(L_i |x^0 -
    x_i|^2)/mu, mu = mean mu_i and `distance` = |x^0 - x_i|^2: alpha does not enter. Times alpha^2 mean L_i / 2 it
    bounds E f - min f (63).
    """
    L_i, mu, omega, squares = clients(L=L, mu=mu, omega=omega, start=distance)
    least = float(np.min(diana_beta(omega) if beta is None else clients(beta=beta)[0]))
    gamma = diana_stepsize(L_i, 1.0, omega, beta)
    rate = min(gamma * float(np.mean(mu)), least / 2)
    start = 1 + 4 * gamma**2 * np.mean(omega * L_i**2) / (L_i.size * least)
    return (1 - rate) ** np.asarray(steps, np.float64) * start * start_distance_bound(L_i, mu, squares)


def dcgd_convex_bound(
    steps: ArrayLike,
    gap: float,
    distance: float,
    gradients: ArrayLike,
    alpha: ArrayLike,
    omega: ArrayLike,
    gamma: float,
) -> Vector:
    """Theorem 6, (64): E f(mean of x^1 .. x^k) - min f of DCGD, for stepsizes up to `dcgd_stepsize(.., "convex")`.

    2 (f(x^0) - f*)/k + |x^0 - x*|^2/(gamma k) + 2 gamma sigma, sigma = (2/n^2) sum omega_i alpha_i^2 |grad_i|^2 with
    `gradients` a row per client, grad f_i(T_i(x*)); `gap` = f(x^0) - f*, `distance` = |x^0 - x*|^2.
    """
    noise = 2 / len(np.atleast_2d(gradients)) * _memory(gradients, alpha, omega)
    start = 2 * number("start", gap) + number("start", distance) / number("stepsize", gamma)
    return start / np.asarray(steps, np.float64) + 2 * gamma * noise


def diana_convex_bound(
    steps: ArrayLike,
    gap: float,
    distance: float,
    gradients: ArrayLike,
    alpha: ArrayLike,
    omega: ArrayLike,
    gamma: float,
) -> Vector:
    """Theorem 7, (67), with memories from zero and beta_i = 1/(1 + omega_i): as `dcgd_convex_bound`, for DIANA.

    (2 (f(x^0) - f*) + 4 gamma/(n min beta) sigma_0^2 + |x^0 - x*|^2/gamma)/k, for stepsizes up to `diana_stepsize(..,
    regime="convex")`; sigma_0^2 = (1/n) sum omega_i alpha_i^2 |grad_i|^2.
    """
    start = 2 * number("start", gap) + number("start", distance) / number("stepsize", gamma)
    n = len(np.atleast_2d(gradients))
    memory = 4 * gamma * (1 + float(np.max(np.asarray(omega)))) / n * _memory(gradients, alpha, omega)
    return (start + memory) / np.asarray(steps, np.float64)


def convex_equal_bound(
    steps: ArrayLike,
    alpha: float,
    L: ArrayLike,
    omega: float,
    distance: ArrayLike,
    radius: float,
    excess: float,
    memory: bool = False,
) -> Vector:
    """Corollary 3 (DCGD), and with `memory` Corollary 4 (DIANA): Theorems 6 and 7 for one alpha and one omega.

    DCGD: (2 alpha^2/k)(mean L_i |x^0 - x_i|^2 + 2 (mean L_i + 2 omega max L_i/n) R^2) + 2 alpha omega max L_i/(n mean
    L_i + 2 omega max L_i) E. DIANA has 6 for 2 under both sums, and the last term times (1 + omega)/k. `distance` is
    |x^0 - x_i|^2, R = `radius` >= |x^0 - x*|, E = `excess` = min mean f_i - mean min f_i. As printed, both have half of
    the last term; the proofs give all of it.
    """
    L_i, distance = clients(L=L, start=distance)
    k, alpha, omega, n = np.asarray(steps, np.float64), number("alpha", alpha), number("omega", omega), distance.size
    times = 6 if memory else 2
    total = np.mean(L_i) + times * omega * L_i.max() / n
    falling = 2 * alpha**2 / k * (np.mean(L_i * distance) + 2 * total * number("radius", radius) ** 2)
    last = 2 * alpha * omega * L_i.max() / (n * total) * number("start", excess)
    return falling + (last * (1 + omega) / k if memory else last)


def _memory(gradients: ArrayLike, alpha: ArrayLike, omega: ArrayLike) -> float:
    """(1/n) sum omega_i alpha_i^2 |grad_i|^2."""
    squares = np.sum(np.atleast_2d(np.asarray(gradients, np.float64)) ** 2, axis=1)
    alpha, omega, squares = clients(alpha=alpha, omega=omega, start=squares)
    return float(np.mean(omega * alpha**2 * squares))
