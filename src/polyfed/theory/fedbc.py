"""FedBC (Bedi et al. 2022): the multipliers of Theorem 4.5, its bound (94) repaired, and the local bound (97)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from polyfed.core.errors import PolyfedError
from polyfed.theory.inputs import Vector, clients, number


class MultiplierInterval(NamedTuple):
    """The open interval (low, high) of Theorem 4.5, and whether its proof covers every client."""

    low: float
    high: float
    covers_all: bool
    """Whether low >= L_i of every client, without which the step (36) of the proof need not be a descent. The theorem
    has L_min alone, which is enough only where the L_i are about equal."""


def multiplier_interval(L: ArrayLike, beta: float = 1.5) -> MultiplierInterval:
    """beta L_min < lambda_i < beta^2 L_min with beta > 1 (Theorem 4.5).

    The theorem's constant C_0 = 1 - lambda_max / (4 L_min) is positive for every multiplier in the interval only where
    beta <= 2, so that a larger beta is refused.
    """
    (L_i,) = clients(L=L)
    if not (np.ndim(beta) == 0 and 1 < beta <= 2):
        raise PolyfedError(f"beta must be above 1 and at most 2, found {beta}")
    least = float(L_i.min())
    return MultiplierInterval(beta * least, beta**2 * least, bool(beta * least >= L_i.max()))


@dataclass(frozen=True, kw_only=True)
class FedbcRun:
    """What the bound on FedBC's global gradient takes. Every client takes part in every round, from x_i = z."""

    L: ArrayLike
    """L_i, the smoothness of every client"""
    low: float
    """lambda_min: no multiplier falls below it; above the largest L_i"""
    high: float
    """lambda_max: no multiplier exceeds it"""
    gap: float
    """the mean of f_i(z^0) - min f_i"""
    discrepancy: float
    """delta of Assumption 4.3: the largest |a grad f_i(x) - b grad f_j(x)| over clients, x and a, b in [low, high]"""
    tolerance: ArrayLike = 0.0
    """gamma_i"""
    diameter: float = 0.0
    """R: iterates lie no further apart; enters with the dual stepsize only"""
    dual_stepsize: float = 0.0
    """alpha"""
    epsilon: float = 0.0
    """the largest |grad_x of the Lagrangian|^2 at which a client stops its local work"""

    @property
    def steepness(self) -> float:
        """M = max L_i + 2 lambda_max: the smoothness of the Lagrangians."""
        (L_i,) = clients(L=self.L)
        return float(L_i.max()) + 2 * number("multiplier", self.high)

    @property
    def consensus(self) -> float:
        """V: a bound on |x_i - z|^2 after every round, from (57).

        x_i - x_j = (e_i - grad f_i(x_i)) / (2 lambda_i) - (e_j - grad f_j(x_j)) / (2 lambda_j), so that |x_i - x_j| <=
        (sqrt(epsilon)/low + delta/(2 low^2)) / (1 - L/(2 low)), and z is a mean of the x_j.
        """
        (L_i,) = clients(L=self.L)
        low = number("multiplier", self.low)
        if not L_i.max() < low <= self.high:
            raise PolyfedError(
                f"multipliers must lie above every L_i, in low <= high: found low = {low:g}, high = {self.high:g} and "
                f"L = {L_i.max():g}"
            )
        apart = np.sqrt(number("start", self.epsilon)) / low + number("start", self.discrepancy) / (2 * low**2)
        return float((apart / (1 - L_i.max() / (2 * low))) ** 2)


def fedbc_bound(rounds: ArrayLike, run: FedbcRun) -> Vector:
    """(94), repaired: a bound on the mean of |grad f(z^t)|^2 over t < T, f the mean of the f_i.

    4 M^2/(c T) (B_0 + lambda_max mean gamma_i) + 4 epsilon + (4 M^2/c)(epsilon/2 mean 1/L_i + alpha mean max(R^4,
    gamma_i^2)) + 2 M^2 (1 + 2 lambda_max/c) V, with c = lambda_min - max L_i, B_0 = `gap`, V = `consensus`. As printed,
    (94) has V's delta term without M^2 and is false: see docs/errata.md.
    """
    consensus = run.consensus
    L_i, tolerance = clients(L=run.L, start=run.tolerance)
    square, room = run.steepness**2, run.low - float(L_i.max())
    drift = number("start", run.dual_stepsize) * np.mean(
        np.maximum(number("diameter", run.diameter) ** 4, tolerance**2)
    )
    falling = number("start", run.gap) + run.high * np.mean(tolerance)
    floor = 4 * run.epsilon + 4 * square / room * (run.epsilon / 2 * np.mean(1 / L_i) + drift)
    T = np.asarray(rounds, np.float64)
    return 4 * square / room * falling / T + floor + 2 * square * (1 + 2 * run.high / room) * consensus


def fedbc_local_bound(multiplier: ArrayLike, distance: ArrayLike, epsilon: ArrayLike = 0.0) -> Vector:
    """(97): |grad f_i(x_i)|^2 <= 2 epsilon_i + 8 lambda_i^2 |x_i - z|^2, after local work with lambda_i from z.

    `distance` is |x_i - z|^2. It is 4 lambda_i^2 |x_i - z|^2 exactly where epsilon_i = 0: half of the bound.
    """
    multiplier, squares, inexact = clients(multiplier=multiplier, start=distance, C=epsilon)
    return 2 * inexact + 8 * multiplier**2 * squares
