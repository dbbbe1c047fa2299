"""APFL against a NumPy loop of Algorithm 1 and eq. (10), its reductions, its averages, and its refusals."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
from polyfed import theory
from polyfed.algorithms.apfl import validation_gradient
from polyfed.algorithms.shared.kept_model import KeptModel
from polyfed.engine.simulation import Simulation
from tests.algorithms.comparison import INIT, ROUNDS, SEED, START, cohort, matrix, trained
from tests.algorithms.references.apfl import apfl
from tests.conftest import few

A = pf.algorithms
STEPS = 4
ALPHA = [0.9, 0.2, 0.55, 1.0, 0.35, 0.0]


@pytest.mark.parametrize(
    ("adaptive", "batch", "participation", "alpha_lr"),
    few(
        [
            ("off", 4, 1.0, None),
            ("off", 4, 3, None),
            ("step", 4, 3, 0.8),
            ("round", "full", 1.0, None),
            ("round", 4, 3, 2.0),
        ],
        ("round", 4, 3, 2.0),
    ),
)
def test_apfl_is_algorithm_1_with_equation_10(problem, adaptive, batch, participation, alpha_lr) -> None:
    method = A.APFL(
        lr=pf.Decay(0.3, 0.9), local_steps=STEPS, batch=batch, alpha=ALPHA, adaptive=adaptive, alpha_lr=alpha_lr
    )
    result = trained(problem, method, participation=participation)
    members, rows = cohort(participation, problem), None if batch == "full" else batch
    expected = apfl(
        problem,
        ROUNDS,
        lambda r, t: 0.3 * 0.9**r,
        STEPS,
        rows,
        ALPHA,
        members,
        adaptive,
        alpha_lr,
        seed=SEED,
        start=START,
    )
    np.testing.assert_allclose(matrix(result.global_params), expected["w"], atol=1e-10)
    np.testing.assert_allclose(result.client_state.alpha, expected["alpha"], atol=1e-10)
    there = np.isin(np.arange(len(problem)), list(expected["met"]))
    np.testing.assert_allclose(np.asarray(result.own_share), there * expected["alpha"], atol=1e-10)
    for i, (v, alpha) in enumerate(zip(expected["v"], expected["alpha"], strict=True)):
        np.testing.assert_allclose(matrix(result.personal(i)), alpha * v + (1 - alpha) * expected["w"], atol=1e-10)
    moved = np.abs(np.array(expected["alpha"]) - ALPHA).max()
    assert moved == 0 if adaptive == "off" else moved > 1e-3


def test_alpha_0_is_fedavg_with_uniform_weights(problem) -> None:
    work = {"lr": 0.3, "local_steps": STEPS, "batch": 4}
    mixed = trained(problem, A.APFL(**work, alpha=0.0, adaptive="off"), participation=3)
    average = trained(problem, A.FedAvg(**work, weighting="uniform"), participation=3)
    np.testing.assert_allclose(matrix(mixed.global_params), matrix(average.global_params), atol=1e-10)
    for i in range(len(problem)):
        np.testing.assert_allclose(matrix(mixed.personal(i)), matrix(average.global_params), atol=1e-10)
    assert mixed.bits_up == average.bits_up


@pytest.mark.parametrize("lr", few([0.3, pf.InverseStep(9.0, 30.0)], 0.3))
def test_alpha_1_is_training_alone(problem, lr) -> None:
    work = {"lr": lr, "local_steps": STEPS, "batch": 4}
    mixed = trained(problem, A.APFL(**work, alpha=1.0, adaptive="off"))
    alone = trained(problem, A.Local(**work))
    for i in range(len(problem)):
        np.testing.assert_allclose(matrix(mixed.personal(i)), matrix(alone.personal(i)), atol=1e-10)


@pytest.mark.parametrize("participation", few([1.0, 2], 2))
def test_weighted_output_is_the_average_of_theorems_2_and_3(problem, participation) -> None:
    """Every iterate since the first step, with weight (t + a)^2; an absent client's v_i counts as it stands."""
    schedule, a = pf.InverseStep(9.0, 30.0), 30.0
    method = A.APFL(lr=schedule, local_steps=STEPS, batch=4, alpha=ALPHA, adaptive="off", output="weighted")
    result = trained(problem, method, participation=participation)
    members = cohort(participation, problem)
    found = apfl(problem, ROUNDS, lambda r, t: 9.0 / (t + 30.0), STEPS, 4, ALPHA, members, seed=SEED, start=START)
    p = (np.arange(1, ROUNDS * STEPS + 1) + a) ** 2
    w = np.tensordot(p, np.array(found["iterates_w"]), 1) / p.sum()
    v = np.tensordot(p, np.array(found["iterates_v"]), 1) / p.sum()
    v = [v[i] if i in found["met"] else w for i in range(len(v))]
    np.testing.assert_allclose(matrix(result.global_params), w, atol=1e-10)
    np.testing.assert_allclose(matrix(result.server.output.iterate), found["w"], atol=1e-10)
    for i in range(len(problem)):
        np.testing.assert_allclose(matrix(result.personal(i)), ALPHA[i] * v[i] + (1 - ALPHA[i]) * w, atol=1e-10)
    last = trained(problem, dataclasses.replace(method, output="last"), participation=participation)
    np.testing.assert_allclose(matrix(last.global_params), found["w"], atol=1e-10)
    assert result.bits_up == last.bits_up * (2 * 15 + 1) / 15


def test_the_offset_of_the_average_is_the_theorems(problem) -> None:
    method = Simulation(problem, A.APFL(lr=0.1, local_steps=STEPS, output="weighted")).method
    kappa = problem.constants.smoothness.max() / problem.constants.convexity.min()
    assert isinstance(method, A.APFL)
    assert method.output_offset == pytest.approx(128 * kappa)
    schedule = theory.apfl_schedule([1.0, 2.0], [0.5, 1.0], 1000)
    assert schedule == pf.InverseStep(32.0, 1000.0)


@pytest.mark.full
def test_alpha_grows_where_clients_differ_and_stays_small_where_they_do_not() -> None:
    """Two clients whose labels contradict each other, against two with the same rule."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    labels = np.argmax(x, axis=1)

    def learned(other: np.ndarray) -> np.ndarray:
        fed = pf.Federation.from_arrays([(x, labels), (x, other)], test=0, validation=0, classes=3)
        problem = pf.Problem(fed, pf.models.linear(), "softmax", l2=0.01)
        method = A.APFL(lr=0.3, alpha=0.1, adaptive="round", batch="full")
        return pf.simulate(problem, method, rounds=60, eval_every=60, dtype="float64").client_state.alpha

    assert (learned((labels + 1) % 3) > 0.9).all()
    assert (learned(labels) < 0.05).all()


def test_alpha_can_be_learned_from_validation_rows(problem) -> None:
    """Where the objective offers them; eq. (10) then has the gradient of all validation rows."""
    client = problem.federation.clients[1]
    with jax.enable_x64(True):
        train, held_out = (problem.objective(client, split) for split in ("train", "validation"))
        params = jax.tree.map(jnp.asarray, INIT)
        with pytest.raises(pf.PolyfedError, match="needs an objective that offers validation rows"):
            validation_gradient(train, params)
        object.__setattr__(train, "validation", held_out)
        method = A.APFL(lr=0.3, alpha=0.6, alpha_on="validation", adaptive="step", batch="full", local_steps=1)
        other = jax.tree.map(lambda leaf: leaf + 0.5, params)
        state = method.init_client(other)._replace(own=KeptModel.after(other), alpha=jnp.asarray(0.6))
        _, after = method.local(params, state, train, jax.random.key(0))
        mixed = jax.tree.map(lambda v, w: 0.6 * v + 0.4 * w, other, params)
        slope = sum(float(np.sum(0.5 * leaf)) for leaf in jax.tree.leaves(problem.grad(mixed, client, "validation")))
        empty = dataclasses.replace(held_out, size=jnp.asarray(0))
        object.__setattr__(train, "validation", empty)
        assert float(method.local(params, state, train, jax.random.key(0))[1].alpha) == 0.6
    assert float(after.alpha) == pytest.approx(np.clip(0.6 - 0.3 * slope, 0, 1), abs=1e-12)


def test_a_rule_gives_the_weight_of_the_global_model(problem) -> None:
    """inverse_size says how much a small client leans on the others; here alpha weighs its own model."""
    found = trained(problem, A.APFL(alpha="inverse_size", adaptive="off"), rounds=1).client_state.alpha
    sizes = np.array(problem.federation.train.sizes)
    np.testing.assert_allclose(found, sizes / (sizes + np.median(sizes)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 1.5}, "apfl: alpha must be at least 0 and at most 1, found 1.5"),
        ({"alpha": [0.1, 0.2]}, "apfl: alpha has 2 values, expected one for each of 6 clients"),
        ({"alpha": [0.5, True, 1, 0, 0.2, 0.3]}, r"apfl: alpha must be a number, .* found \[0.5, True"),
        ({"alpha": ["0.5"] * 6}, r"apfl: alpha must be a number, .* found \['0.5'"),
        ({"adaptive": "always"}, "apfl: adaptive must be one of step, round, off"),
        ({"alpha_lr": 0.0}, "apfl: alpha_lr must be above 0, found 0.0"),
        ({"output": "weighted", "local_epochs": 1}, "apfl: output = 'weighted' counts steps"),
        ({"lr": pf.InverseStep(1.0, 1.0), "local_epochs": 1}, "apfl: lr is a schedule of steps, give local_steps"),
        ({"lr": pf.InverseStep(1.0, 0.0)}, "apfl: lr.step_offset must be above 0"),
    ],
)
def test_bad_input_is_refused_by_name(problem, options, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        Simulation(problem, A.APFL(**options))


def test_schedules_of_steps_are_refused_where_steps_are_not_counted(problem) -> None:
    with pytest.raises(
        pf.PolyfedError, match="fedavg: lr must be a number or a schedule of rounds, found one of steps"
    ):
        Simulation(problem, A.FedAvg(lr=pf.InverseStep(1.0, 1.0)))


def test_validation_rows_are_needed_for_alpha_on_validation() -> None:
    rng = np.random.default_rng(0)
    fed = pf.Federation.from_arrays([(rng.normal(size=(6, 2)), np.arange(6) % 2)] * 2, test=0, validation=0)
    problem = pf.Problem(fed, pf.models.linear(), "softmax")
    with pytest.raises(pf.PolyfedError, match="needs validation rows, and the data has none"):
        Simulation(problem, A.APFL(alpha_on="validation"))


@pytest.mark.parametrize("adaptive", few(["step", "round"], "round"))
def test_the_engine_offers_validation_rows_to_alpha(problem, adaptive) -> None:
    method = A.APFL(
        lr=0.3, alpha=0.6, alpha_lr=0.8, alpha_on="validation", adaptive=adaptive, batch=4, local_steps=STEPS
    )
    simulation = trained(problem, method)

    def held_out(client: int, params: np.ndarray) -> np.ndarray:
        tree = {"w": params[:-1], "b": params[-1]}
        return matrix(problem.grad(tree, problem.federation.clients[client], "validation"))

    expected = apfl(
        problem,
        ROUNDS,
        lambda r, t: 0.3,
        STEPS,
        4,
        [0.6] * len(problem),
        cohort(1.0, problem),
        adaptive,
        0.8,
        held_out,
        start=START,
        seed=SEED,
    )
    np.testing.assert_allclose(matrix(simulation.global_params), expected["w"], atol=1e-10)
    np.testing.assert_allclose(simulation.client_state.alpha, expected["alpha"], atol=1e-10)
    assert np.ptp(expected["alpha"]) > 0.01
