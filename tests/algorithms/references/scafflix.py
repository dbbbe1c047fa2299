"""Scafflix on logistic regression: Algorithm 1, one round at a time, as the coin decides how long a round is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import polyfed as pf
from tests.algorithms.references.flix import mixture_gradients
from tests.algorithms.references.shared import Matrix, trusted_share


def scafflix_round(
    problem: pf.Problem,
    alpha: np.ndarray,
    own: Matrix,
    lr: np.ndarray,
    p: float,
    x: np.ndarray,
    h: Matrix,
    steps: int,
    present: Sequence[int] | None = None,
    slack: float | None = None,
) -> tuple[np.ndarray, Matrix]:
    """The iterations until the coin falls on 1: the next x, and every control variate h_i.

    `present`: the clients that take part, by default all. `slack`: trust h_i as far as it explains the gradient.
    """
    y = np.tile(x, (len(problem), 1))
    for _ in range(steps):
        g = mixture_gradients(problem, alpha, y, own)
        share = np.array([1.0 if slack is None else trusted_share(a, b, slack) for a, b in zip(g, h, strict=True)])
        y = y - (lr / alpha)[:, None] * (g - share[:, None] * h)
    here = np.isin(np.arange(len(problem)), range(len(problem)) if present is None else present)
    weight = here * alpha**2 / lr
    x = weight @ y / weight.sum()
    return x, h + (here * p * alpha / lr)[:, None] * (x - y)


def projected_gradients(
    problem: pf.Problem, alpha: np.ndarray, own: Matrix, lr: np.ndarray, x: np.ndarray
) -> tuple[Matrix, np.ndarray]:
    """The gradients at the start, projected so that sum_i alpha_i h_i = 0, and the x that a step along them leads to.

    The projection is the nearest point where the distance of h_i counts gamma_i, as in the paper's Lyapunov function.
    """
    g = mixture_gradients(problem, alpha, x, own)
    step = alpha @ g / np.sum(alpha**2 / lr)
    return g - (alpha / lr)[:, None] * step, x - step
