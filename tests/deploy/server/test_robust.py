"""A deployed server that sees single uploads makes one of them as the simulated one does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfed as pf
from polyfed.deploy.settings import server_settings
from tests.conftest import few
from tests.deploy.expected import simulated, small

RULES: list[dict[str, Any]] = [
    {"rule": "median", "bound": "median"},
    {"rule": "geometric_median"},
    {"rule": "trimmed_mean", "attackers": 1},
    {"rule": "krum", "attackers": 0, "keep": 2},
    {"rule": "mean", "weighted": True, "bound": 0.01},
]


@pytest.mark.full
@pytest.mark.parametrize("rule", few(RULES, RULES[0]))
@pytest.mark.parametrize("name", few(["fedavg", "apfl", "scaffold"], "fedavg"))
def test_a_rule_across_sites_equals_the_simulated_one(three, loopback, name, rule) -> None:
    grid = loopback()
    grid.serve(small(name), aggregate=rule)
    grid.assert_equal(simulated(three, small(name), aggregate=pf.Aggregate(**rule)))
    plain = simulated(three, small(name))
    assert np.abs(grid.published.params["w"] - plain.global_params["w"]).max() > 1e-4


SECTIONS: dict[str, Any] = {
    "federation": {"sites": ["a", "b", "c"]},
    "problem": {"loss": "logistic"},
    "algorithm": {"name": "fedavg"},
    "run": {"rounds": 2},
    "aggregate": {"rule": "median"},
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"federation": {"sites": ["a", "b", "c"], "secure": True}}, "masks hide single uploads"),
        ({"privacy": {"clip": 1.0, "noise": 1.0, "delta": 1e-5}}, "aggregate does not go with privacy"),
        ({"aggregate": {"rule": "krum", "attackers": 1}}, "among at least 5 uploads, and a round has 3"),
        ({"aggregate": {"rule": "medain"}}, "did you mean 'median'"),
    ],
)
def test_what_does_not_go_with_a_rule_is_refused_before_anything_runs(changes, words) -> None:
    pytest.importorskip("dp_accounting", reason="needs dp-accounting: pip install 'polyfed[privacy]'")
    with pytest.raises(pf.PolyfedError, match=words):
        server_settings({**SECTIONS, **changes}, "server.toml")


def test_a_method_whose_server_needs_a_sum_is_refused_by_name(loopback) -> None:
    with pytest.raises(pf.PolyfedError, match="qfedavg"):
        loopback().serve(small("qfedavg"), aggregate={"rule": "median"})
