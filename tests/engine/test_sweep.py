"""Runs in a sweep end where they end alone: other seeds, other data, other numbers, one program."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import jax
import numpy as np
import pytest

import polyfed as pf
from polyfed.core.errors import PolyfedError
from polyfed.engine.measure import FineTune
from polyfed.engine.simulation import Simulation
from polyfed.engine.sweep import Sweep, most_runs
from tests.conftest import few

RUNS = 2


def problem(seed: int) -> pf.Problem:
    fed = pf.data.load("synthetic", alpha=0.5, beta=0.5, clients=7, max_size=60, validation=0.2, test=0.2, seed=seed)
    return pf.Problem(fed, pf.models.linear(), "softmax", l2=1e-3)


PROBLEMS = [problem(seed) for seed in range(RUNS)]
METHODS: dict[str, Any] = {
    "fedbc, epochs": lambda k: pf.algorithms.FedBC(lr=0.05 + 0.05 * k, dual_lr=0.1, local_epochs=2, tolerance=0.1),
    "apfl": lambda k: pf.algorithms.APFL(lr=0.1 + 0.1 * k, local_steps=3, alpha=0.25, even=True),
}


def simulations(make: Any, shared: bool, participation: Any) -> list[Simulation]:
    return [
        Simulation(PROBLEMS[0 if shared else k], make(k), participation=participation, seed=k, dtype="float64")
        for k in range(RUNS)
    ]


@pytest.mark.parametrize(
    ("name", "shared", "participation"),
    few([("fedbc, epochs", False, 3), ("fedbc, epochs", False, 1.0), ("apfl", True, 1.0)], ("apfl", True, 1.0)),
)
def test_runs_end_where_they_end_alone(name: str, shared: bool, participation: Any) -> None:
    alone, together = (simulations(METHODS[name], shared, participation) for _ in range(2))
    for simulation in alone:
        simulation.prepare()
        simulation.advance(3)
    sweep = Sweep(together, chunk=2)
    sweep.prepare()
    for rounds in (1, 2):
        sweep.advance(rounds)
    found = sweep.measure()
    sweep.settle()
    for mine, theirs, metrics in zip(alone, together, found, strict=True):
        same(mine.server, theirs.server)
        same(mine.client_state, theirs.client_state)
        same(mine.measure(), metrics if "personal" in metrics else {"personal": metrics["global"], **metrics})
        assert mine.counters == theirs.counters
        same(mine.server_weights, theirs.server_weights)
    assert not np.allclose(*(jax.tree.leaves(s.global_params)[0] for s in together[:2]))


def test_each_run_is_fine_tuned_with_its_own_stepsize() -> None:
    runs = simulations(lambda k: pf.algorithms.FedAvg(lr=0.1), True, 1.0)
    sweep = Sweep(runs)
    tunes = [FineTune(2, 0.1 * (k + 1)) for k in range(RUNS)]
    found = sweep.measure(tunes)
    for simulation, tune, metrics in zip(runs, tunes, found, strict=True):
        same(simulation.measure(tune), metrics)
    with pytest.raises(PolyfedError, match="fine-tuning"):
        sweep.measure([FineTune(2), FineTune(3)])


@pytest.mark.parametrize(
    ("make", "participation", "what"),
    [
        (lambda k: pf.algorithms.FedAvg(local_steps=1 + k), 1.0, "method"),
        (lambda k: pf.algorithms.FedAvg(), None, "participation"),
    ],
)
def test_runs_of_another_shape_are_refused(make: Any, participation: Any, what: str) -> None:
    runs = [
        Simulation(PROBLEMS[0], make(k), participation=2 + k if participation is None else participation)
        for k in range(2)
    ]
    with pytest.raises(PolyfedError, match=f"agree in {what}"):
        Sweep(runs)


def test_a_cpu_takes_as_many_runs_as_its_caches_hold() -> None:
    assert most_runs(simulations(METHODS["apfl"], True, 1.0)[0]) == 32
    wide = pf.Problem(PROBLEMS[0].federation, pf.models.mlp([20_000]), "softmax")
    assert most_runs(Simulation(wide, pf.algorithms.FedAvg())) == 1


def same(one: Any, other: Any) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def test_an_accelerator_takes_as_many_runs_as_their_states_leave_room_for() -> None:
    """FLIX keeps one model for each client: 24,000 clients with 10,000 numbers are 240 million, 8 of which fit."""
    [run, *_] = simulations(METHODS["apfl"], True, 1.0)
    gpu = SimpleNamespace(layout=SimpleNamespace(device=SimpleNamespace(platform="gpu")))
    large = SimpleNamespace(**vars(gpu), start={"own": np.zeros(10_000)}, problem=range(24_000))
    assert most_runs(cast(Simulation, large)) == 8
    assert most_runs(cast(Simulation, SimpleNamespace(**vars(gpu), start=run.start, problem=run.problem))) == 32
