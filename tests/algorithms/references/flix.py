"""FLIX on logistic regression: the clients' own minimisers, and descent on the mixture alpha x + (1 - alpha) x_i*."""

from __future__ import annotations

import numpy as np

import polyfed as pf
from tests.algorithms.references.shared import Matrix, logistic_gradients


def local_models(problem: pf.Problem) -> Matrix:
    """Plain gradient descent of every client, far beyond the precision that is asked for."""
    x = np.zeros((len(problem), 3))
    for _ in range(6000):
        x = x - 0.2 * logistic_gradients(problem, x)
    return x


def mixture_gradients(problem: pf.Problem, alpha: np.ndarray, x: np.ndarray, own: Matrix) -> Matrix:
    """grad f_i at alpha_i x + (1 - alpha_i) x_i*; x is one model, or one for each client."""
    return logistic_gradients(problem, alpha[:, None] * x + (1 - alpha[:, None]) * own)


def gradient_descent(
    problem: pf.Problem, alpha: np.ndarray, own: Matrix, x: np.ndarray, lr: float, rounds: int
) -> np.ndarray:
    """Algorithm 1: distributed gradient descent on the mixture."""
    for _ in range(rounds):
        x = x - lr * np.mean(alpha[:, None] * mixture_gradients(problem, alpha, x, own), axis=0)
    return x


def local_steps(
    problem: pf.Problem,
    alpha: np.ndarray,
    own: Matrix,
    x: np.ndarray,
    lr: float,
    local_lr: float,
    steps: int,
    rounds: int,
) -> np.ndarray:
    """Descent of every client on its own mixture, whose mean the server moves towards."""
    for _ in range(rounds):
        y = np.tile(x, (len(problem), 1))
        for _ in range(steps):
            y = y - local_lr * alpha[:, None] * mixture_gradients(problem, alpha, y, own)
        x = x - lr * (x - y.mean(axis=0))
    return x
