"""FedAvg, FedProx and training alone, against NumPy loops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import polyfed as pf
from tests.algorithms.comparison import SEED, START, matrix, trained
from tests.algorithms.references import baselines
from tests.conftest import few

A = pf.algorithms
ROUNDS, STEPS = 4, 5
WORK = {"lr": 0.3, "local_steps": STEPS}
BATCHES = few([("full", None), (4, 4)], (4, 4))


def run(problem, method, **options):
    return trained(problem, method, ROUNDS, **options)


@pytest.mark.parametrize(("batch", "rows"), BATCHES)
@pytest.mark.parametrize("weighting", ["size", "uniform"])
def test_fedavg_is_mcmahans_algorithm(problem, weighting, batch, rows) -> None:
    result = run(problem, A.FedAvg(**WORK, batch=batch, weighting=weighting))
    expected = baselines.fedavg(problem, ROUNDS, 0.3, STEPS, rows, weighting, start=START, seed=SEED)
    np.testing.assert_allclose(matrix(result.global_params), expected, atol=1e-12)


def test_size_and_uniform_weights_differ_on_unequal_clients(problem) -> None:
    size = run(problem, A.FedAvg(**WORK, weighting="size")).global_params
    uniform = run(problem, A.FedAvg(**WORK, weighting="uniform")).global_params
    assert np.max(np.abs(size["w"] - uniform["w"])) > 1e-3


@pytest.mark.parametrize(("batch", "rows"), BATCHES)
def test_fedprox_pulls_towards_the_global_model(problem, batch, rows) -> None:
    result = run(problem, A.FedProx(**WORK, batch=batch, mu=0.7))
    expected = baselines.fedavg(problem, ROUNDS, 0.3, STEPS, rows, "size", mu=0.7, start=START, seed=SEED)
    np.testing.assert_allclose(matrix(result.global_params), expected, atol=1e-12)


@pytest.mark.parametrize("mu", [0.0, 0.7])
def test_momentum_begins_anew_in_every_round(problem, mu) -> None:
    method = A.FedProx(**WORK, batch=4, mu=mu, momentum=0.5) if mu else A.FedAvg(**WORK, batch=4, momentum=0.5)
    expected = baselines.fedavg(problem, ROUNDS, 0.3, STEPS, 4, "size", mu, 0.5, start=START, seed=SEED)
    np.testing.assert_allclose(matrix(run(problem, method).global_params), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (A.FedAvg(momentum=1.0), "fedavg: momentum must be below 1, found 1.0"),
        (A.QFedAvg(momentum=-0.1), "qfedavg: momentum must be at least 0 and at most 1, found -0.1"),
        (A.FedBC(momentum=0.5, optimizer="adam"), "fedbc: momentum goes with optimizer = 'sgd' alone, found 'adam'"),
    ],
)
def test_momentum_is_a_share(method, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        method.check()


def test_fedprox_without_its_term_is_fedavg(problem) -> None:
    prox = run(problem, A.FedProx(**WORK, batch=4, mu=0.0), participation=3)
    average = run(problem, A.FedAvg(**WORK, batch=4), participation=3)
    np.testing.assert_allclose(matrix(prox.global_params), matrix(average.global_params), atol=1e-14)


@pytest.mark.parametrize(("batch", "rows"), BATCHES)
def test_local_training_is_sgd_of_each_client(problem, batch, rows) -> None:
    result = run(problem, A.Local(**WORK, batch=batch))
    expected = baselines.local(problem, ROUNDS, 0.3, STEPS, rows, start=START, seed=SEED)
    for client in range(len(problem)):
        np.testing.assert_allclose(matrix(result.personal(client)), expected[client], atol=1e-12)


def test_epochs_take_as_many_steps_as_a_client_has_batches(problem) -> None:
    """Two epochs in batches of 4: 2 * ceil(n_i / 4) steps, different for every client."""
    result = run(problem, A.Local(lr=0.3, local_epochs=2, batch=4))
    steps = [2 * -(-int(size) // 4) for size in problem.federation.train.sizes]
    expected = baselines.local(problem, ROUNDS, 0.3, steps, 4, start=START, seed=SEED)
    for client in range(len(problem)):
        np.testing.assert_allclose(matrix(result.personal(client)), expected[client], atol=1e-12)
    assert result.iterations == ROUNDS * 2 * -(-17 // 4)


def test_a_decaying_stepsize_shrinks_by_its_rate_each_round(problem) -> None:
    result = run(problem, A.FedAvg(lr=pf.Decay(0.3, 0.5), local_steps=STEPS, batch="full"))
    w = START
    for round in range(ROUNDS):
        w = baselines.fedavg(problem, 1, 0.3 * 0.5**round, STEPS, None, "size", start=w)
    np.testing.assert_allclose(matrix(result.global_params), w, atol=1e-12)


def test_fedavg_with_adam_follows_optax_on_the_mean_update(problem) -> None:
    result = run(problem, A.FedAvg(**WORK, batch="full", server_optimizer="adam", server_lr=0.05))
    with jax.enable_x64(True):
        adam = optax.adam(0.05)
        w = jnp.asarray(START)
        state = adam.init(w)
        for _ in range(ROUNDS):
            mean = baselines.fedavg(problem, 1, 0.3, STEPS, None, "size", start=np.asarray(w))
            updates, state = adam.update(w - mean, state, w)
            w = optax.apply_updates(w, updates)
    np.testing.assert_allclose(matrix(result.global_params), np.asarray(w), atol=1e-12)
