"""FLIX, DCGD and DIANA, the methods of FLIX's paper: NumPy loops, bits, refusals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
from polyfed.engine.participation import Bernoulli
from polyfed.engine.simulation import Simulation
from tests.algorithms.comparison import cohort, late_seed
from tests.algorithms.logistic import ALPHA, SIZES, WEIGHTS, history, logistic_problem, run
from tests.algorithms.references.flix import gradient_descent, local_models, local_steps, mixture_gradients

A = pf.algorithms


@pytest.fixture(scope="module")
def problem() -> pf.Problem:
    return logistic_problem()


@pytest.fixture(scope="module")
def own(problem) -> np.ndarray:
    return local_models(problem)


def test_flix_is_distributed_gradient_descent_on_the_mixture(problem, own) -> None:
    lr = 1 / np.mean(ALPHA**2 * problem.constants.smoothness)
    x = gradient_descent(problem, ALPHA, own, np.ones(3), float(lr), 7)
    result = run(problem, A.FLIX(alpha=WEIGHTS), 7)
    np.testing.assert_allclose(result.global_params["w"], x, atol=1e-11)
    np.testing.assert_allclose(result.personal(1)["w"], 0.2 * x + 0.8 * own[1], atol=1e-11)
    np.testing.assert_allclose(np.asarray(result.own_share), 1 - ALPHA)


@pytest.mark.parametrize("lr", [None, 0.7])
def test_flix_with_local_steps_averages_walks_on_the_mixture(problem, own, lr) -> None:
    x = local_steps(problem, ALPHA, own, np.ones(3), 1.0 if lr is None else lr, 0.05, 3, 4)
    method = A.FLIX(alpha=WEIGHTS, lr=lr, local_steps=3, local_lr=0.05)
    np.testing.assert_allclose(run(problem, method, 4).global_params["w"], x, atol=1e-11)


@pytest.mark.parametrize(
    "options", [{"local_steps": 3}, {"local_lr": 0.1}, {"local_steps": 3, "local_lr": 0.1, "start": "average"}]
)
def test_local_steps_and_their_stepsize_go_together(options) -> None:
    with pytest.raises(pf.PolyfedError, match="local"):
        A.FLIX(**options).check()


def test_the_one_shot_average_is_equation_5(problem, own) -> None:
    weights = ALPHA**2 * problem.constants.smoothness
    result = run(problem, A.FLIX(alpha=WEIGHTS, start="average"), 1)
    np.testing.assert_allclose(result.global_params["w"], weights @ own / weights.sum(), atol=1e-11)
    assert result.bits_up == 5 * 64 * 4


@pytest.mark.parametrize("alpha", [WEIGHTS, [0.9, 0.0, 0.0, 1.0, 0.35]])
def test_the_average_is_taken_in_the_first_round_that_anybody_counts_in(problem, own, alpha) -> None:
    """Rounds before it may be empty, or have only clients whose alpha is 0."""
    seldom = Bernoulli(0.25)
    options = {"participation": seldom, "seed": late_seed(seldom, problem, alpha)}
    simulation = run(problem, A.FLIX(alpha=alpha, start="average", lr=0.01), 1, **options)
    np.testing.assert_array_equal(simulation.global_params["w"], 1.0)
    weights = np.array(alpha) ** 2 * problem.constants.smoothness
    members, x = cohort(seldom, problem, options["seed"]), None
    for number in range(1, 12):
        simulation.advance(1)
        present = members(number)
        if x is None and np.any(weights[present]):
            x = weights[present] @ own[present] / weights[present].sum()
        elif x is not None and present:
            here = np.array(alpha)[present]
            gradients = mixture_gradients(problem, np.array(alpha), x, own)[present]
            x = x - 0.01 * np.mean(here[:, None] * gradients, axis=0)
        np.testing.assert_allclose(simulation.global_params["w"], 1.0 if x is None else x, atol=1e-11)
    assert x is not None


@pytest.mark.full
@pytest.mark.parametrize("alpha", [WEIGHTS, [0.9, 0.0, 0.0, 1.0, 0.35]])
@pytest.mark.parametrize("beta", [0.3, [0.3, 0.2, 0.3, 0.1, 0.3]])
def test_memories_begin_in_the_first_round_that_brings_gradients(problem, alpha, beta) -> None:
    """The server's memory is the mean of the clients', whoever comes first, and the solution is exact."""
    seldom, rand = Bernoulli(0.4), {"name": "rand_k", "k": 1}
    options = {"participation": seldom, "seed": late_seed(seldom, problem, alpha)}
    method = A.DIANA(alpha=alpha, memory="gradient", beta=beta, compressor=rand, lr=0.05)
    simulation = run(problem, method, 1, **options)
    assert not np.any(simulation.client_state.memory["w"])
    members, begun = cohort(seldom, problem, options["seed"]), False
    for number in range(1, 12):
        x, bits = simulation.global_params["w"], simulation.bits_up
        simulation.advance(1)
        memory, senders = simulation.client_state.memory["w"], [i for i in members(number) if alpha[i]]
        np.testing.assert_allclose(simulation.server.memory["w"], memory.mean(axis=0), atol=1e-12)
        vectors = 1 + isinstance(beta, list)
        assert simulation.bits_up - bits == len(senders) * 64 * vectors * (1 if begun else 3)
        if senders and not begun:
            own = simulation.client_state.mixture.own["w"]
            gradients = np.array(alpha)[:, None] * mixture_gradients(problem, np.array(alpha), x, own)
            np.testing.assert_allclose(memory[senders], gradients[senders], atol=1e-12)
            begun = True
    assert begun


def test_the_share_of_the_clients_has_the_precision_of_the_run() -> None:
    """5 / 7 in float64, also where both are whole numbers of 32 bits."""
    with jax.enable_x64(True):
        total = A.Total({}, jnp.asarray(5.0), jnp.asarray(5, jnp.int32), jnp.asarray(7, jnp.int32))
        assert float(total.share) == 5 / 7


def test_alpha_can_be_a_column_or_a_rule(problem) -> None:
    by_column, by_value = run(problem, A.FLIX(alpha="trust"), 5), run(problem, A.FLIX(alpha=WEIGHTS), 5)
    np.testing.assert_array_equal(by_column.global_params["w"], by_value.global_params["w"])
    sizes = np.array(SIZES)
    ruled = run(problem, A.FLIX(alpha="inverse_size"), 1).client_state.alpha
    np.testing.assert_allclose(ruled, 14 / (14 + sizes))


def test_the_gap_is_the_difference_of_the_values(problem) -> None:
    reference = problem.solve(ALPHA)
    rows = history(problem, A.FLIX(alpha=WEIGHTS), 30, 1)
    early = rows[rows["gap"] > 1e-6]
    assert len(early) > 3
    np.testing.assert_allclose(early["gap"], early["objective"] - reference.value, atol=1e-11)


def test_diana_is_algorithm_3_with_the_compressors_own_draws(problem) -> None:
    """The memories and the server's memory stay consistent, and x moves along h + mean difference."""
    method = A.DIANA(alpha=WEIGHTS, compressor={"name": "rand_k", "k": 1})
    simulation = Simulation(problem, method, dtype="float64", init="ones", seed=2)
    simulation.prepare()
    own = simulation.client_state.mixture.own["w"]
    resolved = simulation.method
    assert isinstance(resolved, A.DIANA)
    gamma, beta = resolved.lr, resolved.beta
    assert beta == pytest.approx(1 / 3)
    for _ in range(5):
        x, h = simulation.global_params["w"], simulation.client_state.memory["w"]
        simulation.advance(1)
        after = simulation.client_state.memory["w"]
        g = ALPHA[:, None] * mixture_gradients(problem, ALPHA, x, own)
        sent = (after - h) / beta  # the decompressed differences: one coordinate of g - h each, times 3
        chosen = np.abs(sent) > 1e-14
        assert (chosen.sum(axis=1) <= 1).all()
        np.testing.assert_allclose(sent[chosen], 3 * (g - h)[chosen], atol=1e-12)
        moved = x - gamma * (h.mean(axis=0) + sent.mean(axis=0))
        np.testing.assert_allclose(simulation.global_params["w"], moved, atol=1e-12)
        np.testing.assert_allclose(simulation.server.memory["w"], after.mean(axis=0), atol=1e-12)


@pytest.mark.full
def test_compressed_messages_count_their_own_bits(problem) -> None:
    def bits(compressor, method: type[A.DCGD] | type[A.DIANA] = A.DCGD) -> float:
        return run(problem, method(alpha=0.5, compressor=compressor), 4).bits_up

    assert bits("identity") == 4 * 5 * 3 * 64
    assert bits({"name": "rand_k", "k": 1}) == 4 * 5 * 64
    assert bits({"name": "rand_k", "k": 1, "seeded": False}) == 4 * 5 * (64 + 2)
    assert bits({"name": "rand_k", "k": [1, 2, 3, 1, 1]}) == 4 * 8 * 64
    assert bits("natural", A.DIANA) == 4 * 5 * 3 * 12


@pytest.mark.full
def test_error_feedback_makes_up_for_the_bias_of_top_k(problem) -> None:
    """The error that the smaller coordinates leave behind is sent later: a tenth of the stepsize, far less error."""
    problem.solve(0.5)

    def gap(lr: float) -> float:
        method = A.DCGD(alpha=0.5, compressor={"name": "top_k", "k": 1}, lr=lr)
        return history(problem, method, 4000, 4000)["gap"].iloc[-1]

    assert gap(1.0) < 1e-4
    assert gap(0.1) < gap(1.0) / 20


@pytest.mark.full
def test_dcgd_stays_in_a_neighbourhood_that_diana_leaves(problem) -> None:
    problem.solve(0.5)
    rand = {"name": "rand_k", "k": 1}
    noisy = history(problem, A.DCGD(alpha=0.5, compressor=rand), 2000, 200)
    exact = history(problem, A.DIANA(alpha=0.5, compressor=rand), 4000, 4000)
    assert noisy["gap"].iloc[2:].min() > 1e-9
    assert exact["gap"].iloc[-1] < 1e-13


def test_a_net_needs_stepsizes(federation) -> None:
    problem = pf.Problem(federation, pf.models.mlp([4]), "softmax")
    with pytest.raises(pf.PolyfedError, match="flix: lr must be given: the theory's value needs a linear model"):
        run(problem, A.FLIX(alpha=0.5, plm_epochs=1), 1)
    method = A.FLIX(alpha=0.5, plm_epochs=5, lr=0.3, batch=4, server_optimizer="adam")
    objective = history(problem, method, 20, 20)["objective"]
    assert objective.iloc[-1] < objective.iloc[0]


@pytest.mark.parametrize("cls", [A.FLIX, A.DCGD, A.DIANA, A.Scafflix])
def test_the_local_models_of_a_net_need_epochs(federation, cls) -> None:
    """Newton's method would start at zero, where nothing but the last bias of a net moves."""
    problem = pf.Problem(federation, pf.models.mlp([4]), "softmax")
    options: dict[str, Any] = {"lr": 0.1}
    if cls is A.Scafflix:
        options["p"] = 0.3
    with pytest.raises(pf.PolyfedError, match=f"{cls.name}: plm_epochs must be given, found none"):
        Simulation(problem, cls(alpha=0.5, **options))
    Simulation(problem, cls(alpha=0.5, plm_epochs=1, **options))
    Simulation(problem, cls(alpha=1.0, **options))  # nobody has a local model


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (A.FLIX(alpha=1.5), "flix: alpha must be at least 0 and at most 1, found 1.5"),
        (A.FLIX(alpha=[0.1, 0.2]), "flix: alpha has 2 values, expected one for each of 5 clients"),
        (A.FLIX(alpha=[0.1, 0.2, 0.3, 2.0, 0.1]), "flix: alpha must be from 0 to 1, found 2 for client 'client-003'"),
        (A.FLIX(alpha="turst"), "did you mean 'trust'"),
        (A.DCGD(compressor={"name": "rand_k", "k": 9}), "rand_k: k must be a whole number from 1 to 3"),
        (A.DCGD(compressor="rnd_k"), "did you mean 'rand_k'"),
        (A.DIANA(compressor={"name": "top_k", "k": 1}), "diana: needs an unbiased compressor"),
        (A.DCGD(compressor={"name": "top_k", "k": 1}), "dcgd: lr must be given with the biased compressor top_k"),
    ],
)
def test_bad_input_is_refused_by_name(problem, method, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        run(problem, method, 1)
