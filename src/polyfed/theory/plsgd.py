"""PLSGD (Personalization Mitigates the Perils of Local SGD): bounds, the window of (16), consensus laws, Table 1.

Distances are (1/M) sum_m E |v_m - v_m*|^2. Rates of Table 1 leave out numerical constants, as the paper does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from polyfed.core.errors import PolyfedError
from polyfed.theory.inputs import INFINITE, Vector, count, number


@dataclass(frozen=True, kw_only=True)
class Federated:
    """A federation as the theorems see it. `rounds` is a number, or several for a curve."""

    clients: int
    """M"""
    local_steps: int
    """K"""
    rounds: ArrayLike
    """R"""
    L: float
    """the largest smoothness of a client"""
    mu: float = 0.0
    """the least strong convexity of a client"""
    radius: float = 1.0
    """B: no client's optimum lies further from the start"""
    noise: float = 0.0
    """sigma: E |gradient of a batch - gradient|^2 <= sigma^2, everywhere"""
    heterogeneity: float = 0.0
    """zeta*: the mean of |v_m* - v*|^2 is at most zeta*^2 / L^2 (Assumption 3)"""

    def __post_init__(self) -> None:
        for name in ("L", "mu", "radius", "noise", "heterogeneity"):
            number(name, getattr(self, name))
        for name in ("clients", "local_steps"):
            count(name, getattr(self, name), 1)
        if self.mu > self.L:
            raise PolyfedError(f"mu must be at most L, found mu = {self.mu:g} and L = {self.L:g}")
        if np.any(np.asarray(self.rounds) < 0):
            raise PolyfedError(f"rounds must be at least 0, found {np.min(self.rounds):g}")

    @property
    def R(self) -> Vector:
        return np.asarray(self.rounds, np.float64)

    @property
    def kappa(self) -> float:
        return self.L / self.mu if self.mu > 0 else INFINITE


def plsgd_stepsize_limit(L: float, alpha: float) -> float:
    """1 / ((1 + alpha) L): Theorem 1 holds for inner stepsizes below it."""
    return 1 / ((1 + number("personalization", alpha)) * number("L", L))


def plsgd_outer_limit(c: Federated, stepsize: float, alpha: float) -> float:
    """The largest beta for which a round contracts as (14) says, where all clients have the same Hessian.

    An eigenvalue lambda shrinks by b = (1 - eta (1 + alpha) lambda)^K in K local steps; in a round the mean of the
    clients' errors is multiplied by 1 - (alpha + beta)(1 - b)/(1 + alpha), their differences by 1 - alpha (1 - b)/(1 +
    alpha). The paper's proof takes the second for the largest of both, which is so up to this beta. It is at least 2.
    """
    done = [1 - (1 - stepsize * (1 + alpha) * curvature) ** c.local_steps for curvature in (c.mu, c.L)]
    return (2 * (1 + alpha) - alpha * done[0]) / done[1] - alpha


def plsgd_bound(c: Federated, stepsize: float, alpha: float = 1.0, beta: float = 1.0) -> Vector:
    """(14), on output I.

    e^(-2 alpha R/(1+alpha) (1 - e^(-eta (1+alpha) mu K))) B^2 + (4 eta sigma^2 alpha/mu)(1 + beta^2/(M alpha^2)).
    The proof bounds the norm of a round's matrix by its eigenvalues. That is right for clients with one Hessian and
    beta up to `plsgd_outer_limit`; with unequal Hessians and a small alpha the distance can exceed it.
    """
    eta, mu = _stepsize(stepsize, c, alpha), _convex(c)
    if alpha == 0:
        raise PolyfedError("plsgd_bound needs alpha above 0: without personal parts Theorem 1 says nothing")
    exponent = 2 * alpha * c.R / (1 + alpha) * -np.expm1(-eta * (1 + alpha) * mu * c.local_steps)
    beta = number("outer_stepsize", beta)
    noise = 4 * eta * c.noise**2 * alpha / mu * (1 + beta**2 / (c.clients * alpha**2))
    return np.exp(-exponent) * c.radius**2 + noise


def plsgd_balanced_bound(c: Federated, stepsize: float) -> Vector:
    """(15), for alpha = 1 and beta up to sqrt(M): e^(-R (1 - e^(-2 eta mu K))) B^2 + 8 eta sigma^2 / mu."""
    eta, mu = _stepsize(stepsize, c, 1.0), _convex(c)
    return np.exp(-c.R * -np.expm1(-2 * eta * mu * c.local_steps)) * c.radius**2 + 8 * eta * c.noise**2 / mu


class Window(NamedTuple):
    """The condition numbers for which (16) is stated: low <= kappa < high."""

    low: Vector
    high: Vector

    def __contains__(self, kappa: object) -> bool:
        value = np.asarray(kappa, np.float64)
        return bool(np.all((self.low <= value) & (value < self.high)))


def plsgd_window(clients: int, local_steps: int, rounds: ArrayLike) -> Window:
    """K / (2 (1 - e^(-1/(4 M R)))) <= kappa < 4 M K R: never empty, since the lower end is about half the upper."""
    R = np.asarray(rounds, np.float64)
    return Window(local_steps / (2 * -np.expm1(-1 / (4 * clients * R))), 4.0 * clients * local_steps * R)


def plsgd_window_stepsize(c: Federated) -> Vector:
    """1 / (8 mu M K R): the inner stepsize of (16), with alpha = 1 and beta = sqrt(M)."""
    return 1 / (8 * _convex(c) * c.clients * c.local_steps * c.R)


def plsgd_window_bound(c: Federated) -> Vector:
    """(16): e^(-K R/(2 kappa)) B^2 + sigma^2/(mu^2 M K R), for kappa in `plsgd_window`.

    In the window K R/(2 kappa) <= R (1 - e^(-1/(4MR))) <= 1/(4M), so that the first term never falls below
    `plsgd_window_floor`: hardly anything has been optimised there. The second is small because the stepsize is.
    """
    window = plsgd_window(c.clients, c.local_steps, c.rounds)
    if c.kappa not in window:
        low, high = np.min(window.low), np.max(window.high)
        raise PolyfedError(f"(16) needs a condition number from {low:.4g} to {high:.4g}, found {c.kappa:.4g}")
    return plsgd_rate(c).total


def plsgd_window_floor(clients: int, radius: float = 1.0) -> float:
    """e^(-1/(4M)) B^2: the first term of (16) is never below it."""
    return float(np.exp(-1 / (4 * clients)) * number("radius", radius) ** 2)


def consensus_local_sgd(step: ArrayLike, stepsize: float, zeta: float = 1.0) -> Vector:
    """Local SGD on Proposition 1's two clients, after `step` local steps of any round: zeta^2 (1 - (1-eta)^k)^2."""
    return zeta**2 * (1 - (1 - stepsize) ** np.asarray(step, np.float64)) ** 2


def consensus_local_sgd_mean(stepsize: float, local_steps: int, zeta: float = 1.0) -> float:
    """(20): its mean over the steps k = 0 .. K - 1, the same in every round."""
    K, eta, nu = local_steps, stepsize, 1 - stepsize
    return float(zeta**2 * (1 + (1 - nu ** (2 * K)) / ((2 - eta) * eta * K) - 2 * (1 - nu**K) / (eta * K)))


def consensus_plsgd(
    round: ArrayLike, step: ArrayLike, stepsize: float, alpha: float, local_steps: int, zeta: float = 1.0
) -> Vector:
    """PLSGD on the same clients, exactly, after `step` local steps of round r = 0, 1, ...; alpha = 0 is local SGD.

    zeta^2/(1+alpha)^2 ((1 + alpha nu^K)/(1+alpha))^(2r) (1 - nu^k)^2, nu = 1 - eta (1+alpha). The paper prints the
    factors without their squares. beta does not enter: it moves all clients alike.
    """
    nu = 1 - stepsize * (1 + alpha)
    factor = (1 + alpha * nu**local_steps) / (1 + alpha)
    power, steps = 2 * np.asarray(round, np.float64), np.asarray(step, np.float64)
    return (zeta / (1 + alpha)) ** 2 * factor**power * (1 - nu**steps) ** 2


def consensus_plsgd_mean(stepsize: float, alpha: float, local_steps: int, rounds: int, zeta: float = 1.0) -> float:
    """The exact mean of `consensus_plsgd` over the T = K R steps."""
    r, k = np.arange(rounds)[:, None], np.arange(local_steps)
    return float(np.mean(consensus_plsgd(r, k, stepsize, alpha, local_steps, zeta)))


def consensus_plsgd_bound(stepsize: float, alpha: float, local_steps: int, rounds: int, zeta: float = 1.0) -> float:
    """(21), as printed: meant as a bound on `consensus_plsgd_mean`.

    zeta^2/(1+alpha) (1 - (1-nu^K)/(eta(1+alpha)K)) (1-nu^R)/(eta(1+alpha)R). It is one for alpha = 1; for a small alpha
    and many rounds it is not: at alpha = 0 it falls with R, where (20) does not.
    """
    gain = stepsize * (1 + alpha)
    nu, K, R = 1 - gain, local_steps, rounds
    return float(zeta**2 / (1 + alpha) * (1 - (1 - nu**K) / (gain * K)) * (1 - nu**R) / (gain * R))


class Rate(NamedTuple):
    """A row of Table 1: three terms, up to numerical constants."""

    optimization: Vector
    noise: Vector
    heterogeneity: Vector

    @property
    def total(self) -> Vector:
        return self.optimization + self.noise + self.heterogeneity


def minibatch_rate(c: Federated) -> Rate:
    """MB-SGD, strongly convex."""
    return Rate(c.radius**2 * np.exp(-c.R / c.kappa), _shared_noise(c), _apart(c))


def local_sgd_rate(c: Federated) -> Rate:
    """Local SGD, strongly convex."""
    mu, kappa, K = _convex(c), c.kappa, c.local_steps
    return Rate(
        kappa * c.radius**2 * np.exp(-c.R / kappa),
        _shared_noise(c) + kappa * c.noise**2 / (mu**2 * K * c.R**2),
        c.heterogeneity**2 * (1 / c.L**2 + kappa / (mu**2 * c.R**2)),
    )


def pure_local_rate(c: Federated) -> Rate:
    """Pure local training, strongly convex."""
    return Rate(_alone(c), c.noise**2 / (_convex(c) ** 2 * c.local_steps * c.R), 0 * c.R)


def plsgd_rate(c: Federated) -> Rate:
    """Algorithm 1, strongly convex: the terms of (16), which holds for kappa in `plsgd_window` only."""
    return Rate(_alone(c), _shared_noise(c), 0 * c.R)


def minibatch_convex_rate(c: Federated) -> Rate:
    """MB-SGD, convex."""
    return Rate(c.L * c.radius**2 / c.R, _shared_convex_noise(c), _apart(c) * c.L)


def local_sgd_convex_rate(c: Federated) -> Rate:
    """Local SGD, convex."""
    drift, K = (c.L * c.radius**4) ** (1 / 3), c.local_steps
    return Rate(
        c.L * c.radius**2 / c.R,
        _shared_convex_noise(c) + drift * c.noise ** (2 / 3) / (K ** (1 / 3) * c.R ** (2 / 3)),
        _apart(c) * c.L + drift * c.heterogeneity ** (2 / 3) / c.R ** (2 / 3),
    )


def pure_local_convex_rate(c: Federated) -> Rate:
    """Pure local training, convex; also (18) up to constants."""
    T = c.local_steps * c.R
    return Rate(c.L * c.radius**2 / T, c.noise * c.radius / np.sqrt(T), 0 * c.R)


def hanzely_convex_rate(c: Federated) -> Rate:
    """Algorithm 1, convex, after Hanzely et al. 2021."""
    drift = (c.L * c.clients**2 * c.radius**4) ** (1 / 3) / c.R ** (2 / 3)
    return Rate(
        c.clients * c.L * c.radius**2 / c.R,
        c.noise * c.radius / np.sqrt(c.local_steps * c.R) + drift * c.noise ** (2 / 3),
        drift * c.heterogeneity ** (2 / 3),
    )


def bietti_convex_rate(c: Federated) -> Rate:
    """Algorithm 1 with one local step, convex, after Bietti et al. 2022."""
    return Rate(c.L * c.radius**2 / c.R, _shared_convex_noise(c), 0 * c.R)


def conjectured_convex_rate(c: Federated) -> Rate:
    """Algorithm 1, convex, by Conjecture 1, without its unknown terms chi_1 and chi_2."""
    T = c.local_steps * c.R
    return Rate(c.clients * c.L * c.radius**2 / T, _shared_convex_noise(c), 0 * c.R)


TABLE_1: dict[str, dict[str, Callable[[Federated], Rate]]] = {
    "strongly convex": {
        "minibatch SGD": minibatch_rate,
        "local SGD": local_sgd_rate,
        "pure local training": pure_local_rate,
        "PLSGD (16)": plsgd_rate,
    },
    "convex": {
        "minibatch SGD": minibatch_convex_rate,
        "local SGD": local_sgd_convex_rate,
        "pure local training": pure_local_convex_rate,
        "PLSGD (Hanzely et al.)": hanzely_convex_rate,
        "PLSGD with K = 1 (Bietti et al.)": bietti_convex_rate,
        "PLSGD (Conjecture 1)": conjectured_convex_rate,
    },
}
"""Table 1, row by row."""


def _convex(c: Federated) -> float:
    if c.mu <= 0:
        raise PolyfedError("mu must be above 0: the strongly convex bounds need it")
    return c.mu


def _stepsize(stepsize: float, c: Federated, alpha: float) -> float:
    limit = plsgd_stepsize_limit(c.L, alpha)
    if not 0 < stepsize <= limit:
        raise PolyfedError(f"stepsize must be above 0 and at most 1/((1 + alpha) L) = {limit:.4g}, found {stepsize:g}")
    return float(stepsize)


def _alone(c: Federated) -> Vector:
    return c.radius**2 * np.exp(-c.local_steps * c.R / (2 * c.kappa))


def _shared_noise(c: Federated) -> Vector:
    return c.noise**2 / (_convex(c) ** 2 * c.clients * c.local_steps * c.R)


def _shared_convex_noise(c: Federated) -> Vector:
    return c.noise * c.radius / np.sqrt(c.clients * c.local_steps * c.R)


def _apart(c: Federated) -> Vector:
    return c.heterogeneity**2 / c.L**2 + 0 * c.R
