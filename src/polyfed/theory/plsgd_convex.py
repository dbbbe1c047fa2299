"""PLSGD on convex losses: Theorem 2, (17) and (18), local SGD's (19), and what one model for all costs, (12), (13).

Losses are (1/M) sum_m F_m(v_m) - min F_m, and constants are those of the proofs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from polyfed.core.errors import PolyfedError
from polyfed.theory.inputs import Vector, number
from polyfed.theory.plsgd import Federated


class Cost(NamedTuple):
    """What every client loses, on average, with one model for all."""

    loss: float
    """(12): at most zeta*^2/(2L). The paper has twice that, and calls it reached."""
    distance: float
    """(13): at most zeta*^2/L^2, by Assumption 3"""


def cost_of_one_model(c: Federated) -> Cost:
    """Bounds on (12), min (1/M) sum F_m(v) - (1/M) sum min F_m, and on (13), the mean of |v* - v_m*|^2.

    Smoothness gives F_m(v*) - F_m* <= (L/2)|v* - v_m*|^2, so that (12) is at most half of the zeta*^2/L of the paper;
    the two clients of Proposition 1 reach both bounds.
    """
    return Cost(c.heterogeneity**2 / (2 * c.L), c.heterogeneity**2 / c.L**2)


def plsgd_consensus_bound(c: Federated, stepsize: float, alpha: float, consensus: ArrayLike) -> Vector:
    """(17) with the constants of its proof, for output II with beta = 1 and stepsizes up to 1/(2 L (1 + alpha)).

    5 B^2 (1+alpha)/(eta alpha T) + 2 eta max(1, M alpha) sigma^2/M + 2 L `consensus`, the mean of E xi_t over t < T.
    """
    eta, alpha = number("stepsize", stepsize), number("personalization", alpha)
    if alpha == 0 or eta > (1 + 1e-12) / (2 * c.L * (1 + alpha)):
        raise PolyfedError(
            f"(17) needs alpha above 0 and a stepsize up to 1/(2 L (1 + alpha)), found {alpha:g}, {eta:g}"
        )
    gamma, T = max(1.0, c.clients * alpha), c.local_steps * c.R
    start = 5 * c.radius**2 * (1 + alpha) / (eta * alpha * T)
    return start + 2 * eta * gamma * c.noise**2 / c.clients + 2 * c.L * np.asarray(consensus, np.float64)


def local_sgd_consensus_bound(c: Federated, stepsize: float, consensus: ArrayLike, cost: float | None = None) -> Vector:
    """(19): the mean loss of local SGD's averaged model with beta = 1, for stepsizes up to 1/(10 L).

    B^2/(eta T) + eta sigma^2/M + L `consensus` + `cost`, the loss of the best single model, or its bound
    `cost_of_one_model`. B is the distance of the common optimum from the start, which Assumption 2 does not bound.
    """
    eta, T = number("stepsize", stepsize), c.local_steps * c.R
    if eta > (1 + 1e-12) / (10 * c.L):
        raise PolyfedError(f"(19) needs a stepsize up to 1/(10 L) = {1 / (10 * c.L):.4g}, found {eta:g}")
    alone = cost_of_one_model(c).loss if cost is None else number("start", cost)
    return c.radius**2 / (eta * T) + eta * c.noise**2 / c.clients + c.L * np.asarray(consensus, np.float64) + alone


def plsgd_convex_stepsize(c: Federated) -> Vector:
    """min(1/(4L), sqrt(5) B / (sigma sqrt(T))), T = K R: the inner stepsize of (18)."""
    with np.errstate(divide="ignore"):
        return np.minimum(1 / (4 * c.L), np.sqrt(5) * c.radius / (np.float64(c.noise) * np.sqrt(c.local_steps * c.R)))


def plsgd_convex_bound(c: Federated) -> Vector:
    """(18) with the constants of its proof: the mean of F_m - F_m* of output III with alpha = beta = 1.

    10 B^2/(eta T) + 2 eta sigma^2 at `plsgd_convex_stepsize`; the paper writes L B^2/T + sigma B/sqrt(T), up to
    constants.
    """
    eta = plsgd_convex_stepsize(c)
    return 10 * c.radius**2 / (eta * c.local_steps * c.R) + 2 * eta * c.noise**2
