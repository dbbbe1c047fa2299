"""Plan a federation by theory: the mixing weight that a budget allows, and the rounds and bits to a target accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import jax
import numpy as np

from polyfed import algorithms, theory
from polyfed.algorithms.contract import Algorithm
from polyfed.algorithms.shared.skipping import default_probability
from polyfed.compress import RandK
from polyfed.core.errors import PolyfedError
from polyfed.engine.simulate import simulate_whole
from polyfed.problem.client_values import mixing_weights
from polyfed.problem.problem import Problem
from polyfed.studies.planning.quadratics import as_rows
from polyfed.studies.planning.regimes import Regime, regime

BUDGETS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
LONGEST = 20_000
"""The most rounds that a measurement may take."""


@dataclass(frozen=True)
class Prediction:
    """One method's way to the target: by its theorem, and as a run measured it (None: not run, or not reached)."""

    method: str
    rounds: float
    bits_up: float
    measured_rounds: int | None = None
    measured_bits_up: int | None = None


@dataclass(frozen=True)
class Plan:
    """Measured constants, the table of budgets, the predictions, and the regime that the federation lies in."""

    target: float
    alpha: float | list[float]
    constants: dict[str, float]
    budgets: list[dict[str, float]]
    predictions: list[Prediction]
    regime: Regime

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def plan(
    problem: Problem,
    alpha: float | str | Sequence[float] | np.ndarray = 0.5,
    target: float = 1e-6,
    measure: bool = False,
    *,
    local_steps: int = 10,
    rounds: int = 20,
    batch: int = 20,
) -> Plan:
    """FLIX Sec. 3.1, the rates of Theorems 2, 5 (FLIX) and 1 (Scafflix), and PLSGD's Table 1, for this problem.

    `target` is f - f*. Gradient descent starts from the one-shot average, the others from zero. With `measure`, each
    method is also run in float64 until it reaches the target. The regime is that of `rounds` rounds of `local_steps`
    steps on batches of `batch` rows, by Table 1 and, with `measure`, by such runs.
    """
    if not (isinstance(target, int | float) and 0 < target < float("inf")):
        raise PolyfedError(f"target must be a number above 0, found {target!r}")
    constants = problem.constants
    L, mu = constants.smoothness, constants.convexity
    if not np.all(mu > 0):
        raise PolyfedError("plan needs strong convexity: give the problem a ridge (problem.l2 above 0)")
    weights = mixing_weights(alpha, problem.federation)
    if not np.any(weights > 0):
        raise PolyfedError("plan: with alpha = 0 for every client nothing is communicated")
    own = as_rows(problem.local_models().params)
    spread = theory.spread(own, theory.one_shot_weights(L, 1.0))  # the budget is for one alpha of all clients
    methods = [_gradient_descent, _diana, _scafflix]
    rows = [method(problem, weights, own, target) for method in methods]
    predictions = [_measured(problem, target, row, method) if measure else row for row, method in rows]
    table = theory.budget_table(target, L, mu, spread.variance, list(BUDGETS))
    return Plan(
        target,
        float(weights[0]) if np.all(weights == weights[0]) else weights.tolist(),
        {
            "clients": float(len(problem)),
            "parameters": float(own.shape[1]),
            "smoothness_mean": float(np.mean(L)),
            "smoothness_max": float(np.max(L)),
            "convexity_min": float(np.min(mu)),
            "condition_number": float(np.max(L / mu)),
            "local_model_variance": float(spread.variance),
            "local_model_diameter": float(spread.diameter),
        },
        [{"communications": float(row.communications), "largest_alpha": row.alpha} for row in table],
        predictions,
        regime(problem, local_steps, rounds, batch, measure),
    )


Row = tuple[Prediction, Algorithm]


def _gradient_descent(problem: Problem, alpha: np.ndarray, own: np.ndarray, target: float) -> Row:
    L, mu = problem.constants.smoothness, problem.constants.convexity
    spread = theory.spread(own, theory.one_shot_weights(L, alpha))
    start = float(theory.gd_gap_bound(0, L, mu, alpha, variance=spread.variance))
    rounds = 1 + theory.gd_rounds(target, start, L, mu, alpha)
    method = algorithms.FLIX(alpha=alpha.tolist(), start="average")
    return Prediction("FLIX (gradient descent)", rounds, rounds * _active(alpha) * 64 * own.shape[1]), method


def _diana(problem: Problem, alpha: np.ndarray, own: np.ndarray, target: float) -> Row:
    L, mu = problem.constants.smoothness, problem.constants.convexity
    solution, gradients = _solution(problem, alpha)
    n, d = own.shape
    k = max(1, d // 4)
    omega = d / k - 1
    stepsize = theory.diana_stepsize(L, alpha, omega)
    start = float(theory.diana_lyapunov(np.zeros(d), solution, np.zeros((n, d)), gradients, alpha, omega, stepsize))
    goal = 2 * target / theory.smoothness(L, alpha)
    rounds = theory.diana_rounds(goal, start, mu, alpha, omega, stepsize)
    method = algorithms.DIANA(alpha=alpha.tolist(), compressor=RandK(k))
    return Prediction(f"DIANA (rand-{k})", rounds, rounds * _active(alpha) * 64 * k), method


def _scafflix(problem: Problem, alpha: np.ndarray, own: np.ndarray, target: float) -> Row:
    active = alpha > 0  # the others take no part
    L, mu = problem.constants.smoothness[active], problem.constants.convexity[active]
    solution, gradients = _solution(problem, alpha)
    gamma = theory.scafflix_stepsizes(L, mu)
    p = default_probability(gamma, mu)
    weight, local = alpha[active, None], own[active]
    start = theory.scafflix_lyapunov(
        (1 - weight) * local,
        weight * solution + (1 - weight) * local,
        np.zeros_like(local),
        gradients[active],
        gamma,
        p,
    )
    goal = theory.scafflix_accuracy(target, L, gamma)
    rounds = theory.scafflix_rounds(goal, float(start), gamma, mu, p)
    method = algorithms.Scafflix(alpha=alpha.tolist())
    return Prediction(f"Scafflix (p = {p:.2g})", rounds, rounds * _active(alpha) * 64 * (own.shape[1] + 1)), method


def _measured(problem: Problem, target: float, row: Prediction, method: Algorithm) -> Prediction:
    """The first evaluated round at which the gap is under the target, and the bits until then."""
    rounds = int(min(LONGEST, np.ceil(row.rounds) + 1))
    every = max(1, rounds // 400)
    history = simulate_whole(problem, method, rounds=rounds, dtype="float64", init="zeros", eval_every=every).rows
    reached = next((point for point in history if point["gap"] <= target), None)
    if reached is None:
        return row
    return Prediction(row.method, row.rounds, row.bits_up, reached["round"], reached["bits_up"])


def _solution(problem: Problem, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x*, and grad f_i(T_i(x*)) of every client."""
    reference = problem.solve(alpha)
    solution = as_rows(jax.tree.map(lambda leaf: leaf[None], reference.params))[0]
    local = reference.local_models
    gradients = []
    for client, name in enumerate(problem.federation.clients):
        own = reference.params if local is None else jax.tree.map(lambda leaf, i=client: leaf[i], local.params)
        mixed = jax.tree.map(lambda x, y, i=client: alpha[i] * x + (1 - alpha[i]) * y, reference.params, own)
        gradients.append(as_rows(jax.tree.map(lambda leaf: leaf[None], problem.grad(mixed, name)))[0])
    return solution, np.array(gradients)


def _active(alpha: np.ndarray) -> int:
    return int(np.sum(alpha > 0))
