"""Who is asked."""

from __future__ import annotations

import logging

from tests.deploy.loopback import Loopback


def test_a_site_that_is_not_on_the_roster_is_not_asked(loopback, caplog) -> None:
    grid: Loopback = loopback()
    grid.started["stranger"] = 1
    with caplog.at_level(logging.WARNING, "polyfed"):
        grid.serve({"name": "fedavg"}, {"rounds": 1})
    assert "site 'stranger' is not on the roster and is not asked" in caplog.text
