"""Per-FedAvg, FOMAML and Reptile: NumPy loops, reductions, refusals."""

from __future__ import annotations

import jax
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


@pytest.mark.parametrize(
    ("variant", "batch", "rows"),
    [("first-order", "full", None), *((v, *rows) for v in ("hessian-free", "exact") for rows in BATCHES)],
)
def test_perfedavg_is_fallahs_algorithm(problem, variant, batch, rows) -> None:
    method = A.PerFedAvg(**WORK, batch=batch, variant=variant, inner_lr=0.2, delta=0.01)
    found = matrix(run(problem, method).global_params)
    with jax.enable_x64(True):
        expected = baselines.perfedavg(problem, ROUNDS, 0.3, 0.2, STEPS, rows, variant, 0.01, start=START, seed=SEED)
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_the_variants_differ_by_the_hessian(problem) -> None:
    """HF and exact agree to the order of delta^2; FO is off by the inner step times the curvature."""
    first, free, exact = (
        matrix(run(problem, A.PerFedAvg(**WORK, batch="full", variant=variant, inner_lr=0.2)).global_params)
        for variant in ("first-order", "hessian-free", "exact")
    )
    assert np.abs(free - exact).max() < 1e-6
    assert np.abs(first - exact).max() > 1e-3


@pytest.mark.parametrize("variant", ["first-order", "hessian-free", "exact"])
def test_perfedavg_without_adaptation_is_fedavg(problem, variant) -> None:
    meta = run(problem, A.PerFedAvg(**WORK, batch=4, variant=variant, inner_lr=0.0), participation=3)
    average = run(problem, A.FedAvg(**WORK, batch=4, weighting="uniform"), participation=3)
    np.testing.assert_allclose(matrix(meta.global_params), matrix(average.global_params), atol=1e-10)


@pytest.mark.parametrize(("batch", "rows"), BATCHES)
def test_fomaml_sends_the_gradient_after_adaptation(problem, batch, rows) -> None:
    found = run(problem, A.FOMAML(lr=0.5, inner_lr=0.2, inner_steps=2, batch=batch)).global_params
    expected = baselines.fomaml(problem, ROUNDS, 0.5, 0.2, 2, rows, start=START, seed=SEED)
    np.testing.assert_allclose(matrix(found), expected, atol=1e-10)


def test_fomaml_without_adaptation_is_gradient_descent(problem) -> None:
    meta = run(problem, A.FOMAML(lr=0.5, inner_lr=0.0, batch="full"))
    descent = run(problem, A.FLIX(alpha=1.0, lr=0.5))
    np.testing.assert_allclose(matrix(meta.global_params), matrix(descent.global_params), atol=1e-10)


@pytest.mark.parametrize(("batch", "rows"), BATCHES)
def test_reptile_goes_part_of_the_way(problem, batch, rows) -> None:
    found = run(problem, A.Reptile(**WORK, batch=batch, server_lr=0.4)).global_params
    np.testing.assert_allclose(
        matrix(found), baselines.reptile(problem, ROUNDS, 0.3, 0.4, STEPS, rows, start=START, seed=SEED), atol=1e-10
    )


def test_reptile_all_the_way_is_fedavg(problem) -> None:
    meta = run(problem, A.Reptile(**WORK, batch=4, server_lr=1.0), participation=3)
    average = run(problem, A.FedAvg(**WORK, batch=4, weighting="uniform"), participation=3)
    np.testing.assert_allclose(matrix(meta.global_params), matrix(average.global_params), atol=1e-10)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("perfedavg", {"variant": "second"}, "perfedavg: variant must be one of first-order, hessian-free, exact"),
        ("perfedavg", {"inner_lr": -0.1}, "perfedavg: inner_lr must be at least 0"),
        ("perfedavg", {"adapt_steps": 0}, "perfedavg: adapt_steps must be a whole number, at least 1"),
        ("fomaml", {"inner_steps": 0}, "fomaml: inner_steps must be a whole number, at least 1"),
        ("fomaml", {"batch": "all"}, "fomaml: batch must be a whole number, at least 1, or 'full'"),
        ("reptile", {"server_lr": 0.0}, "reptile: server_lr must be above 0"),
    ],
)
def test_bad_input_is_refused_by_name(problem, name, options, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        Simulation(problem, A.REGISTRY[name](**options))
