"""What the terminal says under the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyfed.cli.execution import Execution
from polyfed.cli.options import out
from polyfed.studies.run_directory import RunRecord
from tests.report.samples import make_run


def shown(runs: list[RunRecord], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(out, "_width", 200)
    with out.capture() as captured:
        Execution(Path("runs")).show(runs)
    return captured.get()


def test_clients_without_the_metric_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["north", "tiny", "south", "[b]odd", "west"]
    figure = "AUC of the model that each client deploys, over all 5 clients"
    run = make_run(clients=names, metric="auc", undefined={"auc": ["tiny", "[b]odd"]}, figure=figure)
    text = shown([run], monkeypatch)
    assert "\n2 of 5 clients have no test AUC: tiny, [b]odd\n" in text
    assert "deploys, over 3 of 5 clients\n" in text
    everyone = shown([make_run(clients=names, metric="auc", figure=figure)], monkeypatch)
    assert "have no test AUC" not in everyone
    assert "over all 5 clients" in everyone
