"""APFL: Algorithm 1 with eq. (10), and eq. (17) for a newcomer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

import polyfed as pf
from tests.algorithms.references.shared import Matrix, Members, batches, clients_of


def apfl(
    problem: pf.Problem,
    rounds: int,
    lr: Callable[[int, int], float],
    steps: int,
    batch: int | None,
    alpha: Sequence[float],
    members: Members,
    adaptive: Literal["off", "step", "round"] = "off",
    alpha_lr: float | None = None,
    validation: Callable[[int, Matrix], Matrix] | None = None,
    *,
    start: Matrix,
    seed: int = 0,
) -> dict[str, Any]:
    """Algorithm 1 with eq. (10), and every iterate; `lr(round, t)` where t counts the steps from 1."""
    clients = clients_of(problem)
    w = start
    met: set[int] = set()  # a client's v begins at the w that it is first sent, and has stood there till then
    v, weight = [start.copy() for _ in clients], list(alpha)
    iterates_w, iterates_v = [], []  # after each step: the mean of the participants' w_j, and everybody's v_i
    for r in range(rounds):
        local = {i: w.copy() for i in members(r)}
        for i in local.keys() - met:
            v[i] = w
            for before in iterates_v:
                before[i] = w
        met |= local.keys()
        rows = {i: list(batches(problem, seed, r, i, batch, steps)) for i in local}
        for k in range(steps):
            rate = lr(r, r * steps + k + 1)
            for i in local:
                f, xi = clients[i], rows[i][k]
                mixed = weight[i] * v[i] + (1 - weight[i]) * local[i]
                g = f.grad(mixed, xi)
                new_v, new_weight = v[i] - rate * weight[i] * g, weight[i]
                if adaptive == "step" or (adaptive == "round" and k == 0):
                    slope = np.sum((v[i] - local[i]) * (g if validation is None else validation(i, mixed)))
                    new_weight = _clipped(weight[i] - (rate if alpha_lr is None else alpha_lr) * slope)
                local[i] = local[i] - rate * f.grad(local[i], xi)
                v[i], weight[i] = new_v, new_weight
            iterates_w.append(np.mean(list(local.values()), axis=0))
            iterates_v.append([x.copy() for x in v])
        w = np.mean(list(local.values()), axis=0)
    v = [v[i] if i in met else w for i in range(len(v))]  # nobody else has one
    return {"w": w, "v": v, "alpha": weight, "met": met, "iterates_w": iterates_w, "iterates_v": iterates_v}


def newcomer(
    problem: pf.Problem, client: int, w: Matrix, lr: float, steps: int, alpha: float, adaptive: bool
) -> Matrix:
    """Eq. (17) on all of a client's rows, with eq. (10) at every step where `adaptive`."""
    f, v = clients_of(problem)[client], w.copy()
    for _ in range(steps):
        g = f.grad(alpha * v + (1 - alpha) * w)
        v, alpha = v - lr * alpha * g, _clipped(alpha - lr * np.sum((v - w) * g)) if adaptive else alpha
    return alpha * v + (1 - alpha) * w


def _clipped(weight: float) -> float:
    return min(1.0, max(0.0, weight))
