"""Which regime a federation lies in: every client alone, a shared and a personal part, or one model for all.

PLSGD's Table 1 says which has the least bound, quadratics with the federation's constants which is nearest, short runs
which ends nearest.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import jax
import numpy as np

from polyfed import algorithms, theory
from polyfed.algorithms.contract import Algorithm
from polyfed.engine.loop import PlannedRun
from polyfed.engine.simulate import simulate_all
from polyfed.engine.simulation import Simulation
from polyfed.problem.batch_constants import gradient_variances
from polyfed.problem.problem import Problem
from polyfed.studies.planning.quadratics import as_quadratics, as_rows
from polyfed.theory import Federated

Name = Literal["local", "personalized", "global"]
RANGE = (0.0625, 1.0)
"""The stepsizes of a short run go from the first to the second, as shares of 1/L; PLSGD's are divided by 1 + alpha."""
ALPHAS = (0.1, 1.0)
"""The personalizations that PLSGD tries."""
CANDIDATES = 6
"""of every method: six stepsizes or, of PLSGD, three with two alphas"""
SEEDS = 3
"""The seeds that choose a candidate; as many others say what it reaches."""


@dataclass(frozen=True)
class Way:
    """One method: the total of its row in Table 1 (None: the theorem does not cover it), and what a run reached."""

    regime: Name
    method: str
    bound: float | None
    measured: float | None = None
    share: float | None = None
    """the stepsize of the run, as a share of the largest that was tried"""

    @property
    def end(self) -> Literal["largest", "smallest"] | None:
        """Which end of the range the stepsize lies at: beyond it may be a better one."""
        if self.share not in RANGE:
            return None
        return "largest" if self.share == max(RANGE) else "smallest"

    @property
    def ratio(self) -> float | None:
        """Measured / bound."""
        return None if self.bound is None or self.measured is None else self.measured / self.bound


@dataclass(frozen=True)
class Regime:
    """Where a federation lies after R rounds of K steps; distances are mean squares from the clients' own optima."""

    local_steps: int
    rounds: int
    batch: int
    predicted: Name
    by: Literal["bounds", "quadratics"]
    """what predicts: the exact quadratics where a bound is vacuous"""
    measured: Name | None
    window: tuple[float, float]
    """the condition numbers for which (16) holds"""
    constants: dict[str, float]
    ways: list[Way]
    quadratics: dict[Name, dict[str, float]]
    """of every regime, by the exact law: the least distance, and the (alpha, beta, stepsize) that reaches it"""


def regime(problem: Problem, local_steps: int = 10, rounds: int = 20, batch: int = 20, measure: bool = False) -> Regime:
    """The regime with the least bound; with `measure`, also the one with the least distance in short runs.

    Table 1 leaves out numerical constants, so only large differences between its rows mean anything. It is vacuous
    where (16) does not hold, so that no row is for a shared and a personal part, or where its least row is above B^2,
    the start's. There the regime is that of quadratics with these constants (`theory.plsgd_phase`).
    """
    own, constants = _own_models(problem), federated(problem, local_steps, rounds, batch)
    window = theory.plsgd_window(constants.clients, local_steps, rounds)
    ways = []
    for name, (kind, row, options) in candidates(constants.L, local_steps, batch).items():
        bound = None if name == "PLSGD (16)" and constants.kappa not in window else float(row(constants).total)
        reached = shortest(problem, own, options, rounds) if measure else (None, None)
        ways.append(Way(kind, name, bound, *reached))
    bounds = {way: way.bound for way in ways if way.bound is not None}
    runs = {way: way.measured for way in ways if way.measured is not None}
    phase = theory.plsgd_phase(as_quadratics(problem, own, batch), local_steps, rounds)
    vacuous = len(bounds) < len(ways) or min(bounds.values()) >= constants.radius**2
    return Regime(
        local_steps,
        rounds,
        batch,
        phase.winner if vacuous else min(bounds, key=lambda way: bounds[way]).regime,
        "quadratics" if vacuous else "bounds",
        min(runs, key=lambda way: runs[way]).regime if runs else None,
        (float(window.low), float(window.high)),
        {
            "condition_number": constants.kappa,
            "optima_radius": constants.radius,
            "gradient_noise": constants.noise,
            "optima_spread": constants.heterogeneity / constants.L,
        },
        ways,
        {"local": _best(phase.local), "personalized": _best(phase.personalized), "global": _best(phase.one_model)},
    )


def _best(best: theory.Best) -> dict[str, float]:
    return {"distance": best.error, "alpha": best.alpha, "beta": best.beta, "stepsize": best.stepsize}


def federated(problem: Problem, local_steps: int, rounds: int, batch: int) -> Federated:
    """The constants of a problem with linear model and ridge: L, mu, B and zeta* exactly, sigma as an estimate.

    sigma is the largest noise at the start, at the common optimum, and at the client's own. The assumption is about
    every point, so the true one may be larger.
    """
    own, L = _own_models(problem), float(np.max(problem.constants.smoothness))
    common = problem.solve(1.0).params
    points = jax.tree.map(  # of every client: the start, the common optimum, its own
        lambda shared, mine: np.stack([np.zeros_like(mine), np.broadcast_to(shared, mine.shape), mine], axis=1),
        common,
        problem.local_models().params,
    )
    variances = gradient_variances(problem, points)
    middle = as_rows(jax.tree.map(lambda leaf: leaf[None], common))
    return Federated(
        clients=len(problem),
        local_steps=local_steps,
        rounds=rounds,
        L=L,
        mu=float(np.min(problem.constants.convexity)),
        radius=float(np.sqrt(np.max(np.sum(own**2, axis=1)))),
        noise=float(np.sqrt(np.max(variances) / batch)),
        heterogeneity=L * float(np.sqrt(np.mean(np.sum((own - middle) ** 2, axis=1)))),
    )


Candidate = tuple[Algorithm, float]
"""A method, and its stepsize as a share of the largest that is tried."""
Row = tuple[Name, Callable[[Federated], theory.Rate], list[Candidate]]


def candidates(L: float, local_steps: int, batch: int) -> dict[str, Row]:
    """Table 1's strongly convex rows, each with the candidates of a short run: as many for every method."""
    rows, work = theory.TABLE_1["strongly convex"], {"local_steps": local_steps, "batch": batch, "replace": True}
    many, few = (shares(count) for count in (CANDIDATES, CANDIDATES // len(ALPHAS)))
    kinds: dict[str, Name] = {"pure local training": "local", "PLSGD (16)": "personalized"}
    options: dict[str, list[Candidate]] = {
        "minibatch SGD": [(algorithms.MinibatchSGD(lr=share / L, **work), share) for share in many],
        "local SGD": [(algorithms.LocalSGD(lr=share / L, **work), share) for share in many],
        "pure local training": [(algorithms.Local(lr=share / L, **work), share) for share in many],
        "PLSGD (16)": [
            (algorithms.PLSGD(lr=share / (L * (1 + alpha)), alpha=alpha, **work), share)
            for share in few
            for alpha in ALPHAS
        ],
    }
    return {name: (kinds.get(name, "global"), rate, options[name]) for name, rate in rows.items()}


def shares(count: int) -> list[float]:
    """So many stepsizes over the range, as shares of the largest."""
    low, high = RANGE
    return [low, *np.geomspace(low, high, count)[1:-1].tolist(), high]


def shortest(problem: Problem, own: np.ndarray, options: Sequence[Candidate], rounds: int) -> tuple[float, float]:
    """The mean distance of the candidate that is best on some seeds, over other seeds; and its stepsize, as a share."""

    def distance(run: Simulation) -> float:
        models = np.concatenate([as_rows(block) for block in run.personal_blocks()])
        return float(np.nan_to_num(np.mean(np.sum((models - own) ** 2, axis=1)), nan=np.inf))

    planned = [PlannedRun(problem, method, seed) for method, _ in options for seed in range(2 * SEEDS)]
    with warnings.catch_warnings(action="ignore"):  # a candidate that diverges is just not the best
        results = simulate_all(planned, rounds=rounds, eval_every=rounds, dtype="float64", init="zeros")
    if any(result.interrupted for result in results):
        raise KeyboardInterrupt
    distances = np.array([distance(result.simulation) for result in results]).reshape(len(options), 2 * SEEDS)
    best = int(np.argmin(np.mean(distances[:, :SEEDS], axis=1)))
    return float(np.mean(distances[best, SEEDS:])), options[best][1]


def _own_models(problem: Problem) -> np.ndarray:
    return as_rows(problem.local_models().params)
