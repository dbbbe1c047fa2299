"""A file with the outcome of every run that has ended, so that a stopped search or reproduction can go on."""

from __future__ import annotations

import json
from pathlib import Path

from polyfed.core.files import JsonObject, write_text
from polyfed.studies.run_directory import read_metrics


class FinishedRuns:
    """The outcomes of finished runs, by a digest of all that decides their numbers; without a path, in memory only."""

    def __init__(self, path: Path | None, resume: bool) -> None:
        self.path = path
        self.done: JsonObject = {}
        """the outcome of each run, as JSON has it"""
        if path is not None and path.exists():
            if resume:
                self.done = {row["key"]: row["outcome"] for row in read_metrics(path)}
            lines = (json.dumps({"key": key, "outcome": outcome}) + "\n" for key, outcome in self.done.items())
            write_text(path, "".join(lines))  # drops a last line that was cut off

    def add(self, key: str, title: str, outcome: object) -> None:
        """Keep an outcome; `title` tells people which run it is of."""
        self.done[key] = outcome
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps({"key": key, "what": title, "outcome": outcome}) + "\n")
