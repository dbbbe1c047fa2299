"""What sites say of their columns in words, and the order in which their sums are then added up.

The words are few: which columns a site has, which categories enough of its rows share, how its dates are written.
All numbers are in one vector per site, of which only the sum over all sites is needed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject
from polyfed.data.tables.cells import FORMATS, PARTS
from polyfed.data.tables.sums import ColumnSums, SiteSums, Sums

MANY = 100
"""Whole numbers that differ in all rows of every site are an identifier, where a site has at least so many rows."""
CHOSEN = "chosen"
"""The format under which totals have the dates: each site's by the first format of the layout that it has."""
_COUNTS = ("present", "whole", "yes", "no", "distinct", "repeated", "length")


@dataclass(frozen=True)
class ColumnSchema:
    """One column at one site."""

    present: bool
    """whether a training row has it"""
    many: bool = False
    """whether at least MANY rows have it"""
    categories: tuple[str, ...] = ()
    """those that at least min_count rows have"""
    formats: tuple[str, ...] = ()
    """how its dates may be written"""
    exact: tuple[str, ...] = ()
    """those of the formats that read every cell"""


@dataclass(frozen=True)
class SiteSchema:
    """A site's columns, in its table's order; one that it lacks is not there."""

    site: str
    columns: dict[str, ColumnSchema]

    @classmethod
    def of(cls, sums: SiteSums) -> Self:
        return cls(sums.site, {name: _schema(about) for name, about in sums.columns.items()})

    def to_json(self) -> JsonObject:
        return asdict(self)


@dataclass(frozen=True)
class ColumnLayout:
    """The numbers of one column: counts, sums and squares, the rows of each category, the parts of dates."""

    name: str
    categories: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    """in the order in which they are tried"""

    @property
    def size(self) -> int:
        return len(_COUNTS) + 3 + len(self.categories) + 3 * len(PARTS) * bool(self.formats)

    def numbers(self, sums: ColumnSums) -> list[float]:
        """A site's, in this order; a category that it did not name has none."""
        counts = [float(getattr(sums, name)) for name in _COUNTS]
        values = [*counts, *_three(sums.numbers), *(float(sums.counts.get(word, 0)) for word in self.categories)]
        if self.formats:
            parts = next((sums.moments[format] for format in self.formats if format in sums.moments), {})
            values += [number for part in PARTS for number in _three(parts.get(part, Sums()))]
        return values

    def total(self, values: Sequence[float]) -> ColumnSums:
        """The way back, of a sum over sites."""
        start = len(_COUNTS)
        counts = {name: round(value) for name, value in zip(_COUNTS, values, strict=False)}
        words = values[start + 3 : start + 3 + len(self.categories)]
        moments = {}
        if self.formats:
            first = start + 3 + len(self.categories)
            moments[CHOSEN] = {part: _sums(values[first + 3 * i :]) for i, part in enumerate(PARTS)}
        named = {word: round(n) for word, n in zip(self.categories, words, strict=True)}
        return ColumnSums(numbers=_sums(values[start:]), moments=moments, counts=named, **counts)


@dataclass(frozen=True)
class Layout:
    """The order of all numbers: the rows, then column after column."""

    columns: tuple[ColumnLayout, ...]

    @cached_property
    def size(self) -> int:
        return 1 + sum(column.size for column in self.columns)

    def vector(self, site: SiteSums) -> np.ndarray:
        """A site's numbers; those of columns that it lacks are 0."""
        known = [column.numbers(site.columns.get(column.name, ColumnSums())) for column in self.columns]
        return np.array([float(site.rows), *(number for numbers in known for number in numbers)])

    def totals(self, vector: np.ndarray) -> SiteSums:
        """The sums of all sites together."""
        values, columns, start = vector.tolist(), {}, 1
        for column in self.columns:
            columns[column.name] = column.total(values[start : start + column.size])
            start += column.size
        return SiteSums("", round(values[0]), columns)

    def to_json(self) -> list[JsonObject]:
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, given: Iterable[Mapping[str, Any]]) -> Self:
        try:
            columns = [
                ColumnLayout(str(about["name"]), *(tuple(map(str, about[key])) for key in ("categories", "formats")))
                for about in given
            ]
        except (KeyError, TypeError) as error:
            raise PolyfedError(f"the layout of sums cannot be read: {error!r}") from None
        return cls(tuple(columns))


def agreed_layout(schemas: Sequence[SiteSchema], order: Sequence[str] = ()) -> Layout:
    """All columns that any site has: those of `order` first, then as they first appear."""
    names = dict.fromkeys(name for schema in schemas for name in schema.columns)
    ordered = [*(name for name in order if name in names), *(name for name in names if name not in order)]
    return Layout(tuple(_layout(name, [s.columns[name] for s in schemas if name in s.columns]) for name in ordered))


def added(vectors: Iterable[np.ndarray]) -> np.ndarray:
    """The sum of vectors. Each number is rounded once, so that the order of the sites does not matter."""
    return np.array([math.fsum(values) for values in np.stack(list(vectors)).T.tolist()])


def _layout(name: str, sites: list[ColumnSchema]) -> ColumnLayout:
    return ColumnLayout(name, tuple(sorted({word for site in sites for word in site.categories})), _formats(sites))


def _formats(sites: list[ColumnSchema]) -> tuple[str, ...]:
    """How dates are written: what most sites can read, and what the others write."""
    readers = Counter(format for site in sites for format in site.formats)
    unread, chosen = [site for site in sites if site.formats], []
    for format in sorted(readers, key=lambda format: (-readers[format], _rank(format))):
        if any(format in site.formats for site in unread):
            chosen.append(format)
            unread = [site for site in unread if format not in site.formats]
    return tuple(chosen)


def _rank(format: str) -> tuple[int, str]:
    return FORMATS.index(format) if format in FORMATS else -1, format


def _schema(sums: ColumnSums) -> ColumnSchema:
    exact = tuple(format for format, parts in sums.moments.items() if parts[PARTS[-1]].count == sums.present)
    return ColumnSchema(sums.present > 0, sums.present >= MANY, tuple(sorted(sums.counts)), tuple(sums.moments), exact)


def _three(sums: Sums) -> list[float]:
    return [float(sums.count), sums.total, sums.squares]


def _sums(values: Sequence[float]) -> Sums:
    return Sums(round(values[0]), values[1], values[2])
