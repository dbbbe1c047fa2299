"""FLIX (Gasanov, Khaled, Horvath, Richtarik 2022): the mixture's constants, one-shot averaging, the budget, and GD.

The objective is f(x) = (1/n) sum_i f_i(T_i(x)) with the deployed models T_i(x) = alpha_i x + (1 - alpha_i) x_i, where
x_i minimises f_i. Each f_i is L_i-smooth and mu_i-strongly convex.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from polyfed.core.errors import PolyfedError
from polyfed.theory.inputs import INFINITE, Vector, clients, count, number, steps_to


def smoothness(L: ArrayLike, alpha: ArrayLike) -> float:
    """L_alpha = (1/n) sum_i alpha_i^2 L_i: the smoothness of the FLIX objective (Proposition 2)."""
    L_i, alpha = clients(L=L, alpha=alpha)
    return float(np.mean(alpha**2 * L_i))


def convexity(mu: ArrayLike, alpha: ArrayLike) -> float:
    """mu_alpha = (1/n) sum_i alpha_i^2 mu_i: the strong convexity of the FLIX objective (Proposition 2)."""
    mu, alpha = clients(mu=mu, alpha=alpha)
    return float(np.mean(alpha**2 * mu))


def one_shot_weights(L: ArrayLike, alpha: ArrayLike) -> Vector:
    """w_i = alpha_i^2 L_i / (n L_alpha): the weights of the pure local models in x_avg (eq. 5).

    With alpha zero everywhere any start is a solution; the weights are then the limit for equal alpha, L_i / sum_j L_j.
    """
    L_i, alpha = clients(L=L, alpha=alpha)
    weights = (alpha**2 if alpha.any() else 1.0) * L_i
    return weights / weights.sum()


class Spread(NamedTuple):
    """How far the pure local models lie apart (eq. 6)."""

    variance: float
    """V = sum_i w_i |x_i - x_avg|^2"""
    diameter: float
    """D = max_ij |x_i - x_j|"""


def spread(local_models: ArrayLike, weights: ArrayLike) -> Spread:
    """V and D of eq. (6), from the pure local models, one row per client, and `one_shot_weights`."""
    models, weights = np.asarray(local_models, np.float64), np.asarray(weights, np.float64)
    if models.ndim != 2 or weights.shape != models.shape[:1]:
        raise PolyfedError(
            f"spread needs a model and a weight per client, found arrays of shapes {models.shape} and {weights.shape}"
        )
    variance = float(weights @ np.sum((models - weights @ models) ** 2, axis=1))
    squares = [np.sum((models[i + 1 :] - models[i]) ** 2, axis=1).max() for i in range(len(models) - 1)]
    return Spread(variance, float(np.sqrt(max(squares, default=0.0))))


def one_shot_limit(epsilon: float, L: ArrayLike, variance: float) -> float:
    """A = sqrt(2 epsilon / (L_hat V)): up to this alpha, x_avg alone is epsilon-accurate (Theorem 1, Section 3.1).

    For unequal alpha_i, the largest of them may reach the limit with D^2 in place of V. Infinite where V = 0.
    """
    epsilon, variance = number("epsilon", epsilon), number("variance", variance)
    (L_i,) = clients(L=L)
    return INFINITE if variance == 0 else float(np.sqrt(2 * epsilon / (np.mean(L_i) * variance)))


def growth(L: ArrayLike, mu: ArrayLike) -> float:
    """q = 1 / sqrt(1 - mu_hat / L_hat): each further communication allows an alpha larger by this factor (Sec. 3.1)."""
    L_i, mu = clients(L=L, mu=mu)
    left = 1 - np.mean(mu) / np.mean(L_i)
    return INFINITE if left <= 0 else float(1 / np.sqrt(left))


def communications(beta: float, epsilon: float, L: ArrayLike, mu: ArrayLike, variance: float) -> float:
    """The communications that reach accuracy epsilon with alpha_i = beta for all (Section 3.1).

    0 if beta = 0; 1 if beta <= A; k + 1 if A q^(k-1) < beta <= A q^k. A whole number, or infinite where mu = 0 and
    beta > A. `variance` is V at equal alpha: `spread(models, one_shot_weights(L, 1)).variance`.
    """
    beta = number("alpha", beta)
    limit, factor = one_shot_limit(epsilon, L, variance), growth(L, mu)
    if beta == 0 or beta <= limit:
        return 0 if beta == 0 else 1
    if factor == 1:
        return INFINITE
    steps = 1 if factor == INFINITE else max(1, int(np.ceil(np.log(beta / limit) / np.log(factor))))
    # The logarithm may miss a boundary by one: settle it by the inequalities themselves.
    while steps > 1 and beta <= _reach(limit, factor, steps - 1):
        steps -= 1
    while beta > _reach(limit, factor, steps):
        steps += 1
    return steps + 1


def largest_alpha(communications: int, epsilon: float, L: ArrayLike, mu: ArrayLike, variance: float) -> float:
    """The largest common alpha that a number of communications solves to epsilon: min(1, A q^(communications - 1)).

    0 for none: every client keeps its own model (Section 3.1).
    """
    budget = count("communications", communications)
    limit, factor = one_shot_limit(epsilon, L, variance), growth(L, mu)
    return 0.0 if budget == 0 else min(1.0, _reach(limit, factor, budget - 1))


def _reach(limit: float, factor: float, steps: int) -> float:
    """A q^steps, where q may be infinite."""
    if steps == 0 or limit == INFINITE:
        return limit
    with np.errstate(over="ignore"):
        return float(limit * np.float64(factor) ** steps)


class Budget(NamedTuple):
    """A row of the budget table."""

    communications: int
    alpha: float
    """the largest common alpha for it"""
    gap: float
    """the bound on f(x) - min f at that alpha after these communications (Theorem 2 ii)"""


def budget_table(
    epsilon: float, L: ArrayLike, mu: ArrayLike, variance: float, budgets: Sequence[int] | None = None
) -> list[Budget]:
    """What each budget allows (Section 3.1): communications, the largest alpha, and the bound that it meets.

    Without `budgets`: 0, 1, 2, 5, 10, 20, 50, ... up to the number that solves alpha = 1 (or to a million).
    """
    if budgets is None:
        enough = communications(1.0, epsilon, L, mu, variance)
        powers = [digit * 10**power for power in range(7) for digit in (1, 2, 5)]
        last = [int(enough)] if enough <= 10**6 else [10**6]
        budgets = [0, *(budget for budget in powers if budget < last[0]), *last]
    rows: list[Budget] = []
    for budget in budgets:
        alpha = largest_alpha(budget, epsilon, L, mu, variance)
        gap = gd_gap_bound(budget - 1, L, mu, alpha, variance=variance) if budget else 0.0
        rows.append(Budget(budget, alpha, float(gap)))
    return rows


def gd_stepsize(L: ArrayLike, alpha: ArrayLike) -> float:
    """1 / L_alpha: distributed gradient descent on FLIX (Theorem 2). Infinite where alpha is zero everywhere."""
    total = smoothness(L, alpha)
    return 1 / total if total > 0 else INFINITE


def gd_gap_bound(
    steps: ArrayLike,
    L: ArrayLike,
    mu: ArrayLike,
    alpha: ArrayLike,
    *,
    variance: float | None = None,
    diameter: float | None = None,
) -> Vector:
    """f(x^k) - min f after k steps of GD with stepsize 1/L_alpha from x_avg (Theorem 2).

    From the diameter, (i): (1 - mu_alpha/L_alpha)^k alpha_max^2 L_hat D^2 / 2, where the paper prints D for D^2.
    From the variance: (1 - mu_alpha/L_alpha)^k L_alpha V / 2, which is (ii) for equal alpha_i. Its proof holds for
    unequal ones too if V is taken with their weights, and is then never above (i).
    """
    L_i, mu, alpha = clients(L=L, mu=mu, alpha=alpha)
    if (variance is None) == (diameter is None):
        raise PolyfedError("gd_gap_bound needs either the variance or the diameter of the local models")
    if variance is not None:
        start = np.mean(alpha**2 * L_i) * number("variance", variance) / 2
    else:
        assert diameter is not None
        start = np.max(alpha) ** 2 * np.mean(L_i) * number("diameter", diameter) ** 2 / 2
    return (1 - gd_rate(L_i, mu, alpha)) ** np.asarray(steps, np.float64) * start


def gd_rate(L: ArrayLike, mu: ArrayLike, alpha: ArrayLike) -> float:
    """mu_alpha / L_alpha: the share of the gap that a step of GD removes at least (Theorem 2); 1 for alpha zero."""
    L_i, mu, alpha = clients(L=L, mu=mu, alpha=alpha)
    total = np.mean(alpha**2 * L_i)
    return min(1.0, float(np.mean(alpha**2 * mu) / total)) if total > 0 else 1.0


def gd_rounds(epsilon: float, start: float, L: ArrayLike, mu: ArrayLike, alpha: ArrayLike) -> float:
    """The steps of GD that bring f - min f from `start` under epsilon (Theorem 2, eq. 45); infinite where mu = 0."""
    return steps_to(number("epsilon", epsilon), number("start", start), gd_rate(L, mu, alpha))
