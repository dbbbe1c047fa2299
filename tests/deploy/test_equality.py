"""Every algorithm across sites equals itself in the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polyfed.algorithms import REGISTRY
from tests.conftest import few
from tests.deploy.expected import simulated, small


@pytest.mark.parametrize("name", few(sorted(REGISTRY), "apfl", "scaffold"))
def test_a_deployed_run_equals_the_simulated_one(three, loopback, name) -> None:
    grid = loopback()
    grid.serve(small(name), {"participation": 2})
    grid.assert_equal(simulated(three, small(name), participation=2))


@pytest.mark.full
def test_a_site_keeps_the_own_model_that_it_adapts(three, loopback) -> None:
    grid, method = loopback(), {**small("perfedbc"), "deploy": "own"}
    grid.serve(method, {"participation": 2})
    grid.assert_equal(simulated(three, method, participation=2))


@pytest.mark.full
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


@pytest.mark.parametrize("name", few(FEDERATED, "scaffnew"))
def test_what_follows_from_the_whole_federation_is_the_same_across_sites(three, loopback, name) -> None:
    grid, method = loopback(), {"name": name, **FEDERATED[name]}
    grid.serve(method)
    grid.assert_equal(simulated(three, method))
