"""pFedMe: a NumPy loop, the solution on quadratics, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from polyfed.engine.simulation import Simulation
from tests.algorithms.comparison import SEED, START, cohort, matrix, trained
from tests.algorithms.references import baselines
from tests.conftest import few

A = pf.algorithms
ROUNDS, STEPS = 3, 4
WORK = {"lr": 0.3, "local_steps": STEPS}
BATCHES = [("full", None), (4, 4)]


def run(problem, method, **options):
    return trained(problem, method, ROUNDS, **options)


@pytest.mark.parametrize(("batch", "rows", "participation"), few([("full", None, 1.0), (4, 4, 3)], (4, 4, 3)))
def test_pfedme_is_dinhs_algorithm(problem, batch, rows, participation) -> None:
    method = A.PFedMe(lr=0.1, local_steps=STEPS, batch=batch, penalty=5.0, inner_steps=3, inner_lr=0.08, beta=0.7)
    result = run(problem, method, participation=participation)
    members = cohort(participation, problem)
    w, thetas = baselines.pfedme(problem, ROUNDS, 0.1, 0.08, 5.0, 3, STEPS, rows, 0.7, members, start=START, seed=SEED)
    np.testing.assert_allclose(matrix(result.global_params), w, atol=1e-10)
    for i, theta in enumerate(thetas):
        np.testing.assert_allclose(matrix(result.personal(i)), theta, atol=1e-10)


def test_pfedme_minimises_the_mean_of_the_moreau_envelopes() -> None:
    """On quadratics all is known: theta_i = (H_i + lambda)^-1 (m_i + lambda w), and w solves mean(w - theta_i) = 0."""
    fed = pf.data.load("quadratics", clients=4, dim=3, mu=0.1, L=1.0, zeta=2.0, seed=3)
    problem = pf.Problem(fed, pf.models.linear(bias=False), "squared")
    rows = [fed.train.of(i) for i in range(4)]
    inverses = [np.linalg.inv(x.T @ x / len(x) + 2.0 * np.eye(3)) for x, _ in rows]
    moments = [x.T @ y / len(x) for x, y in rows]
    w = np.linalg.solve(4 * np.eye(3) - 2.0 * sum(inverses), sum(h @ m for h, m in zip(inverses, moments, strict=True)))
    method = A.PFedMe(lr=0.5, penalty=2.0, inner_lr=0.3, inner_steps=60, local_steps=1, batch="full")
    result = pf.simulate(problem, method, rounds=300, eval_every=300, dtype="float64")
    np.testing.assert_allclose(result.global_params["w"], w, atol=1e-9)
    for i in range(4):
        np.testing.assert_allclose(result.personal(i)["w"], inverses[i] @ (moments[i] + 2.0 * w), atol=1e-9)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("pfedme", {"penalty": 0.0}, "pfedme: penalty must be above 0"),
        ("pfedme", {"beta": -1.0}, "pfedme: beta must be above 0"),
    ],
)
def test_bad_input_is_refused_by_name(problem, name, options, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        Simulation(problem, A.REGISTRY[name](**options))
