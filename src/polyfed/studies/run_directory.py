"""The run directory: what a run leaves behind, and how it is read back."""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject, plain_cell
from polyfed.studies.own_shares import Shares, read_shares

SPLITS = "splits"
"""The folder, inside a run's own, of the runs with its rows split anew."""


@dataclass(frozen=True)
class RunRecord:
    """One finished run, as its directory tells it."""

    path: Path
    config: JsonObject
    history: list[JsonObject]
    clients: list[dict[str, str | float]]
    summary: JsonObject
    shares: Shares | None = None
    """how much of its own model each client kept, round by round; None where that never changed"""

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
                {key: plain_cell(value) if key == "client" else _number(value) for key, value in row.items()}
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
        splits = [file.parent for file in (path / SPLITS).glob("*/metrics.jsonl")]
        return [path, *sorted(splits, key=lambda split: (len(split.name), split.name))]
    runs = [file.parent for file in path.rglob("metrics.jsonl")] if path.is_dir() else []
    if not runs:
        raise PolyfedError(f"{path}: no run directory here or below it")
    return sorted(runs, key=lambda run: (_order(run), str(run)))


def read_metrics(path: Path) -> Iterator[JsonObject]:
    """The rows of a metrics file, without a last line that a crash has cut off."""
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


def _number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
