"""Results of runs, a line for each that ended: what was stopped goes on from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from polyfed.core.files import write_text
from polyfed.studies.run_directory import read_metrics


class Journal:
    """A line per run that ended, by a digest of all that decides its numbers; without a path, in memory alone."""

    def __init__(self, path: Path | None, resume: bool) -> None:
        self.path, self.done = path, {}
        if path is not None and path.exists():
            if resume:
                self.done = {row["key"]: row["outcome"] for row in read_metrics(path)}
            text = "".join(json.dumps({"key": k, "outcome": v}) + "\n" for k, v in self.done.items())
            write_text(path, text)  # without a line that was cut off

    def add(self, key: str, what: str, outcome: Any) -> None:
        """`what`: for people."""
        self.done[key] = outcome
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps({"key": key, "what": what, "outcome": outcome}) + "\n")
