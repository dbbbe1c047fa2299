"""FLIX, DCGD, DIANA, Scaffnew and Scafflix together: their reductions, and the solution that they share."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import polyfed as pf
from tests.algorithms.logistic import ALPHA, WEIGHTS, history, logistic_problem, run
from tests.algorithms.references.flix import local_models
from tests.conftest import few

A = pf.algorithms


@pytest.fixture(scope="module")
def problem() -> pf.Problem:
    return logistic_problem()


@pytest.fixture(scope="module")
def own(problem) -> np.ndarray:
    return local_models(problem)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(A.FLIX(alpha=1.0), A.DCGD(alpha=1.0), marks=pytest.mark.full),
        pytest.param(A.FLIX(alpha=WEIGHTS), A.DCGD(alpha=WEIGHTS), marks=pytest.mark.full),
        (A.FLIX(alpha=WEIGHTS), A.DIANA(alpha=WEIGHTS)),
        pytest.param(A.FLIX(alpha=WEIGHTS), A.DIANA(alpha=WEIGHTS, memory="gradient"), marks=pytest.mark.full),
        (A.FLIX(alpha=WEIGHTS), A.DCGD(alpha=WEIGHTS, compressor={"name": "rand_k", "k": 3})),
        (A.Scafflix(alpha=1.0, p=0.3), A.Scaffnew(p=0.3)),
        pytest.param(A.Scafflix(alpha=1.0, p=0.3, lr=0.2), A.Scaffnew(p=0.3, lr=0.2), marks=pytest.mark.full),
        pytest.param(A.Scaffnew(p=0.3, lr=[0.2] * 5), A.Scaffnew(p=0.3, lr=0.2), marks=pytest.mark.full),
        (A.Scaffnew(p=1.0, lr=0.2), A.FLIX(alpha=1.0, lr=0.2)),
        (A.FLIX(alpha=1.0, lr=0.2), A.FedAvg(lr=0.2, local_steps=1, batch="full", weighting="uniform")),
    ],
    ids=lambda method: method.name,
)
def test_reductions_hold_exactly(problem, one, other) -> None:
    first, second = run(problem, one, 12, seed=3), run(problem, other, 12, seed=3)
    np.testing.assert_allclose(first.global_params["w"], second.global_params["w"], atol=1e-10)


@pytest.mark.full
def test_alpha_0_is_purely_local_and_sends_nothing(problem, own) -> None:
    for method in (A.FLIX(alpha=0.0), A.Scafflix(alpha=0.0, p=0.5), A.DIANA(alpha=0.0), A.DCGD(alpha=0.0)):
        result = run(problem, method, 5)
        assert result.bits_up == result.bits_down == 0
        for client in range(5):
            np.testing.assert_allclose(result.personal(client)["w"], own[client], atol=1e-11)


def test_a_client_with_alpha_0_among_others_is_left_in_peace(problem, own) -> None:
    alpha = [0.5, 0.0, 0.5, 0.5, 0.5]
    for method in (A.FLIX(alpha=alpha), A.Scafflix(alpha=alpha, p=0.4)):
        result = run(problem, method, 5)
        np.testing.assert_allclose(result.personal(1)["w"], own[1], atol=1e-11)
        numbers = 3 + (method.name == "scafflix")  # a weight travels with Scafflix's iterates
        assert result.bits_up == 5 * 4 * 64 * numbers


@pytest.mark.full
def test_every_solver_agrees_on_the_solution(problem) -> None:
    """Unequal alpha: gradient norm 1e-12 for the reference, 1e-9 between the solvers; the gap is never negative."""
    solution = problem.solve(ALPHA)
    assert solution.grad_norm <= 1e-12
    rand = {"name": "rand_k", "k": 2}
    methods = (A.FLIX(alpha=WEIGHTS), A.Scafflix(alpha=WEIGHTS), A.DIANA(alpha=WEIGHTS, compressor=rand))
    more = (A.Scafflix(alpha=WEIGHTS, control="gradient"), A.Scafflix(alpha=WEIGHTS, steps="fixed"))
    for method in (*methods, *more, A.FLIX(alpha=WEIGHTS, start="average")):
        result = pf.simulate(problem, method, rounds=3000, dtype="float64", eval_every=100, init="ones")
        np.testing.assert_allclose(result.global_params["w"], solution.params["w"], atol=1e-9)
        assert min(row["gap"] for row in result.rows) >= 0
        assert max(result.rows[-1][name] for name in ("gap", "grad_norm2", "distance")) <= 1e-13


@pytest.mark.parametrize("alpha", few([1.0, 0.1, 0.01], 1.0))
@pytest.mark.parametrize(
    ("make", "every"),
    [(A.FLIX, 1), (A.Scafflix, 1), (partial(A.DIANA, compressor={"name": "rand_k", "k": 2}), 5)],
)
def test_convergence_is_linear_to_the_last_digits_at_every_alpha(problem, make, every, alpha) -> None:
    """From 1e-2 of the start down to 1e-12, log f - f* falls on a line; i-Scaffnew is Scafflix at alpha = 1."""
    problem.solve(alpha)
    gap = history(problem, make(alpha=alpha), 200 * every, every)["gap"].to_numpy()
    assert (gap >= 0).all()
    assert gap[-1] <= 1e-12
    level = np.log10(np.maximum(gap, 1e-300))
    falling = np.flatnonzero((gap < 1e-2 * gap[0]) & (gap > 1e-12 * gap[0]))
    half = len(falling) // 2
    early, late = (np.polyfit(part, level[part], 1)[0] for part in (falling[:half], falling[half:]))
    assert early < 0
    assert late < 0.4 * early  # no sublinear tail


@pytest.mark.parametrize(
    ("method", "theorem"),
    [
        (A.FLIX(alpha=1.0, lr=5.0), "Theorem 2"),
        (A.DCGD(alpha=1.0, lr=5.0), "Theorem 4"),
        (A.DIANA(alpha=1.0, lr=5.0), "Theorem 5"),
        (A.Scaffnew(lr=5.0, p=0.5), "Theorem 1"),
    ],
)
def test_a_stepsize_above_the_theorems_limit_is_a_warning_that_names_it(problem, method, theorem) -> None:
    with pytest.warns(UserWarning, match=rf"lr = 5 is above \d.*, the largest that {theorem} allows"):
        run(problem, method, 1)
