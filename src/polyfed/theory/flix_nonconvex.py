"""FLIX's supplement without convexity: Theorems 8 and 9, Corollaries 5 and 6; and Propositions 1 and 3, on mixtures."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from polyfed.core.errors import PolyfedError
from polyfed.theory.inputs import Vector, clients, count, number


def dcgd_nonconvex_bound(
    steps: ArrayLike, gap: float, L: ArrayLike, alpha: ArrayLike, omega: ArrayLike, gamma: float
) -> Vector:
    """Theorem 8, (69): min over t < k of E|grad f(x^t)|^2 of DCGD, for stepsizes up to 1/L_alpha.

    2 (1 + 2 L_alpha gamma^2 max_i(L_i omega_i alpha_i^2)/n)^k `gap`/(gamma k), `gap` = f(x^0) - mean min f_i. It grows
    with k in the end: `dcgd_stepsize(.., "nonconvex", rounds=k)` keeps the power below e.
    """
    L_i, alpha, omega = clients(L=L, alpha=alpha, omega=omega)
    k, gamma = np.asarray(steps, np.float64), number("stepsize", gamma)
    growth = 2 * np.mean(alpha**2 * L_i) * gamma**2 * np.max(L_i * omega * alpha**2) / L_i.size
    return 2 * (1 + growth) ** k * number("start", gap) / (gamma * k)


def diana_nonconvex_bound(steps: ArrayLike, gap: float, gamma: float) -> Vector:
    """Theorem 9, (71): E|grad f|^2 of DIANA at an iterate drawn from x^0 .. x^(k-1): 2 `gap`/(gamma k).

    For memories that start at the gradients, `gap` as in `dcgd_nonconvex_bound`, and gamma up to `diana_stepsize(..,
    regime="nonconvex")`: the paper's own limit has L_alpha where the proof needs a larger mean, see docs/errata.md.
    """
    return 2 * number("start", gap) / (number("stepsize", gamma) * np.asarray(steps, np.float64))


def nonconvex_equal_bound(
    steps: ArrayLike,
    alpha: float,
    gamma: float,
    gap: float,
    L: ArrayLike = 1.0,
    omega: float = 0.0,
    memory: bool = False,
) -> Vector:
    """Corollaries 5 (DCGD) and, with `memory`, 6 (DIANA): the bounds for one alpha at the stepsize gamma/alpha^2.

    alpha^2 2 (1 + 2 mean(L_i) omega gamma^2 max(L_i)/n)^k Delta_0/(gamma k), and without the power for DIANA, where L
    and omega do not enter. Delta_0 = `gap` is the largest f(x^0) - mean min f_i over all alpha.
    """
    L_i, (k, alpha) = clients(L=L)[0], (np.asarray(steps, np.float64), number("alpha", alpha))
    gamma = number("stepsize", gamma)
    growth = 0.0 if memory else 2 * np.mean(L_i) * number("omega", omega) * gamma**2 * L_i.max() / L_i.size
    return alpha**2 * 2 * (1 + growth) ** k * number("start", gap) / (gamma * k)


def finetuned_model(hessian: ArrayLike, own: ArrayLike, start: ArrayLike, gamma: float, steps: int) -> Vector:
    """Proposition 1: where `steps` of gradient descent from `start` end on a quadratic with minimiser `own`.

    (I - J^H) own + J^H start with J = I - gamma A: a mixture with a matrix for its weight, whose largest eigenvalue is
    below 1 for gamma <= 1/L.
    """
    A, own, start = (np.asarray(value, np.float64) for value in (hessian, own, start))
    if A.ndim != 2 or A.shape != (own.size, own.size) or start.shape != own.shape:
        raise PolyfedError(f"a Hessian and two models of one size are needed, found shapes {A.shape} and {own.shape}")
    values, vectors = np.linalg.eigh(A)
    left = (1 - number("stepsize", gamma) * values) ** count("steps", steps)
    return own + vectors @ (left * (vectors.T @ (start - own)))


def deployed_variance(local_models: ArrayLike, alpha: float) -> float:
    """Proposition 3: the mean squared distance of the models T_i(x) from their mean: (1 - alpha)^2 times the x_i's.

    The same for every x, so that alpha alone says how unlike the deployed models are.
    """
    models: Vector = np.atleast_2d(np.asarray(local_models, np.float64))
    spread = float(np.sum(np.var(models, axis=0)))
    return (1 - number("alpha", alpha)) ** 2 * spread
