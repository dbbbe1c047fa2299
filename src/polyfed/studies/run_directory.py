"""The run directory: what a run leaves behind, and how it is read back."""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyfed.core.errors import PolyfedError
from polyfed.studies.own_shares import Shares, read_shares


@dataclass(frozen=True)
class RunRecord:
    """One finished or interrupted run, as its directory tells it."""

    path: Path
    config: dict[str, Any]
    history: list[dict[str, Any]]
    clients: list[dict[str, Any]]
    summary: dict[str, Any]
    shares: Shares | None = None
    """how much of its own model each client kept, round by round, where that changed"""

    @property
    def label(self) -> str:
        """The method's name in tables and legends."""
        return str(self.summary["label"])

    @property
    def seed(self) -> int:
        return int(self.summary["seed"])


def read_run(path: str | Path) -> RunRecord:
    """Read a run directory, or refuse it with a sentence that names the missing or broken file."""
    path = Path(path)
    if not path.is_dir():
        raise PolyfedError(f"{path}: no such run directory")
    for name in ("config.toml", "metrics.jsonl", "clients.csv", "summary.json"):
        if not (path / name).is_file():
            raise PolyfedError(f"{path}: not a finished run, {name} is missing")
    try:
        config = tomllib.loads((path / "config.toml").read_text())
        history = list(read_metrics(path / "metrics.jsonl"))
        summary = json.loads((path / "summary.json").read_text())
        with (path / "clients.csv").open(newline="") as file:
            clients = [
                {key: value if key == "client" else _number(value) for key, value in row.items()}
                for row in csv.DictReader(file)
            ]
        shares = read_shares(path)
    except ValueError as error:
        raise PolyfedError(f"{path}: a file of this run cannot be read: {error}") from None
    return RunRecord(path, config, history, clients, summary, shares)


def find_runs(path: str | Path) -> list[Path]:
    """The run directories at or below `path`, in the order in which they were begun."""
    path = Path(path)
    if (path / "metrics.jsonl").is_file():
        return [path]
    found = [file.parent for file in path.rglob("metrics.jsonl")] if path.is_dir() else []
    if not found:
        raise PolyfedError(f"{path}: no run directory here or below it")
    return sorted(found, key=lambda run: (_order(run), str(run)))


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a metrics file; a last line that was cut off by a crash is passed over."""
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return


def _order(run: Path) -> int:
    try:
        return int(json.loads((run / "summary.json").read_text()).get("order", 0))
    except (OSError, ValueError):
        return 0


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
