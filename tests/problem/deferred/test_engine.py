"""Deferred weights in the engine: every method finds the same numbers, and a CPU keeps ordinary loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
import pytest

import polyfed as pf
from polyfed.engine.simulation import Simulation
from polyfed.problem import deferred
from polyfed.problem.deferred.plan import Deferral
from polyfed.problem.deferred.run import Deferred
from polyfed.problem.objective import Objective
from tests.conftest import each_method, small_method

LINEAR = {
    "ditto",
    "fedavg",
    "fedbc",
    "fedprox",
    "fomaml",
    "localsgd",
    "perfedavg",
    "perfedbc",
    "plsgd",
    "qfedavg",
    "reptile",
    "scaffold",
}
"""The methods whose local steps are so many plain ones, whatever they start from and are pulled to."""


def problem(sizes: Sequence[int] = (12, 12, 12)) -> pf.Problem:
    rng = np.random.default_rng(0)
    rows = [(rng.normal(size=(n, 40)).astype(np.float32), rng.integers(0, 3, n)) for n in sizes]
    return pf.Problem(pf.Federation.from_arrays(rows, classes=3, validation=0, test=0), pf.models.mlp([23]))


def states(method, sizes: Sequence[int] = (12, 12, 12)) -> list[np.ndarray]:
    simulation = Simulation(problem(sizes), method, dtype="float64", devices=1)
    simulation.prepare()
    simulation.advance(2)
    return [*map(np.asarray, jax.tree.leaves((simulation.server, simulation.client_state)))]


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> list[Deferred]:
    """Defer all that can be deferred, as on an accelerator; the loops that were deferred."""
    train, run, found = Objective.train, Deferred.run, []

    def as_there(self, *given, **options):
        return train(dataclasses.replace(self, platform="tpu"), *given, **options)

    def noted(self):
        found.append(self)
        return run(self)

    monkeypatch.setattr(Objective, "train", as_there)
    monkeypatch.setattr(Deferred, "run", noted)
    monkeypatch.setattr(Deferral, "gains", lambda plan, steps: True)
    return found


@pytest.mark.parametrize("name", each_method(sorted(LINEAR)))
def test_a_method_finds_the_same_numbers(name: str, loops: list[Deferred], monkeypatch) -> None:
    method = small_method(name)
    ours = states(method)
    assert loops
    monkeypatch.setattr(deferred, "loop", lambda steps, body, carry, platform: jax.lax.fori_loop(0, steps, body, carry))
    loops.clear()
    for mine, usual in zip(ours, states(method), strict=True):
        np.testing.assert_allclose(mine, usual, rtol=0, atol=1e-12)
    assert not loops


def test_a_ridge_is_deferred_too(loops: list[Deferred], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pf.Problem, "l2", 0.1, raising=False)
    states(pf.algorithms.FedAvg(local_steps=3, batch=4, lr=0.1))
    assert loops


def test_a_fixed_mixture_defers_both_models(loops: list[Deferred]) -> None:
    states(pf.algorithms.APFL(alpha=0.5, adaptive="off", lr=0.1, local_steps=3, batch=4))
    assert [len(loop.plan.weights) for loop in loops] == [2] * len(loops) != []


@pytest.mark.parametrize(
    ("sizes", "even", "deferred"), [((10, 12, 9), False, True), ((10, 12, 9), True, True), ((8, 12, 12), False, False)]
)
def test_passes_of_as_many_batches_for_all_are_so_many_steps(
    sizes: tuple[int, ...], even: bool, deferred: bool, loops: list[Deferred], monkeypatch: pytest.MonkeyPatch
) -> None:
    method = pf.algorithms.FedAvg(local_epochs=2, batch=4, lr=0.1, even=even)
    ours = states(method, sizes)
    assert {loop.steps for loop in loops} == ({6} if deferred else set())
    monkeypatch.setattr(Objective, "_batches", lambda self, size: (self.size + size - 1) // size)
    for mine, usual in zip(ours, states(method, sizes), strict=True):
        np.testing.assert_allclose(mine, usual, rtol=0, atol=1e-12)


def test_products_of_16_bits_are_left_alone(loops: list[Deferred]) -> None:
    simulation = Simulation(problem(), pf.algorithms.FedAvg(local_steps=3, batch=4), compute="bfloat16", devices=1)
    simulation.advance(1)
    assert not loops


def test_a_cpu_has_ordinary_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_):
        raise AssertionError

    monkeypatch.setattr(deferred, "loop", never)
    states(pf.algorithms.FedAvg(local_steps=3, batch=4))
