"""Clients that take unequal numbers of steps: who waits for whom changes the time alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import polyfed as pf
from polyfed.engine import programs
from polyfed.engine.devices.unequal_steps import best_chunk, client_steps, fixed_cost, typical_steps
from polyfed.engine.participation import Sampling
from polyfed.engine.simulation import Simulation
from tests.conftest import few

SIZES = (3, 50, 7, 31, 1, 90, 12, 5, 8)
BAD = 3
"""A client whose numbers overflow."""


def federation(bad: int | None = None) -> pf.Federation:
    draws = np.random.default_rng(0)
    clients = [(draws.normal(size=(size, 4)), draws.integers(0, 3, size)) for size in SIZES]
    if bad is not None:
        clients[bad][0][:] = 1e200
    return pf.Federation.from_arrays(clients, classes=3, validation=0, test=0)


def method(name: str) -> Any:
    kind: Any = pf.algorithms.REGISTRY[name]
    return kind(lr=0.1, local_epochs=2, batch=4)


def run(name: str, bad: int | None = None, rounds: int = 3, **options: Any) -> Simulation:
    simulation = Simulation(pf.Problem(federation(bad), pf.models.linear()), method(name), dtype="float64", **options)
    simulation.prepare()
    simulation.advance(rounds)
    return simulation


@pytest.mark.parametrize("name", few(["apfl", "fedavg", "fedbc"], "fedavg"))
def test_neither_chunk_nor_device_nor_store_changes_a_result(name: str, monkeypatch) -> None:
    one_by_one = run(name, devices=1, chunk=1)
    assert one_by_one.programs.round.uneven
    lent, own = 64 << 20, -1
    for most, more in ((own, {"devices": 1, "chunk": 4}), (own, {"devices": 2, "chunk": 2}), (lent, {"devices": 2})):
        monkeypatch.setattr(programs, "LENT_BYTES", most)
        same(run(name, **more), one_by_one, dealt=most == lent)
    same(run(name, devices=2, chunk=4, store="host"), one_by_one, dealt=True)


def same(ours: Simulation, theirs: Simulation, dealt: bool) -> None:
    assert ours.programs.round.dealt == dealt
    for a, b in ((ours.server, theirs.server), (ours.client_state, theirs.client_state)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), a, b)
    assert ours.counters == theirs.counters


@pytest.mark.parametrize("devices", few([1, 2], 2))
@pytest.mark.parametrize("name", ["fedavg", "apfl"])
def test_the_right_client_is_left_out_and_counted(name: str, devices: int) -> None:
    found = run(name, bad=BAD, devices=devices, chunk=2)
    assert found.excluded == {f"client-00{BAD}": 3}
    shares = np.array(SIZES if name == "fedavg" else [1] * len(SIZES), float)
    shares[BAD] = 0
    assert found.server_weights is not None
    np.testing.assert_allclose(found.server_weights, shares / shares.sum(), rtol=1e-6)


def test_steps_are_those_of_the_local_work() -> None:
    steps = client_steps(np.array(SIZES), 2, 4)
    assert steps is not None
    assert steps.tolist() == [2, 26, 4, 16, 2, 46, 6, 4, 4]
    assert run("local", rounds=1).iterations == max(steps)
    assert client_steps(np.array(SIZES), None, 4) is None
    assert client_steps(np.array(SIZES), 2, "full") is None
    assert client_steps(np.array([5, 8, 7]), 2, 4) is None
    assert not Simulation(
        pf.Problem(federation(), pf.models.linear()), pf.algorithms.FedAvg(local_steps=3, batch=4)
    ).programs.round.uneven


def test_devices_get_what_rounds_deal_out() -> None:
    steps = np.array([1, 9, 2, 8, 3])
    layout: Any = SimpleNamespace(devices=2, clients_each=3)
    everybody = Sampling(5, 5)
    assert typical_steps(steps, layout, everybody, dealt=False).tolist() == [[[9, 2, 1], [8, 3, 0]]]
    assert typical_steps(steps, layout, everybody, dealt=True).tolist() == [[[9, 3, 1], [8, 2, 0]]]
    drawn = typical_steps(steps, layout, Sampling(5, 3), dealt=False)
    assert drawn.shape[1:] == (2, 2)
    assert set(np.unique(drawn)) <= {0, *steps.tolist()}
    assert np.all(drawn[:, 0, 0] >= drawn[:, 1, 0])
    assert np.all(np.diff(drawn, axis=-1) <= 0)


def test_a_chunk_is_as_large_as_waiting_allows() -> None:
    alike, unlike = np.full((1, 1, 12), 7), np.array([[[1000, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10]]])
    assert best_chunk(alike, 12, fixed=0.0) == 12
    assert best_chunk(alike, 5, fixed=1.0) == 4  # with 5, three chunks would run 15
    assert best_chunk(unlike, 12, fixed=0.0) == 1
    assert best_chunk(unlike, 12, fixed=5.0) == 1
    assert best_chunk(unlike, 12, fixed=1e4) == 12
    assert 1 < best_chunk(np.array([[[1000, 900, 800, 10, 10, 10]]]), 6, fixed=2.0) <= 3


def test_an_accelerator_waits_rather_than_idles() -> None:
    """Ten clients of a small net by a geometric law: a CPU takes them one by one, an accelerator all at a time."""
    steps = (1000 * 0.7 ** np.arange(10)).astype(int).reshape(1, 1, -1)
    cpu, gpu = (SimpleNamespace(platform=name) for name in ("cpu", "gpu"))
    assert best_chunk(steps, 10, fixed_cost(cpu, 62_006, 50)) == 1
    assert best_chunk(steps, 10, fixed_cost(gpu, 62_006, 50)) >= 4
    assert best_chunk(steps, 10, fixed_cost(gpu, 62_006, 50) / 100) < 4  # in a sweep with 99 others


def test_a_chunk_that_is_asked_for_is_taken() -> None:
    problem = pf.Problem(federation(), pf.models.linear())
    assert Simulation(problem, method("fedavg"), devices=1, chunk=7).programs.round.chunk == 7
    assert Simulation(problem, method("fedavg"), devices=1).programs.round.chunk < len(SIZES)
