"""Every algorithm against a short NumPy loop, in float64, on clients of unequal size."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import polyfed as pf
from polyfed.engine.participation import sampling
from tests.algorithms import reference

ROUNDS, STEPS = 4, 5
WORK = {"lr": 0.3, "local_steps": STEPS}
START = np.random.default_rng(7).normal(size=(5, 3))
INIT = {"w": START[:-1], "b": START[-1]}


def matrix(params) -> np.ndarray:
    return np.vstack([params["w"], params["b"]])


def simulate(problem, algorithm, **options):
    return pf.simulate(problem, algorithm, rounds=ROUNDS, dtype="float64", eval_every=ROUNDS, init=INIT, **options)


@pytest.mark.parametrize("batch", ["full", 4])
@pytest.mark.parametrize("weighting", ["size", "uniform"])
def test_fedavg_is_mcmahans_algorithm(problem, weighting, batch) -> None:
    result = simulate(problem, pf.algorithms.FedAvg(**WORK, batch=batch, weighting=weighting))
    expected = reference.fedavg(problem, ROUNDS, 0.3, STEPS, None if batch == "full" else batch, weighting, start=START)
    np.testing.assert_allclose(matrix(result.global_params), expected, atol=1e-12)


def test_size_and_uniform_weights_differ_on_unequal_clients(problem) -> None:
    size = simulate(problem, pf.algorithms.FedAvg(**WORK, weighting="size")).global_params
    uniform = simulate(problem, pf.algorithms.FedAvg(**WORK, weighting="uniform")).global_params
    assert np.max(np.abs(size["w"] - uniform["w"])) > 1e-3


@pytest.mark.parametrize("batch", ["full", 4])
def test_fedprox_pulls_towards_the_global_model(problem, batch) -> None:
    result = simulate(problem, pf.algorithms.FedProx(**WORK, batch=batch, mu=0.7))
    expected = reference.fedavg(
        problem, ROUNDS, 0.3, STEPS, None if batch == "full" else batch, "size", mu=0.7, start=START
    )
    np.testing.assert_allclose(matrix(result.global_params), expected, atol=1e-12)


def test_fedprox_without_its_term_is_fedavg(problem) -> None:
    prox = simulate(problem, pf.algorithms.FedProx(**WORK, batch=4, mu=0.0), participation=3)
    average = simulate(problem, pf.algorithms.FedAvg(**WORK, batch=4), participation=3)
    np.testing.assert_allclose(matrix(prox.global_params), matrix(average.global_params), atol=1e-14)


@pytest.mark.parametrize("batch", ["full", 4])
def test_local_training_is_sgd_of_each_client(problem, batch) -> None:
    result = simulate(problem, pf.algorithms.Local(**WORK, batch=batch))
    expected = reference.local(problem, ROUNDS, 0.3, STEPS, None if batch == "full" else batch, start=START)
    for client in range(len(problem)):
        np.testing.assert_allclose(matrix(result.personal(client)), expected[client], atol=1e-12)


@pytest.mark.parametrize("batch", ["full", 4])
@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("participation", [1.0, 3])
def test_scaffold_is_karimireddys_algorithm(problem, option, batch, participation) -> None:
    method = pf.algorithms.Scaffold(**WORK, batch=batch, option=option, server_lr=0.8)
    result = simulate(problem, method, participation=participation, seed=5)
    plan = sampling(participation, len(problem))

    def cohort(round: int) -> list[int]:
        if plan.full:
            return list(range(len(problem)))
        clients, taken, _ = plan.cohort(jnp.uint32(5), jnp.int32(round), jnp.arange(plan.capacity))
        assert bool(jnp.all(taken))
        return sorted(int(c) for c in clients)

    with jax.enable_x64(True):
        x, c, c_of = reference.scaffold(
            problem, ROUNDS, 0.3, STEPS, None if batch == "full" else batch, option, cohort, 0.8, seed=5, start=START
        )
    np.testing.assert_allclose(matrix(result.global_params), x, atol=1e-12)
    np.testing.assert_allclose(matrix(result.simulation.server.control), c, atol=1e-12)
    for client in range(len(problem)):
        found = jax.tree.map(lambda leaf, i=client: leaf[i], result.client_state)
        np.testing.assert_allclose(matrix(found), c_of[client], atol=1e-12)


def test_scaffold_corrects_drift_where_fedavg_does_not() -> None:
    """On quadratics with different optima and curvatures, local steps bias FedAvg's fixed point, not SCAFFOLD's."""
    fed = pf.data.load("quadratics", clients=4, dim=3, mu=0.1, L=1.0, zeta=2.0, seed=3)
    problem = pf.Problem(fed, pf.models.linear(bias=False), "squared")
    hessians = [fed.train.of(i)[0].T @ fed.train.of(i)[0] / len(fed.train.of(i)[0]) for i in range(4)]
    moments = [fed.train.of(i)[0].T @ fed.train.of(i)[1] / len(fed.train.of(i)[0]) for i in range(4)]
    optimum = np.linalg.solve(sum(hessians), sum(moments))
    options = {"rounds": 600, "eval_every": 600, "dtype": "float64"}
    work = {"lr": 0.3, "local_steps": 10, "batch": "full"}
    average = pf.simulate(problem, pf.algorithms.FedAvg(**work, weighting="uniform"), **options)
    corrected = pf.simulate(problem, pf.algorithms.Scaffold(**work), **options)
    assert np.linalg.norm(average.global_params["w"] - optimum) > 1e-2
    assert np.linalg.norm(corrected.global_params["w"] - optimum) < 1e-9


def test_fedavg_with_adam_follows_optax_on_the_mean_update(problem) -> None:
    result = simulate(problem, pf.algorithms.FedAvg(**WORK, batch="full", server_optimizer="adam", server_lr=0.05))
    with jax.enable_x64(True):
        adam = optax.adam(0.05)
        w = jnp.asarray(START)
        state = adam.init(w)
        for _ in range(ROUNDS):
            mean = reference.fedavg(problem, 1, 0.3, STEPS, None, "size", start=np.asarray(w))
            updates, state = adam.update(w - mean, state, w)
            w = optax.apply_updates(w, updates)
    np.testing.assert_allclose(matrix(result.global_params), np.asarray(w), atol=1e-12)


def test_a_decaying_stepsize_shrinks_by_its_rate_each_round(problem) -> None:
    result = simulate(problem, pf.algorithms.FedAvg(lr=pf.Decay(0.3, 0.5), local_steps=STEPS, batch="full"))
    w = START
    for round in range(ROUNDS):
        w = reference.fedavg(problem, 1, 0.3 * 0.5**round, STEPS, None, "size", start=w)
    np.testing.assert_allclose(matrix(result.global_params), w, atol=1e-12)


def test_epochs_take_as_many_steps_as_a_client_has_batches(problem) -> None:
    """Two epochs in batches of 4: 2 * ceil(n_i / 4) steps, different for every client."""
    result = simulate(problem, pf.algorithms.Local(lr=0.3, local_epochs=2, batch=4))
    steps = [2 * -(-int(size) // 4) for size in problem.federation.train.sizes]
    expected = reference.local(problem, ROUNDS, 0.3, steps, 4, start=START)
    for client in range(len(problem)):
        np.testing.assert_allclose(matrix(result.personal(client)), expected[client], atol=1e-12)
    assert result.history["iterations"].iloc[-1] == ROUNDS * 2 * -(-17 // 4)
