"""A client that joins after training: each method's own rule, from the server's state and the client's rows alone."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
from polyfed.algorithms import REGISTRY
from polyfed.algorithms.shared import newcomer
from polyfed.engine.simulation import Simulation
from polyfed.problem.objective import Batching
from tests.algorithms.comparison import INIT, START, matrix
from tests.algorithms.references import apfl
from tests.algorithms.references.shared import clients_of
from tests.conftest import each_method, few, known, small_method, unequal_clients

A = pf.algorithms
CLIENT = 3


@pytest.fixture(scope="module")
def others() -> pf.Problem:
    """The federation without the client that joins later."""
    clients = unequal_clients()
    del clients[f"site-{CLIENT}"]
    return pf.Problem(pf.Federation.from_arrays(clients, classes=3), pf.models.linear(), "softmax", l2=0.01)


def small(name: str, **options):
    return small_method(name, **known(name, options))


def joined(problem, method, work=None, round: int = 0, server=None, seed: int = 0):
    """The model of site-3, from a server's state: by default the start."""
    with jax.enable_x64(True):
        f = problem.objective(f"site-{CLIENT}", "train")
        f = dataclasses.replace(f, round=jnp.asarray(round))
        server = method.init_server(jax.tree.map(jnp.asarray, INIT)) if server is None else server
        run = jax.jit(lambda server, key: newcomer.model_of(method, server, f, key, work))
        return jax.tree.map(np.asarray, run(server, jax.random.key(seed)))


def descent(problem, lr, steps, start=START, anchor=None, penalty=0.0):
    x, f = start, clients_of(problem)[CLIENT]
    for _ in range(steps):
        x = x - lr * (f.grad(x) + (0.0 if anchor is None else penalty * (x - anchor)))
    return x


@pytest.mark.parametrize("name", each_method(sorted(REGISTRY), ("apfl", "fedbc", "scafflix")))
def test_every_method_adapts_to_a_newcomer_better_than_its_start(problem, others, name) -> None:
    """After training without the client: a model of the right shape, the same each time, better than the start."""
    simulation = Simulation(others, small(name, local_steps=5), dtype="float64")
    simulation.prepare()
    simulation.advance(10)
    server = simulation.server
    found = joined(problem, simulation.method, round=10, server=server)
    assert jax.tree.structure(found) == jax.tree.structure(INIT)
    assert found["w"].dtype == np.float64
    start = clients_of(problem)[CLIENT].loss(np.zeros((5, 3)))
    assert clients_of(problem)[CLIENT].loss(matrix(found)) < start
    again = joined(problem, simulation.method, round=10, server=server)
    np.testing.assert_array_equal(found["w"], again["w"])


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "qfedavg", "minibatchsgd", "reptile"])
def test_a_global_model_is_fine_tuned(problem, name) -> None:
    found = joined(problem, small(name, batch="full", local_steps=4))
    np.testing.assert_allclose(matrix(found), descent(problem, 0.1, 4), atol=1e-10)


def test_the_work_can_be_given(problem) -> None:
    found = joined(problem, small("fedavg"), work=Batching("full", 7))
    np.testing.assert_allclose(matrix(found), descent(problem, 0.1, 7), atol=1e-10)
    epochs = joined(problem, small("fedavg"), work=Batching(4, 1, epochs=2))
    assert np.abs(matrix(epochs) - descent(problem, 0.1, 6)).max() > 1e-6


def test_scaffnew_tunes_with_its_smallest_stepsize(problem) -> None:
    found = joined(problem, A.Scaffnew(lr=[0.3, 0.05, 0.2], p=0.3))
    np.testing.assert_allclose(matrix(found), descent(problem, 0.05, 10), atol=1e-10)


def test_meta_learned_models_take_their_adaptation_steps(problem) -> None:
    for method, steps in ((A.PerFedAvg(inner_lr=0.2, batch="full"), 1), (A.FOMAML(inner_lr=0.2, batch="full"), 5)):
        np.testing.assert_allclose(matrix(joined(problem, method)), descent(problem, 0.2, steps), atol=1e-10)
        assert Simulation(problem, method).facts.refines
    assert not Simulation(problem, A.FedAvg()).facts.refines
    assert not Simulation(problem, A.FedBC()).facts.refines
    assert Simulation(problem, A.FedBC(adapt_steps=1)).facts.refines


@pytest.mark.parametrize("name", ["fedprox", "ditto", "l2gd"])
def test_methods_with_a_pull_hold_the_newcomer_near_the_global_model(problem, name) -> None:
    method = small(name, batch="full", local_steps=10, mu=0.8, penalty=0.8)
    expected = descent(problem, 0.1, 10, START, START, 0.8)
    np.testing.assert_allclose(matrix(joined(problem, method)), expected, atol=1e-10)


def test_pfedme_solves_the_newcomers_proximal_problem(problem) -> None:
    method = A.PFedMe(penalty=3.0, inner_lr=0.1, inner_steps=200, batch="full", local_steps=3)
    theta = matrix(joined(problem, method))
    residual = clients_of(problem)[CLIENT].grad(theta) + 3.0 * (theta - START)
    assert np.abs(residual).max() < 1e-10


@pytest.mark.parametrize("adaptive", ["off", "step", "round"])
def test_apfl_trains_the_newcomers_model_and_weight_by_equation_17(problem, adaptive) -> None:
    method = A.APFL(lr=0.3, alpha=[0.2, 0.6], adaptive=adaptive, batch="full", local_steps=6)
    expected = apfl.newcomer(problem, CLIENT, START, 0.3, 6, 0.4, adaptive != "off")
    np.testing.assert_allclose(matrix(joined(problem, method)), expected, atol=1e-10)


def test_apfl_starts_the_newcomer_at_the_participants_mean_weight(problem, others) -> None:
    """As they have learned it, from whatever they started at; with a fixed weight there is nothing to learn."""
    method = A.APFL(lr=0.3, alpha=[0.2, 0.4, 0.1, 0.5, 0.3], batch="full", local_steps=6, alpha_lr=3.0)
    simulation = Simulation(others, method, dtype="float64")
    simulation.prepare()
    simulation.advance(8)
    learned = np.mean(simulation.client_state.alpha)
    assert abs(learned - 0.3) > 0.01
    assert float(simulation.server.alpha) == pytest.approx(learned, abs=1e-12)
    found = joined(problem, simulation.method, round=8, server=simulation.server)
    w = matrix(simulation.global_params)
    fixed = dataclasses.replace(method, alpha_lr=1e-300)
    expected = joined(problem, fixed, round=8, server=simulation.server)
    v = w.copy()
    for _ in range(6):
        v = v - 0.3 * learned * clients_of(problem)[CLIENT].grad(learned * v + (1 - learned) * w)
    np.testing.assert_allclose(matrix(expected), learned * v + (1 - learned) * w, atol=1e-10)
    assert np.abs(matrix(found) - matrix(expected)).max() > 1e-6


@pytest.mark.parametrize("cls", [A.FLIX, A.DCGD, A.DIANA, A.Scafflix])
def test_mixtures_compute_the_newcomers_local_model_and_mix(problem, cls) -> None:
    own = descent(problem, 0.5, 8000)
    assert np.abs(clients_of(problem)[CLIENT].grad(own)).max() < 1e-11
    method = cls(alpha=0.3)
    np.testing.assert_allclose(matrix(joined(problem, method)), 0.3 * START + 0.7 * own, atol=1e-8)
    given = cls(alpha=[0.2, 0.4], plm_lr=0.5)
    tuned = descent(problem, 0.5, 3)
    found = joined(problem, given, work=Batching("full", 3))
    np.testing.assert_allclose(matrix(found), 0.3 * START + 0.7 * tuned, atol=1e-10)


def test_training_alone_starts_at_the_models_own_start_and_trains_as_long_as_the_others(problem) -> None:
    method = A.Local(lr=pf.Decay(0.3, 0.5), local_steps=4, batch="full")
    expected = np.zeros((5, 3))
    for round in range(3):
        expected = descent(problem, 0.3 * 0.5**round, 4, expected)
    np.testing.assert_allclose(matrix(joined(problem, method, round=3)), expected, atol=1e-10)


def test_the_key_decides_the_batches(problem) -> None:
    method = small("fedavg")
    one, same, other = (joined(problem, method, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one["w"], same["w"])
    assert np.abs(one["w"] - other["w"]).max() > 1e-6


@pytest.mark.full
@pytest.mark.parametrize("name", few(["reptile", "fomaml", "perfedavg", "perfedbc"], "reptile"))
def test_what_meta_learning_deploys_is_adapted_to_the_clients_training_rows(problem, name) -> None:
    """Everywhere that a deployed model shows: one client's, everybody's, and the metrics."""
    found = pf.simulate(problem, small(name), rounds=3, dtype="float64", init=INIT)
    simulation = found.simulation
    assert simulation.facts.personalizes
    one, everyone = simulation.personal(CLIENT), next(simulation.personal_blocks())
    shared = matrix(simulation.global_params)
    np.testing.assert_allclose(everyone["w"][CLIENT], one["w"], atol=1e-12)
    assert np.abs(matrix(one) - shared).max() > 1e-4
    f = clients_of(problem)[CLIENT]
    metrics = simulation.measure()
    loss = metrics["personal"]["train"]["loss"][CLIENT] + metrics["personal"]["train"]["ridge"][CLIENT]
    assert loss == pytest.approx(f.loss(matrix(one)), abs=1e-10)
    assert metrics["global"]["train"]["loss"][CLIENT] != pytest.approx(loss, abs=1e-6)
