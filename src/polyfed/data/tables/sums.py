"""What a site tells about its training rows: counts, sums, squares and category counts, of all readings of a column.

They are all that a preparation is learned from. No row leaves the site, nor a word that fewer than `min_count` of its
rows have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from polyfed.data.tables.cells import FORMATS, PARTS, Cells
from polyfed.data.tables.overrides import Override

if TYPE_CHECKING:
    from pandas import DataFrame

MIN_COUNT = 5
"""The fewest rows of a site that a category must have to be named to others."""
MOSTLY = 0.9
"""The share of a column's present cells that must be readable for it to be of a kind."""


@dataclass(frozen=True)
class Sums:
    """Of some numbers: how many, their sum, the sum of their squares."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        """Of those that are not NaN. Each sum is rounded once, so that the order of the rows does not matter."""
        known = values[~np.isnan(values)].tolist()
        return cls(len(known), math.fsum(known), math.fsum(value * value for value in known))

    @classmethod
    def merged(cls, several: Iterable[Sums]) -> Self:
        parts = list(several)
        return cls(
            sum(part.count for part in parts),
            math.fsum(part.total for part in parts),
            math.fsum(part.squares for part in parts),
        )

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation; 0 where it is lost in the rounding of the squares."""
        if not self.count:
            return 0.0
        square = self.squares / self.count
        variance = square - self.mean**2
        return math.sqrt(variance) if variance > 1e-10 * square else 0.0


@dataclass(frozen=True)
class ColumnSums:
    """One column at one site. It has all readings of the cells that the federation needs to choose among."""

    present: int = 0
    numbers: Sums = field(default_factory=Sums)
    whole: int = 0
    """cells that are whole numbers"""
    yes: int = 0
    no: int = 0
    moments: dict[str, dict[str, Sums]] = field(default_factory=dict)
    """by format, of those that most cells have: the parts of the moments"""
    distinct: int = 0
    """different words"""
    repeated: int = 0
    """rows whose word another row of this site has, too"""
    length: int = 0
    """words separated by blanks, in all cells together"""
    counts: dict[str, int] = field(default_factory=dict)
    """rows of each category that has at least min_count of them"""


@dataclass(frozen=True)
class SiteSums:
    """One site: its training rows, and its columns; one that it lacks is not there."""

    site: str
    rows: int
    columns: dict[str, ColumnSums]


def site_sums(
    site: str, rows: DataFrame, columns: Iterable[str], overrides: Mapping[str, Override], min_count: int
) -> SiteSums:
    """The sums of a site's training rows, of those of `columns` that it has."""
    there, table = {}, cast(Any, rows)  # the stubs let rows[name] be a DataFrame
    for name in columns:
        if name in rows.columns:
            said = overrides.get(name, Override())
            there[name] = column_sums(Cells(table[name], said.missing), said, min_count)
    return SiteSums(site, len(rows), there)


def column_sums(cells: Cells, said: Override, min_count: int) -> ColumnSums:
    """Of one column. Words are counted only where it is neither numbers nor dates, or said to be a category."""
    present = int(cells.present.sum())
    if said.kind == "skip" or not present:
        return ColumnSums(present)
    enough = MOSTLY * present
    moments = {} if cells.is_number else _moments(cells, said, enough)
    if cells.is_moment:
        return ColumnSums(present, moments=moments)
    numbers = Sums.of(np.where(np.isinf(cells.numbers), np.nan, cells.numbers))
    known = cells.numbers[~np.isnan(cells.numbers)]
    whole = int((known == np.floor(known)).sum())
    answers = cells.answers
    yes, no = (int((answers == value).sum()) for value in (1, 0))
    if said.kind is None and (moments or (numbers.count >= enough and whole < numbers.count)):
        return ColumnSums(present, numbers, whole, yes, no, moments)
    counts = np.bincount(cells.codes[cells.codes >= 0], minlength=len(cells.words))
    named = {}
    if said.kind == "category" or (said.kind is None and numbers.count < enough):
        named = {word: int(n) for word, n in zip(cells.words, counts, strict=True) if n >= min_count}
    return ColumnSums(
        present,
        numbers,
        whole,
        yes,
        no,
        moments,
        distinct=len(cells.words),
        repeated=int(counts[counts > 1].sum()),
        length=int(sum(n * len(word.split()) for word, n in zip(cells.words, counts, strict=True))),
        counts=named,
    )


def _moments(cells: Cells, said: Override, enough: float) -> dict[str, dict[str, Sums]]:
    """The parts by format, of the formats that read enough cells; a given one reads what it can."""
    formats = FORMATS if said.format is None else (said.format,)
    if said.kind not in (None, "date"):
        return {}
    moments = {}
    for format in formats[:1] if cells.is_moment else filter(cells.fits, formats):
        parts = cells.moments(format)
        read = int((~np.isnan(parts[:, -1])).sum())
        if read and (read >= enough or said.kind == "date"):
            moments[format] = {part: Sums.of(parts[:, i]) for i, part in enumerate(PARTS)}
    return moments
