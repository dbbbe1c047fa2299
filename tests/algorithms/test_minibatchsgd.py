"""Minibatch SGD: a NumPy loop, reductions, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from polyfed.engine.simulation import Simulation
from tests.algorithms.comparison import SEED, START, matrix, trained
from tests.algorithms.references import baselines
from tests.algorithms.references.shared import clients_of

pytestmark = pytest.mark.full
A = pf.algorithms
ROUNDS, STEPS = 3, 4
WORK = {"lr": 0.3, "local_steps": STEPS}
BATCHES = [("full", None), (4, 4)]


def run(problem, method, **options):
    return trained(problem, method, ROUNDS, **options)


@pytest.mark.parametrize(("batch", "rows"), BATCHES)
def test_minibatch_sgd_takes_all_gradients_at_one_point(problem, batch, rows) -> None:
    found = run(problem, A.MinibatchSGD(**WORK, batch=batch)).global_params
    expected = baselines.minibatchsgd(problem, ROUNDS, 0.3, STEPS, rows, start=START, seed=SEED)
    np.testing.assert_allclose(matrix(found), expected, atol=1e-10)


def test_minibatch_sgd_with_one_batch_is_fedavg_with_one_step(problem) -> None:
    one = {"lr": 0.3, "local_steps": 1, "batch": 4, "weighting": "size"}
    large = run(problem, A.MinibatchSGD(**one), participation=3)
    average = run(problem, A.FedAvg(**one), participation=3)
    np.testing.assert_allclose(matrix(large.global_params), matrix(average.global_params), atol=1e-10)


def test_minibatch_sgd_with_full_batches_is_gradient_descent(problem) -> None:
    w = START
    for _ in range(ROUNDS):
        w = w - 0.3 * np.mean([f.grad(w) for f in clients_of(problem)], axis=0)
    found = run(problem, A.MinibatchSGD(**WORK, batch="full")).global_params
    np.testing.assert_allclose(matrix(found), w, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("minibatchsgd", {"lr": 0.0}, "minibatchsgd: lr must be above 0"),
    ],
)
def test_bad_input_is_refused_by_name(problem, name, options, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        Simulation(problem, A.REGISTRY[name](**options))
