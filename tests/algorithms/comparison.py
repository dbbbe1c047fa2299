"""How runs are compared with the references: one start, one seed, float64, and the parameters as one matrix."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import polyfed as pf
from polyfed.engine.participation import sampling
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


def cohort(participation: float | int, problem: pf.Problem) -> Members:
    """Who takes part in a round, from the engine's own draw."""
    plan = sampling(participation, len(problem))

    def members(round: int) -> list[int]:
        if plan.full:
            return list(range(len(problem)))
        with jax.enable_x64(True):
            clients, taken, _ = plan.cohort(jnp.uint32(SEED), jnp.int32(round), jnp.arange(plan.capacity))
        assert bool(jnp.all(taken))
        return sorted(int(c) for c in clients)

    return members
