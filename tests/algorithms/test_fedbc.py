"""FedBC and Per-FedBC: NumPy loops, the KKT conditions on quadratics, reductions, multipliers, and refusals."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
import pytest

import polyfed as pf
from polyfed.engine.simulation import Simulation
from tests.algorithms.comparison import SEED, START, cohort, matrix, trained
from tests.algorithms.references.fedbc import constrained, fedbc
from tests.algorithms.references.shared import Client, clients_of
from tests.conftest import few

A = pf.algorithms
ROUNDS, STEPS = 4, 3
TOLERANCE = [0.0, 0.2, 0.05, 0.4, 0.1, 0.3]
WORK: dict[str, Any] = {"lr": 0.3, "local_steps": STEPS, "batch": 4}
FULL: dict[str, Any] = {**WORK, "batch": "full"}


def run(problem, method, rounds=ROUNDS, **options) -> Simulation:
    return trained(problem, method, rounds, **options)


def one(params, i: int):
    return matrix(jax.tree.map(lambda leaf: leaf[i], params))


def assert_is(found, expected) -> None:
    """z, and every client's x_i, lambda_i and gamma_i, where the method keeps them."""
    np.testing.assert_allclose(matrix(found.global_params), expected["z"], atol=1e-10)
    bond = found.client_state.bond
    np.testing.assert_allclose(bond.multiplier, expected["multiplier"], atol=1e-10)
    np.testing.assert_allclose(bond.tolerance, expected["tolerance"], atol=1e-10)
    if found.client_state.own is not None and found.method.name == "fedbc":
        for i, x in enumerate(expected["x"]):
            np.testing.assert_allclose(matrix(found.personal(i)), x, atol=1e-10)
    elif found.client_state.own is not None:  # these are adapted before they are deployed
        for i in np.flatnonzero(found.client_state.own.met).tolist():
            np.testing.assert_allclose(one(found.client_state.own.model, i), expected["x"][i], atol=1e-10)


@pytest.mark.parametrize(
    ("start", "grow", "batch", "participation"),
    [("server", True, 4, 3), ("own", True, 4, 3), ("server", False, "full", 1.0)],
)
def test_fedbc_is_algorithms_1_and_2(problem, start, grow, batch, participation) -> None:
    method = A.FedBC(
        **{**WORK, "batch": batch}, tolerance=TOLERANCE, grow=grow, dual_lr=0.2, multiplier=0.1, start=start
    )
    found = run(problem, method, participation=participation)
    expected = fedbc(
        problem,
        ROUNDS,
        STEPS,
        None if batch == "full" else batch,
        cohort(participation, problem),
        multiplier=0.1,
        tolerance=TOLERANCE,
        tolerance_lr=0.2 if grow else None,
        own_start=start == "own",
        seed=SEED,
        start=START,
    )
    assert_is(found, expected)
    assert np.ptp(expected["multiplier"]) > 0.05  # the average is far from uniform
    for i, x in enumerate(expected["x"]):
        np.testing.assert_allclose(matrix(found.personal(i)), x, atol=1e-10)
    last = [expected["multiplier"][i] for i in cohort(participation, problem)(ROUNDS - 1)]
    assert found.server.multiplier == pytest.approx(np.mean(last), abs=1e-10)
    per_model = 64 * 15
    assert found.facts.wire_up == per_model + 64
    assert found.facts.wire_down == per_model


@pytest.mark.parametrize("given", [{"optimizer": optax.sgd(0.3, momentum=0.5)}, {"momentum": 0.5}])
def test_any_optax_optimiser_takes_the_local_steps_and_begins_anew_in_each_round(problem, given) -> None:
    method = A.FedBC(**WORK, tolerance=TOLERANCE, dual_lr=0.2, **given)
    everybody = cohort(1.0, problem)
    expected = fedbc(
        problem,
        ROUNDS,
        STEPS,
        4,
        everybody,
        tolerance=TOLERANCE,
        tolerance_lr=0.2,
        momentum=0.5,
        seed=SEED,
        start=START,
    )
    assert_is(run(problem, method), expected)


@pytest.mark.full
@pytest.mark.parametrize("deploy", ["global", "own"])
def test_perfedbc_is_algorithm_3(problem, deploy) -> None:
    work = {**WORK, "inner_lr": 0.2, "inner_steps": 2}
    method = A.PerFedBC(**work, tolerance=TOLERANCE, dual_lr=0.2, multiplier=0.3, deploy=deploy)
    with jax.enable_x64(True):
        expected = fedbc(
            problem,
            ROUNDS,
            STEPS,
            4,
            cohort(3, problem),
            multiplier=0.3,
            tolerance=TOLERANCE,
            tolerance_lr=0.2,
            inner=(2, 0.2),
            seed=SEED,
            start=START,
        )
    assert_is(run(problem, method, participation=3), expected)


def quadratic_problem(seed: int = 3):
    fed = pf.data.load("quadratics", clients=5, dim=3, mu=0.4, L=1.0, zeta=2.0, seed=seed)
    rows = [fed.train.of(i) for i in range(5)]
    H = np.array([x.T @ x / len(x) for x, _ in rows])
    c = np.array([np.linalg.solve(h, x.T @ y / len(x)) for h, (x, y) in zip(H, rows, strict=True)])
    return pf.Problem(fed, pf.models.linear(bias=False), "squared"), H, c


@pytest.mark.parametrize("start", few(["server", "own"], "server"))
def test_with_exact_local_solves_the_fixed_point_satisfies_the_kkt_conditions(start) -> None:
    """Against a solution found another way: trust-region steps by bisection, and descent on z."""
    problem, H, c = quadratic_problem()
    tolerance = np.array([0.3, 0.6, 0.2, 30.0, 0.5])  # the fourth constraint is slack
    z, x, lam = constrained(H, c, tolerance)
    method = A.FedBC(
        lr=0.3, local_steps=150, batch="full", tolerance=tolerance.tolist(), grow=False, dual_lr=0.2, multiplier=0.5,
        start=start,
    )  # fmt: skip
    found = run(problem, method, rounds=3000, init="zeros")
    own, multiplier = found.client_state.own.model["w"], found.client_state.bond.multiplier
    shared = found.global_params["w"]
    distance = np.sum((own - shared) ** 2, axis=1)
    gradient = np.einsum("ijk,ik->ij", H, own - c)
    assert np.abs(gradient + 2 * multiplier[:, None] * (own - shared)).max() < 1e-8  # stationary in x_i
    assert np.abs(multiplier @ (own - shared)).max() < 1e-8  # stationary in z: the weighted mean
    assert (distance - tolerance).max() < 1e-8  # feasible
    assert np.abs(multiplier * (distance - tolerance)).max() < 1e-8  # complementary slackness
    assert multiplier.min() == 0.0 == multiplier[3]
    np.testing.assert_allclose(shared, z, atol=1e-7)
    np.testing.assert_allclose(own, x, atol=1e-7)
    np.testing.assert_allclose(multiplier, lam, atol=1e-7)


@pytest.mark.parametrize(
    ("participation", "weighting", "theirs"), [(3, "multiplier", "uniform"), (1.0, "size", "size")]
)
def test_with_a_fixed_multiplier_of_half_mu_it_is_fedprox(problem, participation, weighting, theirs) -> None:
    bound = A.FedBC(**WORK, multiplier=0.35, dual_lr=0.0, weighting=weighting)
    prox = A.FedProx(**WORK, mu=0.7, weighting=theirs)
    found, expected = (run(problem, method, participation=participation) for method in (bound, prox))
    np.testing.assert_allclose(matrix(found.global_params), matrix(expected.global_params), atol=1e-10)


@pytest.mark.full
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
def test_where_all_multipliers_are_zero_it_is_fedavg_with_uniform_weights(problem, dtype, tolerance) -> None:
    average = run(problem, A.FedAvg(**WORK, weighting="uniform"), participation=3, dtype=dtype)
    for method in (A.FedBC(**WORK, dual_lr=0.0), A.FedBC(**WORK, tolerance=1e6, dual_lr=1.0)):
        free = run(problem, method, participation=3, dtype=dtype)
        np.testing.assert_array_equal(free.client_state.bond.multiplier, 0.0)
        np.testing.assert_allclose(matrix(free.global_params), matrix(average.global_params), atol=tolerance)


def test_a_client_without_a_multiplier_has_no_weight_beside_one_that_has(problem) -> None:
    """Only site-1 may not leave z, so that the average is its model to the last digit."""
    tolerance = [1e6, 0.0, 1e6, 1e6, 1e6, 1e6]
    found = run(problem, A.FedBC(**WORK, tolerance=tolerance, grow=False), rounds=1)
    np.testing.assert_array_equal(found.client_state.bond.multiplier > 0, [False, True, False, False, False, False])
    np.testing.assert_allclose(matrix(found.global_params), matrix(found.personal(1)), rtol=1e-15)


def test_the_multipliers_never_leave_their_interval(problem) -> None:
    """With a stepsize that would throw them far beyond both ends."""
    method = A.FedBC(**WORK, tolerance=0.2, grow=False, dual_lr=0.9, multiplier_min=0.05, multiplier_max=0.2)
    simulation = Simulation(problem, method, participation=3, seed=SEED, dtype="float64")
    simulation.prepare()
    seen = [simulation.client_state.bond.multiplier]
    for _ in range(12):
        simulation.advance(1)
        seen.append(simulation.client_state.bond.multiplier)
    assert np.min(seen) == 0.05  # also at the start, which is 0 by default
    assert np.max(seen) == 0.2
    assert {0.05, 0.2} < set(np.ravel(seen).tolist())  # and inside, too


def test_the_bonds_of_absent_clients_do_not_move(problem) -> None:
    """x_i, lambda_i and gamma_i; those of participants do."""
    simulation = Simulation(problem, A.FedBC(**WORK, multiplier=0.1), participation=2, seed=SEED, dtype="float64")
    simulation.prepare()
    for round in range(3):
        before = simulation.client_state
        simulation.advance(1)
        after = simulation.client_state
        here = cohort(2, problem)(round)
        np.testing.assert_array_equal(after.own.met, before.own.met | np.isin(np.arange(6), here))
        kept = [(state.own.model, state.bond) for state in (before, after)]
        for old, new in zip(*map(jax.tree.leaves, kept), strict=True):
            still = np.array([np.array_equal(old[i], new[i]) for i in range(6)])
            np.testing.assert_array_equal(np.flatnonzero(~still), here)


def test_tolerances_come_from_a_number_a_list_or_a_column(problem) -> None:
    for given, expected in ((0.3, [0.3] * 6), (TOLERANCE, TOLERANCE)):
        simulation = Simulation(problem, A.FedBC(tolerance=given), dtype="float64")
        simulation.prepare()
        np.testing.assert_array_equal(simulation.client_state.bond.tolerance, expected)
    quadratics, _, _ = quadratic_problem()
    simulation = Simulation(quadratics, A.PerFedBC(tolerance="L"), dtype="float64")
    simulation.prepare()
    np.testing.assert_array_equal(simulation.client_state.bond.tolerance, quadratics.federation.columns["L"])


def test_finetuning_takes_its_steps_from_the_clients_own_model_on_training_rows(problem) -> None:
    tuned = run(problem, A.FedBC(**FULL, adapt_steps=2, adapt_lr=0.7))
    (everyone,) = tuned.personal_blocks()
    for i, f in enumerate(clients_of(problem)):
        x = one(tuned.client_state.own.model, i)
        for _ in range(2):
            x = x - 0.7 * f.grad(x)
        np.testing.assert_allclose(one(everyone, i), x, atol=1e-10)
    np.testing.assert_allclose(matrix(tuned.personal(2)), one(everyone, 2), atol=1e-12)


@pytest.mark.full
@pytest.mark.parametrize("deploy", ["global", "own"])
def test_perfedbc_adapts_the_global_model_or_the_clients_own(problem, deploy) -> None:
    tuned = run(problem, A.PerFedBC(**FULL, inner_lr=0.7, adapt_steps=2, deploy=deploy))
    (everyone,) = tuned.personal_blocks()
    for i, f in enumerate(clients_of(problem)):
        x = matrix(tuned.global_params) if deploy == "global" else one(tuned.client_state.own.model, i)
        for _ in range(2):
            x = x - 0.7 * f.grad(x)
        np.testing.assert_allclose(one(everyone, i), x, atol=1e-10)


def test_a_newcomer_to_perfedbc_does_a_round_and_adapts(problem) -> None:
    method = A.PerFedBC(**FULL, inner_lr=0.2, deploy="own")
    with jax.enable_x64(True):
        f = problem.objective("site-3", "train")
        server = method.init_server({"w": START[:-1], "b": START[-1]})._replace(multiplier=0.4)
        found = method.adapt(server, f, jax.random.key(0))
    client, x = clients_of(problem)[3], START
    for _ in range(3):
        inner = x - 0.2 * (client.grad(x) + 0.8 * (x - START))
        x = x - 0.3 * client.grad(inner)
    np.testing.assert_allclose(matrix(found), x - 0.2 * client.grad(x), atol=1e-10)


def test_a_newcomer_is_bound_by_the_others_mean_multiplier(problem) -> None:
    method = A.FedBC(**FULL, adapt_steps=1)
    with jax.enable_x64(True):
        f = problem.objective("site-3", "train")
        params = {"w": START[:-1], "b": START[-1]}
        server = method.init_server(params)._replace(multiplier=0.4)
        found = method.adapt(server, f, jax.random.key(0))
    client, x = clients_of(problem)[3], START
    for pull in (0.8, 0.8, 0.8, 0.0):  # K = 3 steps on the Lagrangian, and one of fine-tuning
        x = x - 0.3 * (client.grad(x) + pull * (x - START))
    np.testing.assert_allclose(matrix(found), x, atol=1e-10)


def test_sweeping_the_tolerance_compiles_nothing_anew(problem) -> None:
    run(problem, A.FedBC(**WORK, tolerance=0.1, grow=False))
    assert run(problem, A.FedBC(**WORK, tolerance=0.2, grow=False, dual_lr=0.5)).compile_seconds == 0


@pytest.mark.parametrize("cls", [A.FedBC, A.PerFedBC])
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tolerance": -0.1}, "tolerance must be at least 0, found -0.1"),
        ({"tolerance": [0.1, 0.2]}, "tolerance has 2 values, expected one for each of 6 clients"),
        ({"tolerance": [0.1, 0.2, 0.3, -1.0, 0.2, 0.1]}, "must be at least 0, found -1 for client 'site-3'"),
        ({"tolerance": "size"}, "tolerance: 'size' is not a column of the data"),
        ({"dual_lr": -1.0}, "dual_lr must be at least 0, found -1.0"),
        ({"tolerance_lr": "fast"}, "tolerance_lr must be a number, found 'fast'"),
        ({"multiplier_min": 0.5, "multiplier_max": 0.2}, "multiplier_max must be at least multiplier_min = 0.5"),
        ({"weighting": "lambda"}, "weighting must be one of multiplier, size, uniform; found 'lambda'"),
        ({"grow": 1}, "grow must be true or false, found 1"),
    ],
)
def test_refusals_name_the_hyper_parameter(problem, cls, options, sentence) -> None:
    with pytest.raises(pf.PolyfedError, match=sentence):
        Simulation(problem, cls(**options))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"start": "z"}, "start must be one of server, own; found 'z'"),
        ({"optimizer": "addam"}, "unknown optimizer 'addam'; did you mean 'adam'"),
        ({"optimizer": 3}, "optimizer must be a name or an Optax transformation, found 3"),
        ({"optimizer": optax.lbfgs()}, "optimizer asks for more than a gradient in a step .*'value_fn'"),
        ({"adapt_steps": -1}, "adapt_steps must be a whole number, at least 0, found -1"),
        ({"adapt_lr": 0.0}, "adapt_lr must be above 0, found 0.0"),
    ],
)
def test_refusals_of_fedbc(problem, options, sentence) -> None:
    with pytest.raises(pf.PolyfedError, match=sentence):
        Simulation(problem, A.FedBC(**options))


@pytest.mark.full
def test_the_published_protocol_adapts_on_test_rows_only_where_it_is_asked_for(problem) -> None:
    """One step from x_i on the client's test rows, in what is measured; the deployed models stay as they were."""
    method = A.FedBC(**FULL, adapt_steps=1, adapt_lr=0.7)
    honest, leaking = run(problem, method), run(problem, method, adapt_on_test=True)
    np.testing.assert_array_equal(honest.personal(1)["w"], leaking.personal(1)["w"])
    losses = leaking.measure()["personal"]["test"]["loss"]
    assert np.abs(losses - honest.measure()["personal"]["test"]["loss"]).min() > 1e-4
    x, y = problem.federation.test.of(1)
    f = Client(x, y, 3, problem.l2)
    own = one(leaking.client_state.own.model, 1)
    adapted = own - 0.7 * f.grad(own)
    assert losses[1] == pytest.approx(f.loss(adapted) - 0.5 * problem.l2 * np.sum(adapted**2), abs=1e-10)
    with pytest.raises(pf.PolyfedError, match="adapt_on_test needs test rows of every client"):
        Simulation(quadratic_problem()[0], method, adapt_on_test=True)
