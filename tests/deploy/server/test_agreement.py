"""What sites must agree on before round 1."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from tests.deploy.loopback import Loopback


def test_sites_that_do_not_fit_together_are_named(loopback) -> None:
    grid: Loopback = loopback()
    odd = pf.Federation.from_arrays({"site-2": {"train": (np.ones((4, 7)), np.array([0, 1, 2, 0]))}}, classes=3)
    grid.sites["site-2"].federation = odd
    with pytest.raises(pf.PolyfedError, match=r"site 'site-2': features \(7,\), site 'site-0' has \(4,\)"):
        grid.serve({"name": "fedavg"})
