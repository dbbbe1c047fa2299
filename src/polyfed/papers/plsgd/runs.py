"""Quadratics with additive noise, whose constants are known exactly, and many seeds of one simulation."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import TypedDict, TypeVar

import jax.numpy as jnp
import numpy as np

from polyfed.algorithms.contract import Algorithm, global_model
from polyfed.algorithms.plsgd import PlsgdState
from polyfed.data import Federation
from polyfed.engine.simulation import Simulation
from polyfed.engine.sweep import Sweep, batches
from polyfed.problem.problem import Problem
from polyfed.theory import Federated

Matrix = np.ndarray
T = TypeVar("T")

TUNING = 10_000
"""The first seed that stepsizes are chosen by; results are from other seeds."""
ROWS = 64
"""A client's rows; each has its own noise."""
PAPER = (
    "*Personalization Mitigates the Perils of Local SGD for Heterogeneous Distributed Learning* (PLSGD), under review"
)


class Draws(TypedDict):
    """How a local step draws its rows."""

    batch: int
    replace: bool


ONE_ROW: Draws = {"batch": 1, "replace": True}
"""One row, with replacement: the noise of a step is that of a row."""


def noisy_quadratics(spectra: Matrix, optima: Matrix, noise: float = 0.0, seed: int = 0) -> Problem:
    """f_m(v; z) = (v - c_m)' H_m (v - c_m) / 2 - z.v with diagonal H_m: a step on one row has the gradient noise -z.

    The z of a client's rows have mean zero and mean squared norm noise^2 exactly, wherever v is. A row holds the square
    roots s of H_m's diagonal; the model's outputs are s v, the targets s c + z / s.
    """
    spectra, optima = np.broadcast_arrays(np.asarray(spectra, float), np.asarray(optima, float))
    random, clients = np.random.default_rng(seed), []
    for h, c in zip(spectra, optima, strict=True):
        z = random.normal(size=(ROWS, len(c)))
        z -= z.mean(axis=0)
        z *= noise / np.sqrt(np.mean(np.sum(z**2, axis=1)))
        root = np.broadcast_to(np.sqrt(h), z.shape)
        clients.append((root, root * c + z / root))
    fed = Federation.from_arrays(clients, test=0, validation=0, classes=0)
    size = spectra.shape[1]
    model = (lambda key: jnp.zeros(size, jnp.result_type(float)), lambda v, x: x * v)
    return Problem(fed, model, "squared")


def constants(
    spectra: Matrix, optima: Matrix, noise: float, local_steps: int, rounds: int | Sequence[int]
) -> Federated:
    """What the theorems take, exactly: L, mu, B, sigma and zeta* of these quadratics, from a start at zero."""
    spectra, optima = np.broadcast_arrays(np.asarray(spectra, float), np.asarray(optima, float))
    middle = (spectra * optima).mean(axis=0) / spectra.mean(axis=0)
    L = float(spectra.max())
    return Federated(
        clients=len(optima),
        local_steps=local_steps,
        rounds=rounds,
        L=L,
        mu=float(spectra.min()),
        radius=float(np.sqrt(np.max(np.sum(optima**2, axis=1)))),
        noise=noise,
        heterogeneity=L * float(np.sqrt(np.mean(np.sum((optima - middle) ** 2, axis=1)))),
    )


class Seeds:
    """A method on quadratics under many seeds, as sweeps: many runs are one program."""

    def __init__(self, problem: Problem, method: Algorithm) -> None:
        self.problem, self.method = problem, method

    def distances(self, optima: Matrix, seeds: Iterable[int], rounds: Sequence[int]) -> Matrix:
        """Mean squared distance of the deployed models from the optima: (seeds, rounds)."""
        models = self.models(seeds, rounds)
        return np.mean(np.sum((models - optima) ** 2, axis=3), axis=2)

    def models(self, seeds: Iterable[int], rounds: Sequence[int]) -> Matrix:
        """The deployed models after each number of rounds: (seeds, rounds, clients, parameters)."""
        with warnings.catch_warnings(action="ignore"):  # some stepsizes are too large on purpose
            simulations = [
                Simulation(self.problem, self.method, seed=seed, dtype="float64", init="zeros", devices=1)
                for seed in seeds
            ]
        parts = [self._together([simulations[place] for place in places], rounds) for places in batches(simulations)]
        return np.concatenate(parts)

    def _together(self, simulations: list[Simulation], rounds: Sequence[int]) -> Matrix:
        sweep, seen = Sweep(simulations), []
        sweep.prepare()
        for count in np.diff(rounds, prepend=0):
            if count:
                sweep.advance(int(count))
            seen.append(self._deployed(sweep))
        return np.stack(seen, axis=1)

    def _deployed(self, sweep: Sweep) -> Matrix:
        """Every client's model of every run, read from the states: that is quicker than asking the method."""
        shared, states, clients = global_model(sweep.servers), sweep.states, len(self.problem)
        if shared is None:
            return states[:, :clients]
        if isinstance(states, PlsgdState):
            return shared[:, None] + np.asarray(states.own["model"])[:, :clients]
        return np.broadcast_to(shared[:, None], (len(shared), clients, shared.shape[-1]))


def interval(values: Matrix) -> Matrix:
    """Half of a 95% confidence interval of the mean over the first axis."""
    return 1.96 * np.std(values, axis=0, ddof=1) / np.sqrt(len(values))
