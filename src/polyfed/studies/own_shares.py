"""shares.csv: the share of each client's own model in what it deploys, as a run goes on.

A line per evaluated round at which any share differs from the line before; where no share ever moves, there is no file.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polyfed.core.files import plain_cell, safe_cell, write_text

NAME = "shares.csv"


@dataclass(frozen=True)
class Shares:
    """The contents of shares.csv: `values[k][i]` is client i's share from round `rounds[k]` on."""

    clients: tuple[str, ...]
    rounds: tuple[int, ...]
    values: np.ndarray

    def at(self, rounds: Sequence[float]) -> np.ndarray:
        """The shares at these rounds, a row for each; no round may be earlier than the first in the file."""
        return self.values[np.searchsorted(self.rounds, rounds, side="right") - 1]


def read_shares(folder: Path) -> Shares | None:
    """The shares of a run, without a last line that a crash has cut off; None where they never moved."""
    path = folder / NAME
    if not path.is_file():
        return None
    with path.open(newline="") as file:
        lines = list(csv.reader(file))
    if not lines:
        return None
    rows = [line for line in lines[1:] if len(line) == len(lines[0])]
    if not rows:
        return None
    values = np.array([[float(cell) for cell in row[1:]] for row in rows])
    return Shares(tuple(map(plain_cell, lines[0][1:])), tuple(int(row[0]) for row in rows), values)


class ShareLog:
    """Writes shares.csv line by line, each flushed."""

    def __init__(self, folder: Path, clients: Sequence[str], past: Collection[int] = ()) -> None:
        """Begin a new file; where a run goes on, keep the lines of the rounds in `past`."""
        self.path = folder / NAME
        self.heading, lines = ["round", *(str(safe_cell(name)) for name in clients)], []
        if past and self.path.is_file():
            with self.path.open(newline="") as file:
                complete = [line for line in csv.reader(file) if len(line) == len(clients) + 1]
            lines = [line for line in complete[1:] if int(line[0]) in past]
        if lines:
            write_text(self.path, _text([self.heading, *lines]))
        else:
            self.path.unlink(missing_ok=True)
        self.count, self.last = len(lines), lines[-1][1:] if lines else None
        self.begins_at_zero = bool(lines) and _nobody(lines[0])

    def write(self, round: int, shares: np.ndarray) -> None:
        """Add a line for a round, unless its shares are those of the line before."""
        line = [f"{share:.6g}" for share in shares.tolist()]
        if self.count and line == self.last:
            return
        if not self.count:
            self.begins_at_zero = _nobody([str(round), *line])
        with self.path.open("a", newline="") as file:
            file.write(_text([[str(round), *line]] if self.count else [self.heading, [str(round), *line]]))
        self.count, self.last = self.count + 1, line

    def finish(self) -> None:
        """End of the run: delete the file if no share has moved, because clients.csv has them.

        Before round 1 nobody has a model of its own: that everybody then gets one is no move.
        """
        if self.count == 1 or (self.count == 2 and self.begins_at_zero):
            self.path.unlink(missing_ok=True)


def _nobody(line: list[str]) -> bool:
    """Whether this is the line of the start, and everybody has the global model."""
    return line[0] == "0" and set(line[1:]) == {"0"}


def _text(lines: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
