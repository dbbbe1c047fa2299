"""PLSGD on noisy quadratics with one Hessian, exactly: its error after R rounds, and the best local, global and mixed.

f_m(v) = h/2 |v - v_m|^2 with gradients of variance sigma^2, in full participation, from zero.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from polyfed.core.errors import PolyfedError
from polyfed.theory.inputs import Vector, count, number


class Clients(NamedTuple):
    """A federation of quadratics with one curvature h."""

    clients: int
    """M"""
    curvature: float
    """h"""
    shared: float
    """|mean of v_m|^2: how far the common part lies from the start"""
    apart: float
    """the mean of |v_m - mean v|^2: how unlike the clients are"""
    noise: float
    """sigma^2, E |gradient of a batch - gradient|^2"""


def plsgd_exact_error(
    c: Clients, stepsize: ArrayLike, alpha: ArrayLike, beta: ArrayLike, local_steps: int, rounds: int
) -> Vector:
    """The mean of E |w + theta_m - v_m|^2 after R rounds of K steps; stepsize, alpha and beta are broadcast.

    K steps leave b = nu^K of an error, nu = 1 - eta (1+alpha) h, and add the variance S = eta^2 (1+alpha)^2 sigma^2
    (1 - nu^2K)/(1 - nu^2). A round multiplies the clients' mean error by p = 1 - s (1-b), s = (alpha+beta)/(1+alpha),
    and adds s^2 S/M; it multiplies their differences by q = 1 - t (1-b), t = alpha/(1+alpha), and adds t^2 S (1 - 1/M).
    """
    eta, alpha, beta = (np.asarray(value, np.float64) for value in (stepsize, alpha, beta))
    K, R, M = count("local_steps", local_steps, 1), count("rounds", rounds), count("clients", c.clients, 1)
    if (eta <= 0).any() or (alpha < 0).any() or (beta < 0).any():
        raise PolyfedError("stepsize must be above 0, and alpha and beta at least 0")
    gain = eta * (1 + alpha)
    nu = 1 - gain * number("L", c.curvature)
    variance = gain**2 * number("noise", c.noise) * _geometric(nu**2, K)
    s, t = (alpha + beta) / (1 + alpha), alpha / (1 + alpha)
    p, q = 1 - s * (1 - nu**K), 1 - t * (1 - nu**K)
    mean = p ** (2 * R) * number("start", c.shared) + s**2 * variance / M * _geometric(p**2, R)
    own = q ** (2 * R) * number("start", c.apart) + t**2 * variance * (1 - 1 / M) * _geometric(q**2, R)
    return mean + own


class Best(NamedTuple):
    """The least error of a family of settings, and the setting."""

    error: float
    alpha: float
    beta: float
    stepsize: float


class Phase(NamedTuple):
    """The best of every regime: local has beta = 0, global alpha = 0, personalized both above 0."""

    local: Best
    personalized: Best
    one_model: Best
    winner: Literal["local", "personalized", "global"]
    """the regime with the least error; personalized only where it is lower by one in a hundred, for it has both"""


def plsgd_phase(c: Clients, local_steps: int, rounds: int) -> Phase:
    """The regime of a federation and the best (alpha, beta, eta), by `plsgd_exact_error` over a grid.

    (1 + alpha) eta h runs from 1e-4 to 1, alpha from 1e-3 to 1e3, and the server's multiple s = (alpha+beta)/(1+alpha)
    from alpha/(1+alpha) to 2: the law needs K steps of a client to contract, and a larger s only overshoots.
    """
    gains = np.geomspace(1e-4, 1, 81)[:, None, None] / c.curvature
    alphas, shares = np.geomspace(1e-3, 1e3, 61)[:, None], np.linspace(0.02, 1.0, 50)

    def best(alpha: Vector, beta: Vector) -> Best:
        alpha, beta, eta = np.broadcast_arrays(alpha, beta, gains / (1 + alpha))
        errors = plsgd_exact_error(c, eta, alpha, beta, local_steps, rounds)
        at = np.unravel_index(np.argmin(errors), errors.shape)
        return Best(float(errors[at]), float(alpha[at]), float(beta[at]), float(eta[at]))

    local = best(alphas, np.zeros(1))
    one = best(np.zeros((1, 1)), 2 * shares)
    mixed = best(alphas, (2 + alphas) * shares)
    least = min(local.error, one.error)
    if mixed.error < 0.99 * least:
        return Phase(local, mixed, one, "personalized")
    return Phase(local, mixed, one, "local" if local.error <= one.error else "global")


def _geometric(ratio: Vector, terms: int) -> Vector:
    """1 + ratio + ... over so many terms."""
    near = np.isclose(ratio, 1, rtol=0, atol=1e-12)
    return np.where(near, float(terms), (1 - ratio**terms) / np.where(near, 1.0, 1 - ratio))
