"""PLSGD: Algorithm 1, also with a personal part of low rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import polyfed as pf
from tests.algorithms.references.shared import Client, Matrix, Members, batches, clients_of


def plsgd(
    problem: pf.Problem,
    rounds: int,
    lr: Callable[[int], float],
    alpha: float,
    beta: float,
    steps: int,
    batch: int | None,
    members: Members,
    mask: Matrix | float = 1.0,
    *,
    start: Matrix,
    seed: int = 0,
) -> dict[str, Any]:
    """Algorithm 1, and every iterate; theta lives where `mask` is 1, and `lr(t)` counts the steps from 1."""
    clients = clients_of(problem)
    w, theta = start, [np.zeros_like(start) for _ in clients]
    mean_w, thetas, models = [], [], [[] for _ in clients]  # before every step
    for r in range(rounds):
        local = dict.fromkeys(members(r), w)
        rows = {m: list(batches(problem, seed, r, m, batch, steps)) for m in local}
        for k in range(steps):
            mean_w.append(np.mean(list(local.values()), axis=0))
            thetas.append(list(theta))
            for m in local:
                models[m].append(local[m] + theta[m])
                step = lr(r * steps + k + 1) * clients[m].grad(local[m] + theta[m], rows[m][k])
                local[m], theta[m] = local[m] - step, theta[m] - alpha * mask * step
        w = w + beta * np.mean([local[m] - w for m in local], axis=0)
    return {"w": w, "theta": theta, "mean_w": mean_w, "thetas": thetas, "models": models}


def low_rank(
    f: Client, w: Matrix, left: Matrix, lr: float, alpha: float, steps: int
) -> tuple[Matrix, Matrix, np.ndarray]:
    """One client's first round with theta = left right on the weights, and theta in full on the bias."""
    right, bias = np.zeros((left.shape[1], w.shape[1])), np.zeros(w.shape[1])
    for _ in range(steps):
        g = f.grad(w + np.vstack([left @ right, bias]))
        w = w - lr * g
        left, right = left - alpha * lr * g[:-1] @ right.T, right - alpha * lr * left.T @ g[:-1]
        bias = bias - alpha * lr * g[-1]
    return left, right, bias
