"""Every algorithm across sites equals itself in the simulator."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
import pytest

import polyfed as pf
from polyfed.algorithms import REGISTRY
from polyfed.deploy.site.state_file import StateFile
from polyfed.engine.checkpoint.tensors import load_tree
from polyfed.engine.simulation import Simulation
from polyfed.studies.config import algorithm_from
from tests.conftest import SMALL
from tests.deploy.loopback import Loopback


def small(name: str) -> dict[str, Any]:
    """A section [algorithm] with little local work."""
    known = {field.name for field in dataclasses.fields(REGISTRY[name])}  # pyright: ignore[reportArgumentType]
    return {"name": name, **{key: value for key, value in SMALL.items() if key in known}}


def few(names: Iterable[str], *quick: str) -> list[Any]:
    """All of them; those that are not `quick` are left to `make test-deploy`."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.deploy) for name in names]


def simulated(federation: pf.Federation, method: dict[str, Any], rounds: int = 5, **options: Any) -> Simulation:
    problem = pf.Problem(federation, pf.models.linear(), "softmax", l2=0.01)
    found = Simulation(problem, algorithm_from(method), **{"dtype": "float64", **options})
    found.prepare()
    found.advance(rounds)
    return found


def assert_equal(grid: Loopback, server: Any, expected: Simulation) -> None:
    """The server, and every site's state and personal model."""
    close(server, expected.server)
    for place, name in enumerate(grid.names):
        wanted = expected.personal(place)
        close(load_tree(grid.folder / name / "models" / "study" / "personal.safetensors", wanted), wanted)
        kept = StateFile(grid.folder / name / "state", "study", expected.start).read()
        assert kept is not None
        close(kept.state, jax.tree.map(lambda leaf, place=place: leaf[place], expected.client_state))


def close(found: Any, expected: Any) -> None:
    left, right = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", few(sorted(REGISTRY), "apfl", "fedbc", "local", "plsgd", "scafflix", "scaffold"))
def test_a_deployed_run_equals_the_simulated_one(three, loopback, name) -> None:
    grid = loopback()
    server = grid.serve(small(name), {"participation": 2})
    assert_equal(grid, server, simulated(three, small(name), participation=2))


@pytest.mark.deploy
def test_a_site_keeps_the_own_model_that_it_adapts(three, loopback) -> None:
    grid, method = loopback(), {**small("perfedbc"), "deploy": "own"}
    server = grid.serve(method, {"participation": 2})
    assert_equal(grid, server, simulated(three, method, participation=2))


@pytest.mark.deploy
def test_sites_compute_in_the_type_that_the_server_asks_for(three, loopback) -> None:
    types: dict[str, Any] = {"dtype": "float32", "compute": "bfloat16"}
    found = loopback().serve(small("fedavg"), {"rounds": 2, **types}).params["w"]
    expected, exact = (simulated(three, small("fedavg"), 2, **given) for given in (types, {"dtype": "float32"}))
    np.testing.assert_allclose(found, expected.global_params["w"], atol=1e-6)
    assert np.abs(found - exact.global_params["w"]).max() > 1e-5


FEDERATED: dict[str, dict[str, Any]] = {
    "scafflix": {"alpha": "lean"},
    "flix": {"alpha": [0.0, 0.4, 1.0], "start": "average"},
    "diana": {"beta": [0.1, 0.2, 0.3], "compressor": {"name": "rand_k", "k": [3, 4, 5]}},
    "dcgd": {"alpha": "inverse_size", "compressor": "natural"},
    "scaffnew": {"batch": 3},
}
"""Theory's stepsizes, columns, rules, values of each site's own; silent sites."""


@pytest.mark.parametrize("name", few(FEDERATED, "diana"))
def test_what_follows_from_the_whole_federation_is_the_same_across_sites(three, loopback, name) -> None:
    grid, method = loopback(), {"name": name, **FEDERATED[name]}
    server = grid.serve(method)
    assert_equal(grid, server, simulated(three, method))
