"""`progress.jsonl`: a line for every round that counted."""

from __future__ import annotations

import json
from pathlib import Path

from polyfed.core.files import write_text
from polyfed.deploy.server.ledger import RoundLine


class ProgressFile:
    """Lines are appended. The first of a server that was started puts right what a crash, or going back, left."""

    def __init__(self, path: Path) -> None:
        self.path, self._right = path, False

    def add(self, line: RoundLine) -> None:
        """Note a round. Lines that are not whole, of this round and of later ones go."""
        if self._right:
            self._right = False  # until all of the line is written
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")
        else:
            before = [known for known in read_progress(self.path) if known["round"] < line["round"]]
            write_text(self.path, "".join(json.dumps(known) + "\n" for known in [*before, line]))
        self._right = True


def read_progress(path: Path) -> list[RoundLine]:
    """The rounds so far; a line that is not whole is not among them."""
    lines: list[RoundLine] = []
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    for line in text.splitlines():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return lines
