"""q-FedAvg: a NumPy loop, reductions, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from polyfed.engine.simulation import Simulation
from tests.algorithms.comparison import SEED, START, matrix, trained
from tests.algorithms.references import baselines

pytestmark = pytest.mark.full
A = pf.algorithms
ROUNDS, STEPS = 3, 4
WORK = {"lr": 0.3, "local_steps": STEPS}
BATCHES = [("full", None), (4, 4)]


def run(problem, method, **options):
    return trained(problem, method, ROUNDS, **options)


@pytest.mark.parametrize("q", [0.5, 2.0])
@pytest.mark.parametrize(("batch", "rows"), BATCHES)
def test_qfedavg_is_lis_algorithm(problem, q, batch, rows) -> None:
    found = run(problem, A.QFedAvg(**WORK, batch=batch, q=q)).global_params
    expected = baselines.qfedavg(problem, ROUNDS, 0.3, q, STEPS, rows, start=START, seed=SEED)
    np.testing.assert_allclose(matrix(found), expected, atol=1e-10)


@pytest.mark.parametrize(("smoothness", "momentum"), [(None, None), (7.0, None), (None, 0.5)])
def test_qfedavg_with_q_0_is_fedavg_with_uniform_weights(problem, smoothness, momentum) -> None:
    work = {**WORK, "batch": 4, "momentum": momentum}
    fair = run(problem, A.QFedAvg(**work, q=0.0, smoothness=smoothness), participation=3)
    average = run(problem, A.FedAvg(**work, weighting="uniform"), participation=3)
    np.testing.assert_allclose(matrix(fair.global_params), matrix(average.global_params), atol=1e-10)
    assert fair.bits_up == average.bits_up * 16 / 15


def test_losses_whose_powers_vanish_leave_the_model_where_it_is() -> None:
    """Targets that the start fits exactly: every loss is zero, and so are all powers of it in float32."""
    fed = pf.Federation.from_arrays([(np.ones((4, 2)), np.zeros(4))] * 2, test=0, validation=0)
    problem = pf.Problem(fed, pf.models.linear(bias=False), "squared")
    result = pf.simulate(problem, A.QFedAvg(q=8.0), rounds=2)
    np.testing.assert_array_equal(result.global_params["w"], 0)


def test_a_large_q_evens_the_losses_out(problem) -> None:
    def spread(q: float) -> float:
        method = A.QFedAvg(lr=0.1, local_steps=5, batch="full", q=q)
        rows = pf.simulate(problem, method, rounds=300, eval_every=300, dtype="float64").evaluate("train")
        return float(np.std(rows["global_loss"].to_numpy()))

    assert spread(5.0) < spread(1.0) < spread(0.0)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("qfedavg", {"q": -1.0}, "qfedavg: q must be at least 0"),
    ],
)
def test_bad_input_is_refused_by_name(problem, name, options, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        Simulation(problem, A.REGISTRY[name](**options))
