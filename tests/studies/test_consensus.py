"""Consensus error and drift per local step: exact laws, the simulation's own round, and any method."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from polyfed import theory
from polyfed.engine.simulation import Simulation
from polyfed.studies.consensus import Watch
from tests.algorithms.comparison import INIT, START
from tests.algorithms.references.shared import batches, clients_of

A = pf.algorithms
K, ROUNDS, ZETA = 5, 8, 1.3


@pytest.fixture(scope="module")
def two() -> pf.Problem:
    """Proposition 1: (v - (v* -+ zeta))^2 / 2 with v* = 2."""
    fed = pf.data.load("quadratics", spectra=[[1.0], [1.0]], clients=2, dim=1, optima=[[2 - ZETA], [2 + ZETA]])
    return pf.Problem(fed, pf.models.linear(bias=False), "squared")


def test_local_sgd_and_plsgd_follow_their_laws_to_1e_12(two) -> None:
    work = {"local_steps": K, "batch": "full"}
    for method, alpha, lr in (
        (A.FedAvg(lr=0.5, **work), 0.0, 0.5),
        (A.PLSGD(lr=0.25, alpha=1.0, **work), 1.0, 0.25),
        (A.PLSGD(lr=0.25, alpha=0.3, beta=1.5, **work), 0.3, 0.25),
    ):
        found = pf.consensus(two, method, rounds=ROUNDS, dtype="float64")
        law = theory.consensus_plsgd(found["round"], found["step"], lr, alpha, K, ZETA)
        assert len(found) == ROUNDS * (K + 1)
        np.testing.assert_allclose(found["consensus"], law, rtol=0, atol=1e-12)
        steps = found[found["step"] < K]
        np.testing.assert_array_equal(steps["iteration"], np.arange(ROUNDS * K))
        expected = theory.consensus_plsgd_mean(lr, alpha, K, ROUNDS, ZETA)
        assert float(np.mean(steps["consensus"])) == pytest.approx(expected, abs=1e-12)


def test_the_copies_are_those_of_the_round_that_follows(problem) -> None:
    """Batches, sampled clients of unequal size, and as many steps as each has batches."""
    simulation = Simulation(
        problem,
        A.FedAvg(lr=0.3, local_epochs=1, batch=4, weighting="uniform"),
        participation=3,
        seed=5,
        dtype="float64",
    )
    simulation.advance(2)
    before, found = simulation.global_params, Watch(simulation)()
    simulation.advance(1)
    ends = [rows[np.isfinite(rows).all(axis=(1, 2))][-1] for rows in found.copies["w"]]
    np.testing.assert_allclose(np.mean(ends, axis=0), simulation.global_params["w"], atol=1e-13)
    for rows in found.copies["w"]:
        np.testing.assert_array_equal(rows[0], before["w"])
    assert found.consensus[0] < 1e-30
    assert found.drift[0] == 0
    assert len({int(np.isfinite(rows[:, 0, 0]).sum()) for rows in found.copies["w"]}) > 1


def test_a_control_variate_is_in_what_is_noted(problem) -> None:
    """SCAFFOLD's drift after a round, against the NumPy steps of its first one, where all variates are zero."""
    found = pf.consensus(problem, A.Scaffold(lr=0.3, local_steps=3, batch=4), rounds=1, dtype="float64", init=INIT)
    moved, last = [], []
    for m, f in enumerate(clients_of(problem)):
        y = START
        for rows in batches(problem, 0, 0, m, 4, 3):
            y = y - 0.3 * f.grad(y, rows)
        moved.append(np.sum((y - START) ** 2))
        last.append(y)
    assert found["drift"].iloc[-1] == pytest.approx(np.mean(moved), rel=1e-12)
    assert found["consensus"].iloc[-1] == pytest.approx(np.mean(np.sum(np.var(last, axis=0))), rel=1e-12)


@pytest.mark.full
@pytest.mark.parametrize(
    "method",
    [A.Ditto(local_steps=3), A.Scaffnew(lr=0.1, p=0.4), A.L2GD(lr=0.1, p=0.4), A.FedBC(start="own", local_steps=3)],
    ids=lambda method: method.name,
)
def test_any_method_with_local_steps_can_be_watched(problem, method) -> None:
    found = pf.consensus(problem, method, rounds=2, dtype="float64")
    drift = found["drift"].to_numpy()
    assert (drift[found["step"] == 0] == 0).all()
    assert (drift[found["step"] > 0] > 0).all()


def test_methods_that_take_no_local_steps_are_refused(problem) -> None:
    for method in (A.MinibatchSGD(), A.DCGD(alpha=1.0), A.FLIX(alpha=1.0)):
        with pytest.raises(pf.PolyfedError, match="take no local steps"):
            pf.consensus(problem, method, rounds=1)
