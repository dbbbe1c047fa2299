"""Scafflix and Scaffnew: the NumPy loop of Algorithm 1, control variates, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from polyfed.algorithms.shared.trust import SLACK
from polyfed.engine.participation import Bernoulli
from polyfed.engine.simulation import Simulation
from tests.algorithms.comparison import SEED, cohort, late_seed
from tests.algorithms.logistic import ALPHA, WEIGHTS, logistic_problem, run
from tests.algorithms.references.flix import local_models
from tests.algorithms.references.scafflix import projected_gradients, scafflix_round
from tests.algorithms.references.shared import logistic_gradients

A = pf.algorithms


@pytest.fixture(scope="module")
def problem() -> pf.Problem:
    return logistic_problem()


@pytest.fixture(scope="module")
def own(problem) -> np.ndarray:
    return local_models(problem)


def test_scafflix_is_algorithm_1(problem, own) -> None:
    """The iteration of the paper, coin by coin, with the number of local steps of each round as the run drew it."""
    lr, p = 1 / problem.constants.smoothness, 0.3
    simulation = Simulation(problem, A.Scafflix(alpha=WEIGHTS, p=p), dtype="float64", init="ones", seed=4)
    simulation.prepare()
    x, h = np.ones(3), np.zeros((len(problem), 3))
    for _ in range(6):
        before = simulation.iterations
        simulation.advance(1)
        x, h = scafflix_round(problem, ALPHA, own, lr, p, x, h, simulation.iterations - before)
        np.testing.assert_allclose(simulation.global_params["w"], x, atol=1e-10)
        np.testing.assert_allclose(simulation.client_state.control["w"], h, atol=1e-9)
        np.testing.assert_allclose(ALPHA @ simulation.client_state.control["w"], 0, atol=1e-10)


@pytest.mark.parametrize("trust", ["sampled", "never"])
def test_sampled_clients_alone_move_their_control_variates(problem, own, trust) -> None:
    """Two of five clients a round; by default they trust h_i as far as it explains their gradients."""
    lr, p, slack = 1 / problem.constants.smoothness, 0.3, SLACK if trust == "sampled" else None
    method = A.Scafflix(alpha=WEIGHTS, p=p, trust=trust)
    simulation = Simulation(problem, method, dtype="float64", init="ones", seed=SEED, participation=2)
    simulation.prepare()
    members = cohort(2, problem)
    x, h = np.ones(3), np.zeros((len(problem), 3))
    for number in range(12):
        before = simulation.iterations
        simulation.advance(1)
        steps = simulation.iterations - before
        x, h = scafflix_round(problem, ALPHA, own, lr, p, x, h, steps, members(number), slack)
        np.testing.assert_allclose(simulation.global_params["w"], x, atol=1e-10)
        np.testing.assert_allclose(simulation.client_state.control["w"], h, atol=1e-9)
        np.testing.assert_allclose(ALPHA @ simulation.client_state.control["w"], 0, atol=1e-10)


def test_scafflix_with_p_1_keeps_the_gradient_deviations(problem) -> None:
    """p = 1, alpha = 1, equal stepsizes: the averaged iterate is gradient descent's, and h_i = grad_i - mean grad."""
    result = run(problem, A.Scafflix(alpha=1.0, p=1.0, lr=0.2), 1)
    g = logistic_gradients(problem, np.ones((5, 3)))
    np.testing.assert_allclose(result.client_state.control["w"], g - g.mean(axis=0), atol=1e-12)


def test_control_variates_started_at_the_gradients_are_projected(problem, own) -> None:
    """The first round is one step of everybody; what it leaves is the gradient, and sum_i alpha_i h_i = 0."""
    lr = 1 / problem.constants.smoothness
    result = run(problem, A.Scafflix(alpha=WEIGHTS, p=0.3, control="gradient"), 1)
    h, x = projected_gradients(problem, ALPHA, own, lr, np.ones(3))
    np.testing.assert_allclose(result.client_state.control["w"], h, atol=1e-11)
    np.testing.assert_allclose(result.global_params["w"], x, atol=1e-11)
    assert result.iterations == 1


def test_control_variates_started_at_the_gradients_cost_a_number_a_message(problem) -> None:
    """Beside the model, only whether the first round is over travels."""
    plain, started = (run(problem, A.Scafflix(alpha=WEIGHTS, p=0.3, control=c), 4) for c in ("zero", "gradient"))
    assert started.bits_up == plain.bits_up
    assert plain.bits_down == 5 * 5 * 3 * 64
    assert started.bits_down == plain.bits_down + 5 * 5 * 32


@pytest.mark.parametrize("alpha", [WEIGHTS, [0.9, 0.0, 0.0, 1.0, 0.35]])
def test_control_variates_begin_in_the_first_round_that_anybody_counts_in(problem, alpha) -> None:
    """Rounds before it may be empty, or have only clients whose alpha is 0."""
    method = A.Scafflix(alpha=alpha, p=0.3, control="gradient")
    problem.solve(np.array(alpha))
    seldom = Bernoulli(0.25)
    options = {"participation": seldom, "dtype": "float64", "init": "ones", "seed": late_seed(seldom, problem, alpha)}
    run = pf.simulate(problem, method, rounds=600, eval_every=600, **options)
    np.testing.assert_allclose(np.array(alpha) @ run.client_state.control["w"], 0, atol=1e-9)
    assert abs(run.history["gap"].iloc[-1]) < 1e-10


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (A.Scafflix(p=0.0), "scafflix: p must be above 0 and at most 1, found 0"),
        (A.Scafflix(p=1.5), "scafflix: p must be above 0 and at most 1, found 1.5"),
        (A.Scaffnew(lr=[0.1, 0.2]), "lr has 2 values, expected one for each of 5 clients"),
    ],
)
def test_bad_input_is_refused_by_name(problem, method, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        run(problem, method, 1)
