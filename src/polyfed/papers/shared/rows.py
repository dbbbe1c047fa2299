"""A reproduction's rows: reading them from a file, and picking values by seed."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.papers.shared.experiment import Row


class NoRows(PolyfedError):
    """What a claim or a picture is about was not measured."""


def read_rows(file: Path) -> list[Row]:
    """The rows of a data.csv: numbers as numbers; an empty cell is a column that the row does not have."""
    if not file.is_file():
        raise PolyfedError(f"{file}: no stored rows to draw from; leave out --redraw to run the experiment")
    with file.open(newline="") as lines:
        return [{key: _value(cell) for key, cell in row.items() if cell != ""} for row in csv.DictReader(lines)]


def tidy(rows: Iterable[Row]) -> list[Row]:
    """Rows as they would come back from a file: columns without a value are left out."""
    return [{key: value for key, value in row.items() if value is not None and value != ""} for row in rows]


def rounded(row: Row, digits: int = 6) -> Row:
    """A row to be stored: its real numbers to so many digits."""
    return {key: float(f"{value:.{digits}g}") if isinstance(value, float) else value for key, value in row.items()}


def where(rows: Iterable[Row], /, **facts: object) -> list[Row]:
    """The rows whose columns have these values; None: that do not have the column."""
    return [row for row in rows if all(row.get(key) == value for key, value in facts.items())]


def distinct(rows: Iterable[Row], column: str) -> list:
    """The values of a column, in the order in which they appear."""
    return list(dict.fromkeys(row[column] for row in rows if column in row))


def ends(rows: Iterable[Row], name: str, /, **facts: Any) -> np.ndarray:
    """A column's last value (in the latest round) of each seed, by seed."""
    latest: dict[int, Row] = {}
    for row in where(rows, **facts):
        if name in row and row.get("round", 0) >= latest.get(row["seed"], row).get("round", 0):
            latest[row["seed"]] = row
    if not latest:
        raise NoRows(f"no row has {name!r} where {', '.join(f'{key} is {value}' for key, value in facts.items())}")
    return np.array([latest[seed][name] for seed in sorted(latest)], float)


def mean_curve(rows: Iterable[Row], name: str, x: str = "round", /, **facts: Any) -> tuple[np.ndarray, np.ndarray]:
    """(x, mean over seeds) of a column."""
    values: dict[float, list[float]] = {}
    for row in where(rows, **facts):
        if name in row:
            values.setdefault(row[x], []).append(row[name])
    points = sorted(values)
    return np.array(points, float), np.array([np.mean(values[point]) for point in points])


def _value(cell: str) -> float | int | bool | str:
    if cell in ("True", "False"):
        return cell == "True"
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell


def column(rows: Sequence[Row], name: str) -> np.ndarray:
    return np.array([row[name] for row in rows], float)
