"""A site that comes after training."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from polyfed.deploy.new_site import personalize_new_site
from tests.deploy.loopback import Loopback


def test_a_new_site_gets_its_model_from_what_was_published(loopback) -> None:
    grid: Loopback = loopback()
    server = grid.serve({"name": "fedavg", "batch": 4}, {"rounds": 2})
    rng = np.random.default_rng(1)
    rows = pf.Federation.from_arrays({"new": (rng.normal(size=(20, 4)), rng.integers(0, 3, 20))}, classes=3)
    newcomer = personalize_new_site(grid.folder / "server" / "runs" / "study", rows)
    assert newcomer.clients == ("new",)
    own, shared = np.asarray(newcomer.personal("new")["w"]), np.asarray(server.params["w"])
    assert own.shape == shared.shape
    assert not np.allclose(own, shared)
    problem = newcomer.problem
    assert problem.value(newcomer.personal("new"), "new") < problem.value(server.params, "new")
    with pytest.raises(pf.PolyfedError, match="no published server here"):
        personalize_new_site(grid.folder, rows)
