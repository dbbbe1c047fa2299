"""`polyfed demo`: the config that it runs, and how; what a comparison writes is tested with `polyfed compare`."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyfed.cli import demo
from polyfed.cli.execution import Execution
from polyfed.studies.config import Config
from tests.cli.command import polyfed


def test_the_demo_compares_the_five_systems_and_may_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Config, Execution]] = []
    monkeypatch.setattr(demo, "run_methods", lambda config, execution: calls.append((config, execution)))
    shown = polyfed("demo", "--set", "run.rounds=7", cwd=tmp_path).stdout
    assert shown.startswith("polyfed demo: which flight leaves late? 16 airlines, 13,305 flights; 8 methods\n")
    assert max(map(len, shown.splitlines())) <= 80
    [(config, execution)] = calls
    labels = [method.label for method in config.methods]
    assert labels == ["Alone", "FedAvg", "FedAvg + fine-tuning", "APFL", "FLIX", "Scafflix", "FedBC", "PLSGD"]
    assert (config.run.rounds, config.run.splits) == (7, 10)
    assert execution == Execution(Path("runs/demo"), overwrite=True)


def test_the_digits_stay_as_an_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Config, Execution]] = []
    monkeypatch.setattr(demo, "run_methods", lambda config, execution: calls.append((config, execution)))
    polyfed("demo", "digits", cwd=tmp_path)
    [(config, execution)] = calls
    assert (len(config.problem), len(config.methods)) == (20, 8)
    assert execution == Execution(Path("runs/demo-digits"), overwrite=True)
