"""SCAFFOLD against a NumPy loop, and the drift that it corrects."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import polyfed as pf
from polyfed.algorithms.shared.trust import SLACK
from tests.algorithms.comparison import SEED, START, cohort, matrix, trained
from tests.algorithms.references import baselines
from tests.conftest import few

A = pf.algorithms
ROUNDS, STEPS = 4, 5
WORK = {"lr": 0.3, "local_steps": STEPS}
BATCHES = few([("full", None), (4, 4)], (4, 4))


def run(problem, method, **options):
    return trained(problem, method, ROUNDS, **options)


@pytest.mark.parametrize(("batch", "rows"), BATCHES)
@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("participation", few([1.0, 3], 3))
@pytest.mark.parametrize("trust", ["never", "always"])
def test_scaffold_is_karimireddys_algorithm(problem, option, batch, rows, participation, trust) -> None:
    method = A.Scaffold(**WORK, batch=batch, option=option, server_lr=0.8, trust=trust)
    result = run(problem, method, participation=participation)
    members, slack = cohort(participation, problem), SLACK if trust == "always" else None
    x, c, c_of = baselines.scaffold(
        problem, ROUNDS, 0.3, STEPS, rows, option, members, 0.8, start=START, seed=SEED, slack=slack
    )
    np.testing.assert_allclose(matrix(result.global_params), x, atol=1e-12)
    np.testing.assert_allclose(matrix(result.server.control), c, atol=1e-12)
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
    average = pf.simulate(problem, A.FedAvg(**work, weighting="uniform"), **options)
    corrected = pf.simulate(problem, A.Scaffold(**work), **options)
    assert np.linalg.norm(average.global_params["w"] - optimum) > 1e-2
    assert np.linalg.norm(corrected.global_params["w"] - optimum) < 1e-9
