"""`polyfed algorithms`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.command import polyfed


def test_algorithms_and_their_hyper_parameters_are_listed(tmp_path: Path) -> None:
    assert "fedprox" in polyfed("algorithms", cwd=tmp_path).stdout
    assert "server_optimizer" in polyfed("algorithms", "fedavg", cwd=tmp_path).stdout
    assert json.loads(polyfed("algorithms", "--json", cwd=tmp_path).stdout)["fedprox"]["mu"] == 0.1
