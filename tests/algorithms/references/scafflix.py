"""Scafflix on logistic regression: Algorithm 1, one round at a time, as the coin decides how long a round is."""

from __future__ import annotations

import numpy as np

import polyfed as pf
from tests.algorithms.references.flix import mixture_gradients
from tests.algorithms.references.shared import Matrix


def scafflix_round(
    problem: pf.Problem,
    alpha: np.ndarray,
    own: Matrix,
    lr: np.ndarray,
    p: float,
    x: np.ndarray,
    h: Matrix,
    steps: int,
) -> tuple[np.ndarray, Matrix]:
    """The iterations until the coin falls on 1: the next x, and every control variate h_i."""
    y = np.tile(x, (len(problem), 1))
    for _ in range(steps):
        y = y - (lr / alpha)[:, None] * (mixture_gradients(problem, alpha, y, own) - h)
    weight = alpha**2 / lr
    x = weight @ y / weight.sum()
    return x, h + (p * alpha / lr)[:, None] * (x - y)


def projected_gradients(problem: pf.Problem, alpha: np.ndarray, own: Matrix, x: np.ndarray) -> Matrix:
    """The gradients at the start, projected so that sum_i alpha_i h_i = 0."""
    g = mixture_gradients(problem, alpha, x, own)
    return g - alpha[:, None] * (alpha @ g / np.sum(alpha**2))
