"""What leaves a site."""

from __future__ import annotations

import json

import pytest

import polyfed as pf
from tests.deploy.loopback import Loopback


@pytest.mark.full
def test_metrics_and_models_leave_a_site_only_if_its_config_allows_it(three, loopback) -> None:
    closed: Loopback = loopback("closed", measure=True)
    closed.serve({"name": "ditto"}, {"rounds": 1})
    place = closed.run_folder
    assert json.loads((place / "finished.json").read_text()) == dict.fromkeys(three.clients)
    assert not (place / "models").exists()
    own = json.loads((closed.folder / "site-0" / "models" / "study" / "metrics.json").read_text())
    opened: Loopback = loopback("open", metrics=True, model=True)
    opened.serve({"name": "ditto"}, {"rounds": 1})
    place = opened.run_folder
    finished = json.loads((place / "finished.json").read_text())
    assert finished["site-0"] == own
    assert 0 <= finished["site-0"]["personal"]["test"]["accuracy"] <= 1
    assert {path.stem for path in (place / "models").iterdir()} == set(three.clients)


def test_constants_leave_a_site_only_if_its_config_allows_it(loopback) -> None:
    grid: Loopback = loopback(smoothness=False)
    with pytest.raises(pf.PolyfedError, match=r"site 'site-0' does not take part: .*does not allow.*lr must be given"):
        grid.serve({"name": "scaffnew"})
    grid.serve({"name": "scaffnew", "lr": 0.1, "p": 0.5, "batch": "full"}, {"rounds": 1})
