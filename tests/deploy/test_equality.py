"""Every algorithm across sites equals itself in the simulator."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import polyfed as pf
import pytest
from polyfed.algorithms import REGISTRY
from polyfed.engine.simulation import Simulation

from tests.conftest import unequal_clients
from tests.deploy.loopback import Loopback, deployed, make_plan, make_sites

SMALL: dict[str, Any] = {
    "local_steps": 3,
    "local_lr": 0.3,
    "batch": 4,
    "lr": 0.1,
    "p": 0.3,
    "plm_epochs": 2,
    "inner_steps": 2,
    "inner_lr": 0.05,
}


@pytest.fixture(scope="module")
def three() -> pf.Federation:
    clients = dict(list(unequal_clients().items())[:3])
    return pf.Federation.from_arrays(clients, classes=3, columns={"lean": [0.2, 0.5, 0.9]})


def small(name: str) -> Any:
    cls = REGISTRY[name]
    known = {field.name for field in dataclasses.fields(cls)}  # pyright: ignore[reportArgumentType]
    return cls(**{key: value for key, value in SMALL.items() if key in known})


def simulated(federation: pf.Federation, method: Any, rounds: int = 5, **options: Any) -> Simulation:
    problem = pf.Problem(federation, pf.models.linear(), "softmax", l2=0.01)
    found = Simulation(problem, method, dtype="float64", **options)
    found.prepare()
    found.advance(rounds)
    return found


def assert_equal(federation: pf.Federation, method: Any, folder: Any, **options: Any) -> Loopback:
    """Server, states and personal models of both runs."""
    sites = make_sites(federation, folder)
    grid = Loopback(sites)
    run = deployed(make_plan(federation, method, **options), grid, folder / "server")
    expected = simulated(federation, method, **options)
    close(run.server, expected.server)
    for place, name in enumerate(federation.clients):
        model = folder / name / "models" / "study" / "personal.safetensors"
        from polyfed.engine.tensors import load_tree

        wanted = expected.personal(place)
        close(load_tree(model, wanted), wanted)
        state = jax.tree.map(lambda leaf, place=place: leaf[place], expected.client_state)
        (work,) = sites[name]._work.values()
        from polyfed.deploy.kept import StateFile

        kept = StateFile(folder / name / "state", "study", work.start).read()
        assert kept is not None
        close(kept.state, state)
    return grid


def close(found: Any, expected: Any) -> None:
    left, right = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_a_deployed_run_equals_the_simulated_one(three, name, tmp_path) -> None:
    assert_equal(three, small(name), tmp_path, participation=2)
