"""Ditto: a NumPy loop, reductions, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from polyfed.engine.simulation import Simulation
from tests.algorithms.comparison import SEED, START, cohort, matrix, trained
from tests.algorithms.references import baselines

pytestmark = pytest.mark.full
A = pf.algorithms
ROUNDS, STEPS = 3, 4
WORK = {"lr": 0.3, "local_steps": STEPS}
BATCHES = [("full", None), (4, 4)]


def run(problem, method, **options):
    return trained(problem, method, ROUNDS, **options)


@pytest.mark.parametrize(("batch", "rows", "participation"), [("full", None, 1.0), (4, 4, 3)])
def test_ditto_is_lis_algorithm(problem, batch, rows, participation) -> None:
    method = A.Ditto(**WORK, batch=batch, penalty=0.7, personal_lr=0.2, personal_steps=2)
    result = run(problem, method, participation=participation)
    members = cohort(participation, problem)
    w, own = baselines.ditto(problem, ROUNDS, 0.3, 0.2, 0.7, STEPS, 2, rows, members, start=START, seed=SEED)
    np.testing.assert_allclose(matrix(result.global_params), w, atol=1e-10)
    for i, v in enumerate(own):
        np.testing.assert_allclose(matrix(result.personal(i)), v, atol=1e-10)


def test_ditto_is_fedavg_beside_training_alone_where_nothing_pulls(problem) -> None:
    result = run(problem, A.Ditto(**WORK, batch=4, penalty=0.0))
    average = run(problem, A.FedAvg(**WORK, batch=4))
    alone = run(problem, A.Local(**WORK, batch=4))
    np.testing.assert_allclose(matrix(result.global_params), matrix(average.global_params), atol=1e-10)
    for i in range(len(problem)):
        np.testing.assert_allclose(matrix(result.personal(i)), matrix(alone.personal(i)), atol=1e-10)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ditto", {"penalty": float("nan")}, "ditto: penalty must be at least 0"),
        ("ditto", {"personal_steps": 0}, "ditto: personal_steps must be a whole number, at least 1"),
    ],
)
def test_bad_input_is_refused_by_name(problem, name, options, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        Simulation(problem, A.REGISTRY[name](**options))
