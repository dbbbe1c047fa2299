"""FedBC and Per-FedBC in plain NumPy, from Algorithms 1 to 3."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.core import randomness
from polyfed.core.randomness import Purpose
from tests.algorithms.reference import Matrix, batches, clients_of
from tests.algorithms.reference_personal import Cohort


def fedbc(
    problem,
    rounds,
    steps,
    batch,
    cohort: Cohort,
    lr=0.3,
    dual_lr=0.2,
    interval=(0.0, np.inf),
    multiplier=0.0,
    tolerance=None,
    tolerance_lr=None,
    own_start=False,
    momentum=0.0,
    inner=None,
    seed=0,
    start: Any = None,
) -> dict[str, Any]:
    """z, x_i, lambda_i, gamma_i and the participants' shares of each round; `inner` = (J, alpha) is Per-FedBC."""
    clients = clients_of(problem)
    z: Any = start
    x = [start.copy() for _ in clients]
    lam, gamma = np.full(len(clients), multiplier), np.array(tolerance, float)
    shares = []
    for r in range(rounds):
        members = cohort(r)
        for i in members:
            w, velocity = (x[i] if own_start else z).copy(), np.zeros_like(z)
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
        weights = lam[members] if lam[members].sum() > 0 else np.ones(len(members))
        shares.append(dict(zip(members, weights / weights.sum(), strict=True)))
        z = sum(share * x[i] for i, share in shares[-1].items())
    return {"z": z, "x": x, "multiplier": lam, "tolerance": gamma, "shares": shares}


def side_batches(problem, seed, round, client, step, batch, count) -> list[np.ndarray | None]:
    """The rows of the inner steps of a meta-step, from the library's keys and sampler."""
    if batch is None:
        return [None] * count
    size = len(problem.federation.train.of(client)[0])
    shared = randomness.purpose_key(jnp.uint32(seed), Purpose.LOCAL, round)
    key = randomness.client_key(shared, jnp.asarray(problem.client_ids[client], jnp.uint32))
    key = jax.random.fold_in(jax.random.fold_in(key, 2**31 - 1), step)
    passes = -(-size // batch)
    found = []
    for j in range(count):
        order = np.asarray(randomness.shuffled(jax.random.fold_in(key, j // passes), size, jnp.arange(size)))
        found.append(order[(j % passes) * batch : (j % passes + 1) * batch])
    return found


def constrained(H: np.ndarray, c: np.ndarray, tolerance: np.ndarray, rounds=20000) -> tuple[Matrix, Matrix, Matrix]:
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


def _trust_region(H, c, z, gamma) -> tuple[np.ndarray, float]:
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
