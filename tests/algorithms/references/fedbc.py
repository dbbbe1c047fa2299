"""FedBC and Per-FedBC: Algorithms 1 to 3, and the constrained problem that they solve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import polyfed as pf
from tests.algorithms.references.shared import Matrix, Members, batches, clients_of, side_batches


def fedbc(
    problem: pf.Problem,
    rounds: int,
    steps: int,
    batch: int | None,
    members: Members,
    tolerance: Sequence[float],
    lr: float = 0.3,
    dual_lr: float = 0.2,
    interval: tuple[float, float] = (0.0, np.inf),
    multiplier: float = 0.0,
    tolerance_lr: float | None = None,
    own_start: bool = False,
    momentum: float = 0.0,
    inner: tuple[int, float] | None = None,
    *,
    start: Matrix,
    seed: int = 0,
) -> dict[str, Any]:
    """z, x_i, lambda_i, gamma_i and the participants' shares of each round; `inner` = (J, alpha) is Per-FedBC."""
    clients = clients_of(problem)
    z = start
    x: dict[int, Matrix] = {}  # a client's begins at the z that it is first sent
    lam, gamma = np.full(len(clients), multiplier), np.array(tolerance, float)
    shares = []
    for r in range(rounds):
        present = members(r)
        for i in present:
            w, velocity = x.get(i, z) if own_start else z, np.zeros_like(z)
            for k, rows in enumerate(batches(problem, seed, r, i, batch, steps)):
                if inner is None:
                    g = clients[i].grad(w, rows) + 2 * lam[i] * (w - z)
                    velocity = momentum * velocity + g
                    w = w - lr * velocity
                    continue
                y = w.copy()
                for side in side_batches(problem, seed, r, i, k, batch, inner[0]):
                    y = y - inner[1] * (clients[i].grad(y, side) + 2 * lam[i] * (y - z))
                w = w - lr * clients[i].grad(y, rows)
            distance, old = np.sum((w - z) ** 2), lam[i]
            lam[i] = np.clip(lam[i] + dual_lr * (distance - gamma[i]), *interval)
            gamma[i] += 0.0 if tolerance_lr is None else tolerance_lr * old
            x[i] = w
        weights = lam[present] if lam[present].sum() > 0 else np.ones(len(present))
        shares.append(dict(zip(present, weights / weights.sum(), strict=True)))
        z = np.sum([share * x[i] for i, share in shares[-1].items()], axis=0)
    own = [x.get(i, z) for i in range(len(clients))]  # the global model stands for those who never came
    return {"z": z, "x": own, "multiplier": lam, "tolerance": gamma, "shares": shares}


def constrained(
    H: np.ndarray, c: np.ndarray, tolerance: np.ndarray, rounds: int = 20000
) -> tuple[Matrix, Matrix, Matrix]:
    """(z, x, lambda) of min sum 1/2 (x_i-c_i)' H_i (x_i-c_i) s.t. |x_i - z|^2 <= gamma_i, by alternating projections.

    For a fixed z every x_i is a trust-region step, whose multiplier a bisection finds; z then follows the gradient of
    the optimal value, sum_i 2 lambda_i (z - x_i).
    """
    z, x, lam = c.mean(axis=0), c, np.zeros(len(c))
    for _ in range(rounds):
        solved = [_trust_region(h, point, z, gamma) for h, point, gamma in zip(H, c, tolerance, strict=True)]
        x, lam = np.array([s[0] for s in solved]), np.array([s[1] for s in solved])
        slope = np.sum(2 * lam[:, None] * (z - x), axis=0)
        z = z - 0.2 * slope
        if np.abs(slope).max() < 1e-13:
            break
    return z, x, lam


def _trust_region(H: np.ndarray, c: np.ndarray, z: np.ndarray, gamma: float) -> tuple[np.ndarray, float]:
    def at(lam: float) -> np.ndarray:
        return np.linalg.solve(H + 2 * lam * np.eye(len(c)), H @ c + 2 * lam * z)

    if np.sum((c - z) ** 2) <= gamma:
        return c, 0.0
    low, high = 0.0, 1.0
    while np.sum((at(high) - z) ** 2) > gamma:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.sum((at(middle) - z) ** 2) > gamma else (low, middle)
    return at(high), high
