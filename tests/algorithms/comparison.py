"""How runs are compared with the references: one start, one seed, float64, and the parameters as one matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import polyfed as pf
from polyfed.engine.participation import Bernoulli, sampling
from polyfed.engine.simulation import Simulation
from tests.algorithms.references.shared import Members

ROUNDS, SEED = 5, 5
START = np.random.default_rng(7).normal(size=(5, 3))
INIT = {"w": START[:-1], "b": START[-1]}


def matrix(params) -> np.ndarray:
    return np.vstack([params["w"], params["b"]])


def trained(problem: pf.Problem, method: pf.algorithms.Algorithm, rounds: int = ROUNDS, **options: Any) -> Simulation:
    """Some rounds, without measuring: that would have to be compiled as well."""
    simulation = Simulation(problem, method, **{"seed": SEED, "init": INIT, "dtype": "float64", **options})
    simulation.prepare()
    simulation.advance(rounds)
    return simulation


def cohort(participation: float | int | Bernoulli, problem: pf.Problem, seed: int = SEED) -> Members:
    """Who takes part in a round, from the engine's own draw."""
    plan = sampling(participation, len(problem))

    def members(round: int) -> list[int]:
        if plan.full:
            return list(range(len(problem)))
        with jax.enable_x64(True):
            clients, taken, _ = plan.cohort(jnp.uint32(seed), jnp.int32(round), jnp.arange(plan.capacity))
        assert plan.probability is not None or bool(jnp.all(taken))
        return sorted(int(c) for c in clients[taken])

    return members


def late_seed(participation: Bernoulli, problem: pf.Problem, alpha: Sequence[float] | None = None) -> int:
    """A seed whose first round is empty or, where some alpha_i are 0, has clients, but only such ones."""

    def late(present: list[int]) -> bool:
        if alpha is None or min(alpha) > 0:
            return not present
        return bool(present) and not any(alpha[client] for client in present)

    return next(seed for seed in range(100) if late(cohort(participation, problem, seed)(0)))
