"""`polyfed plan`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.command import polyfed


def test_a_plan_needs_no_algorithm(tmp_path: Path) -> None:
    text = '[data]\nsource = "quadratics"\nclients = 4\ndim = 3\n[problem]\nbias = false\nl2 = 0.1\n'
    (tmp_path / "plan.toml").write_text(text)
    shown = polyfed("plan", "plan.toml", "--alpha", "0.3", "--target", "1e-5", cwd=tmp_path).stdout
    assert "condition number" in shown
    assert "Scafflix" in shown
    assert "by exact quadratics, since the bounds say nothing here: " in shown
    plan = json.loads(polyfed("plan", "plan.toml", "--json", cwd=tmp_path).stdout)
    assert plan["constants"]["clients"] == 4
    refused = polyfed("plan", "plan.toml", "--alpha", "1.3", cwd=tmp_path, check=2)
    assert "from 0 to 1" in refused.stderr
