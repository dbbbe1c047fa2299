"""The table of all cells, in one CSV file: a row for each federation, method and seed."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_csv
from polyfed.studies.leaderboard.cell import Cell

NAMES = [each.name for each in fields(Cell)]
WHOLE, REAL = ("seed", "rounds"), ("personal", "shared", "worst", "bits", "seconds")


@dataclass
class Board:
    """The cells that have been run. A cell whose settings have changed since is run again."""

    path: Path
    cells: list[Cell] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Board:
        """What the file holds; nothing where there is none."""
        if not path.exists():
            return cls(path)
        try:
            with path.open(encoding="utf-8", newline="") as file:
                table = list(csv.DictReader(file))
        except (UnicodeDecodeError, csv.Error) as error:
            raise PolyfedError(f"{path}: is no CSV file: {error}") from None
        return cls(path, [_cell(path, number, row) for number, row in enumerate(table, start=1)])

    def has(self, federation: str, method: str, spec: str) -> bool:
        """Whether the cell is there, run with these settings."""
        own = [cell for cell in self.cells if (cell.federation, cell.method) == (federation, method)]
        return bool(own) and all(cell.spec == spec for cell in own)

    def put(self, cells: list[Cell]) -> None:
        """Write a cell's rows in the place of its earlier ones; the file is whole at any moment."""
        new = {(cell.federation, cell.method) for cell in cells}
        kept = [cell for cell in self.cells if (cell.federation, cell.method) not in new]
        self.cells = sorted([*kept, *cells], key=lambda cell: (cell.federation, cell.method, cell.seed))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_csv(self.path, [asdict(cell) for cell in self.cells])

    def of(self, federation: str) -> dict[str, list[Cell]]:
        """The cells of a federation, by method, each in the order of its seeds."""
        found: dict[str, list[Cell]] = {}
        for cell in self.cells:
            if cell.federation == federation:
                found.setdefault(cell.method, []).append(cell)
        return found


def _cell(path: Path, number: int, row: dict[str, str]) -> Cell:
    """A row of the file, its numbers read as numbers."""
    if list(row) != NAMES or None in row.values():
        raise PolyfedError(f"{path}: row {number} has not the columns {', '.join(NAMES)}")
    values: dict[str, object] = dict(row)
    for name in (*WHOLE, *REAL):
        text = row[name]
        try:
            values[name] = None if text == "" else int(text) if name in WHOLE else float(text)
        except ValueError:
            raise PolyfedError(f"{path}: row {number}, column '{name}': expected a number, found {text!r}") from None
    return Cell(**values)  # pyright: ignore[reportArgumentType]
