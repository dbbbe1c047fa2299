"""Scafflix (Yi, Condat, Richtarik 2023): stepsizes, the coin, the Lyapunov function, the rate and what follows from it.

Every client i has its own stepsize gamma_i and is L_i-smooth and mu_i-strongly convex; all communicate with
probability p. With every alpha_i = 1 the method is i-Scaffnew, and with equal stepsizes Scaffnew. A client with
alpha_i = 0 takes no part: leave it out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from polyfed.core.errors import PolyfedError
from polyfed.theory.inputs import INFINITE, Vector, clients, count, number, steps_to


def scafflix_stepsizes(A: ArrayLike, mu: ArrayLike, C: ArrayLike = 0.0, epsilon: float | None = None) -> Vector:
    """gamma_i = min(1 / A_i, epsilon mu_min / (2 C_i)), or 1 / A_i where C_i = 0 (Corollary 2, eq. 9).

    A_i >= L_i (the paper prints L_i^2) and C_i are the constants of the stochastic gradients (Assumption 3): A_i = L_i
    and C_i = 0 for exact ones; L_i and the variance for noisy ones; `expected_smoothness` for sampled examples. epsilon
    is the accuracy of the Lyapunov function to reach, needed where some C_i > 0: the noise then takes up half of it.
    """
    A_i, mu, C_i = clients(A=A, mu=mu, C=C)
    stepsizes = 1 / A_i
    if not C_i.any():
        return stepsizes
    if epsilon is None:
        raise PolyfedError("epsilon is needed: with noisy gradients (C above 0) the stepsizes depend on the accuracy")
    if not mu.min() > 0:
        raise PolyfedError("mu must be above 0 for every client where gradients are noisy (C above 0)")
    noisy = C_i > 0
    limit = number("epsilon", epsilon) * mu.min() / (2 * C_i[noisy])
    stepsizes[noisy] = np.minimum(stepsizes[noisy], limit)
    return stepsizes


def scafflix_probability(stepsizes: ArrayLike, mu: ArrayLike) -> float:
    """p = sqrt(min_i gamma_i mu_i): the communication probability that needs the fewest rounds (Corollary 2)."""
    stepsizes, mu = clients(stepsize=stepsizes, mu=mu)
    return min(1.0, float(np.sqrt(np.min(stepsizes * mu))))


def scafflix_rate(stepsizes: ArrayLike, mu: ArrayLike, probability: float) -> float:
    """zeta = min(min_i gamma_i mu_i, p^2): the share of the Lyapunov function that an iteration removes (eq. 5)."""
    stepsizes, mu = clients(stepsize=stepsizes, mu=mu)
    return float(min(np.min(stepsizes * mu), number("probability", probability) ** 2))


def scafflix_lyapunov(
    personal: ArrayLike,
    references: ArrayLike,
    h: ArrayLike,
    gradients: ArrayLike,
    stepsizes: ArrayLike,
    probability: float,
) -> Vector:
    """Psi = (gamma_min / n) sum_i (|x~_i - x~_i*|^2 / gamma_i + gamma_i / p^2 |h_i - g_i*|^2) (eq. 3).

    The personal models x~_i and the control variates h have shape (..., n, d), so that many runs are measured at once;
    `references` (n, d) are the personal models x~_i* of the solution, and `gradients` (n, d) g_i* = grad f_i(x~_i*).
    """
    goal = np.asarray(references, np.float64)
    if goal.ndim != 2:
        raise PolyfedError(f"references must have a row per client, found an array of shape {goal.shape}")
    stepsizes, _ = clients(stepsize=stepsizes, start=np.zeros(len(goal)))
    models = np.sum((np.asarray(personal, np.float64) - goal) ** 2, axis=-1)
    controls = np.sum((np.asarray(h, np.float64) - np.asarray(gradients, np.float64)) ** 2, axis=-1)
    terms = models / stepsizes + controls * stepsizes / number("probability", probability) ** 2
    return np.min(stepsizes) * np.mean(terms, axis=-1)


def scafflix_start_bound(
    distance: float, L: ArrayLike, alpha: ArrayLike, stepsizes: ArrayLike, probability: float
) -> float:
    """Psi^0 <= |x^0 - x*|^2 (gamma_min/n) sum_i alpha_i^2 (1/gamma_i + gamma_i L_i^2/p^2) (after Corollary 2).

    From one x^0 and h_i = grad f_i(T_i(x^0)); `distance` is |x^0 - x*|^2. Those h_i do not have sum alpha_i h_i = 0,
    which the method needs. Projected onto it so that sum gamma_i |change of h_i|^2 is least, they come no farther from
    the solution's, which lie on it, and the bound holds.
    """
    L_i, alpha, stepsizes = clients(L=L, alpha=alpha, stepsize=stepsizes)
    terms = alpha**2 * (1 / stepsizes + stepsizes * L_i**2 / number("probability", probability) ** 2)
    return float(number("start", distance) * np.min(stepsizes) * np.mean(terms))


def scafflix_noise(stepsizes: ArrayLike, mu: ArrayLike, probability: float, C: ArrayLike = 0.0) -> float:
    """gamma_min / zeta (1/n) sum_i gamma_i C_i: the level at which noisy gradients may stall (eq. 4)."""
    stepsizes, mu, C_i = clients(stepsize=stepsizes, mu=mu, C=C)
    if not C_i.any():
        return 0.0
    rate = scafflix_rate(stepsizes, mu, probability)
    return float(np.min(stepsizes) / rate * np.mean(stepsizes * C_i)) if rate > 0 else INFINITE


def scafflix_bound(
    iterations: ArrayLike, start: float, stepsizes: ArrayLike, mu: ArrayLike, probability: float, C: ArrayLike = 0.0
) -> Vector:
    """E Psi^t <= (1 - zeta)^t Psi^0 + gamma_min / zeta (1/n) sum_i gamma_i C_i, from Psi^0 = `start` (Theorem 1, 4).

    Valid for gamma_i <= 1 / A_i. An iteration is a local step; communication happens in a share p of them.
    """
    rate = scafflix_rate(stepsizes, mu, probability)
    falling = (1 - rate) ** np.asarray(iterations, np.float64) * number("start", start)
    return falling + scafflix_noise(stepsizes, mu, probability, C)


def scafflix_iterations(
    epsilon: float, start: float, stepsizes: ArrayLike, mu: ArrayLike, probability: float, C: ArrayLike = 0.0
) -> float:
    """The iterations that bring E Psi from `start` under epsilon (Theorem 1; with its constants, not the O of eq. 10).

    Infinite where mu = 0, or where the noise alone exceeds epsilon.
    """
    left = number("epsilon", epsilon) - scafflix_noise(stepsizes, mu, probability, C)
    rate = scafflix_rate(stepsizes, mu, probability)
    return steps_to(left, number("start", start), rate) if left > 0 else INFINITE


def scafflix_rounds(
    epsilon: float, start: float, stepsizes: ArrayLike, mu: ArrayLike, probability: float, C: ArrayLike = 0.0
) -> float:
    """The expected communications within `scafflix_iterations`: p times as many, rounded up (eqs. 7 and 11)."""
    iterations = scafflix_iterations(epsilon, start, stepsizes, mu, probability, C)
    return INFINITE if iterations == INFINITE else int(np.ceil(probability * iterations))


def scafflix_accuracy(epsilon: float, L: ArrayLike, stepsizes: ArrayLike) -> float:
    """The value of Psi at which f - min f <= epsilon for a shared model: 2 gamma_min epsilon / max_i(gamma_i L_i).

    Follows from (3): f(x) - min f <= (1/2n) sum_i alpha_i^2 L_i |x - x*|^2 and, right after a communication,
    Psi >= gamma_min (1/n) sum_i alpha_i^2 |x - x*|^2 / gamma_i.
    """
    L_i, stepsizes = clients(L=L, stepsize=stepsizes)
    return float(2 * np.min(stepsizes) * number("epsilon", epsilon) / np.max(stepsizes * L_i))


class ExpectedSmoothness(NamedTuple):
    """The constants of a client's stochastic gradients (Assumption 3)."""

    A: float
    C: float


def expected_smoothness(smoothness: ArrayLike, gradients: ArrayLike, batch: int = 1) -> ExpectedSmoothness:
    """A and C of one client whose gradients come from examples drawn uniformly, with replacement (Assumption 3, 2).

    A = 2 L with L the largest of the examples' smoothness constants; C = (2/n_i) sum_j |g_j|^2 - 2 |mean_j g_j|^2 with
    g_j, a row of `gradients`, the gradient of example j's loss at the solution's personal model. For a batch of b: A =
    (1 - 1/b) mean_j(L_j) + 2 L / b and C divided by b, as the variance of a mean of b draws is a b-th of one draw's.
    """
    (constants,) = clients(L=np.atleast_1d(np.asarray(smoothness, np.float64)))
    rows = np.asarray(gradients, np.float64)
    if rows.ndim != 2 or constants.size not in (1, len(rows)):
        raise PolyfedError(
            f"expected_smoothness needs a gradient per example, found {constants.size} constants and shape {rows.shape}"
        )
    batch = count("batch", batch, 1)
    squares: Vector = np.sum((rows - rows.mean(axis=0)) ** 2, axis=1)
    variance = float(np.mean(squares))
    largest = (1 - 1 / batch) * np.mean(constants) + 2 * np.max(constants) / batch
    return ExpectedSmoothness(float(largest), 2 * variance / batch)
