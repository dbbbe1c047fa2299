"""PLSGD's quadratics: their noise and constants are what the bounds take them for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polyfed.algorithms import REGISTRY
from polyfed.engine.simulation import Simulation
from polyfed.papers.plsgd.runs import Seeds, constants, noisy_quadratics
from polyfed.problem.batch_constants import gradient_variances
from tests.conftest import few

SPECTRA, OPTIMA = np.array([[0.5, 2.0], [1.0, 1.0], [0.2, 0.4]]), np.array([[1.0, 2.0], [0.0, -1.0], [3.0, 0.0]])


def test_a_rows_gradient_is_the_quadratics_and_noise_of_one_variance_everywhere() -> None:
    problem = noisy_quadratics(SPECTRA, OPTIMA, noise=0.7)
    for client, (h, c) in enumerate(zip(SPECTRA, OPTIMA, strict=True)):
        mean = problem.grad(np.array([5.0, -3.0]), problem.federation.clients[client])
        np.testing.assert_allclose(mean, h * (np.array([5.0, -3.0]) - c), atol=1e-12)
    points = np.array([[[0.0, 0.0], [5.0, -3.0]]] * 3)
    np.testing.assert_allclose(gradient_variances(problem, points), 0.49, rtol=1e-12)


def test_the_constants_are_those_of_the_quadratics() -> None:
    known = constants(SPECTRA, OPTIMA, 0.7, 5, 10)
    common = np.sum(SPECTRA * OPTIMA, axis=0) / np.sum(SPECTRA, axis=0)
    assert (known.L, known.mu, known.radius, known.noise) == (2.0, 0.2, 3.0, 0.7)
    spread = np.mean(np.sum((OPTIMA - common) ** 2, axis=1))
    assert known.heterogeneity**2 / 4 == pytest.approx(spread)


@pytest.mark.full
@pytest.mark.parametrize("name", few(["plsgd", "fedavg", "local"], "plsgd"))
def test_a_seed_gives_the_run_of_a_simulation_with_that_seed(name: str) -> None:
    problem = noisy_quadratics(SPECTRA, OPTIMA, noise=0.7)
    kind: Any = REGISTRY[name]
    method = kind(lr=0.1, local_steps=3, batch=1, replace=True)
    first, second = Seeds(problem, method).distances(OPTIMA, [0, 7], [1, 4])[1]
    alone = Simulation(problem, method, seed=7, dtype="float64", init="zeros", devices=1)
    alone.prepare()
    alone.advance(4)
    models = np.concatenate(list(alone.personal_blocks()))
    assert second == pytest.approx(np.mean(np.sum((models - OPTIMA) ** 2, axis=1)), rel=1e-13)
    assert first != second
