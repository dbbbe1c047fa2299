"""Every algorithm across sites equals itself in the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfed as pf
from polyfed.algorithms import REGISTRY
from polyfed.deploy.new_site import read_published
from polyfed.deploy.site.policy import RunPolicy
from tests.conftest import few
from tests.deploy.expected import simulated, small


@pytest.mark.parametrize("name", few(sorted(REGISTRY), "apfl"))
def test_a_deployed_run_equals_the_simulated_one(three, loopback, name) -> None:
    grid = loopback()
    grid.serve(small(name), {"participation": 2})
    grid.assert_equal(simulated(three, small(name), participation=2))


BALANCED = ("scaffnew", "balanced")  # whose stepsize follows from the sites' L_i, too


@pytest.mark.parametrize(("name", "weights"), few([BALANCED, ("fedavg", [0.5, 2.0, 3.0])], BALANCED))
def test_sites_weigh_classes_as_the_simulation_does(three, loopback, name: str, weights: Any) -> None:
    method = {"name": "scaffnew", "batch": 3} if name == "scaffnew" else small(name)
    grid = loopback()
    grid.serve(method, problem={"class_weight": weights})
    grid.assert_equal(simulated(three, method, class_weight=weights))
    unweighted = simulated(three, method)
    assert np.abs(grid.published.params["w"] - unweighted.global_params["w"]).max() > 1e-3
    known = read_published(grid.run_folder)
    expected = pf.Problem(three, pf.models.linear(), class_weight=weights).class_weight
    assert known.class_weight is not None
    assert expected is not None
    np.testing.assert_allclose(known.class_weight, expected, rtol=1e-12)


def test_a_site_may_keep_the_number_of_rows_of_each_class_to_itself(three, loopback) -> None:
    with pytest.raises(Exception, match="does not allow the number of rows of each class to leave"):
        loopback(class_rows=False).serve(small("fedavg"), problem={"class_weight": "balanced"})


def test_sites_whose_passes_would_end_with_a_row_train_on_even_batches(loopback) -> None:
    """21 and 41 rows in batches of 20, and 8: each site has the policy that it has if it says nothing."""
    draws = np.random.default_rng(0)
    rows = [(draws.normal(size=(n, 4)), draws.integers(0, 3, n)) for n in (21, 41, 8)]
    sites = pf.Federation.from_arrays(rows, classes=3, validation=0, test=0)
    method = {"name": "fedavg", "lr": 0.3, "local_epochs": 2, "batch": 20}
    with pytest.raises(pf.PolyfedError, match="1 of 3 sites answered"):
        loopback("refused", sites, policy=RunPolicy()).serve(method, {"rounds": 1}, patience=1)
    grid = loopback("even", sites, policy=RunPolicy())
    grid.serve({**method, "even": True}, {"rounds": 2})
    grid.assert_equal(simulated(sites, {**method, "even": True}, 2))


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
    "scaffnew": {"batch": 3, "even": True},
}
"""Theory's stepsizes, columns, rules, values of each site's own; silent sites."""


@pytest.mark.parametrize("name", few(FEDERATED, "scaffnew"))
def test_what_follows_from_the_whole_federation_is_the_same_across_sites(three, loopback, name) -> None:
    grid, method = loopback(), {"name": name, **FEDERATED[name]}
    grid.serve(method)
    grid.assert_equal(simulated(three, method))
