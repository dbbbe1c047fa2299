"""A column's part of a preparation, a class for each kind.

Each reads cells into values, (rows, k) with NaN where a cell is missing, and places values into features; it takes
values back out of features, and learns its numbers anew from other training rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.tables.cells import PARTS, Cells
from polyfed.data.tables.sums import Sums


@dataclass(frozen=True)
class Skipped:
    """A column that is left out, and why."""

    kind: ClassVar[str] = "skip"
    name: str
    why: str


@dataclass(frozen=True)
class Number:
    """(value - centre) / scale. A missing one is the mean, or `fill`; `complete`: it is refused instead."""

    kind: ClassVar[str] = "number"
    name: str
    missing: tuple[str, ...] = ()
    indicator: bool = False
    centre: float = 0.0
    scale: float = 1.0
    """0 where all training rows have the same value, so that only the indicator is left"""
    fill: float | None = None
    complete: bool = False

    @property
    def own_features(self) -> list[str]:
        return [self.name] if self.scale else []

    def read(self, cells: Cells) -> np.ndarray:
        values = cells.numbers
        if np.isinf(values).any():
            row = int(np.flatnonzero(np.isinf(values))[0])
            raise PolyfedError(
                f"column {self.name!r} is {values[row]} in row {row} (counted from 0), expected a number"
            )
        if self.complete and np.isnan(values).any():
            row = int(np.flatnonzero(np.isnan(values))[0])
            raise PolyfedError(
                f"column {self.name!r} is missing or no number in row {row} (counted from 0); the model knows "
                "complete columns only"
            )
        return values[:, None]

    def place(self, values: np.ndarray) -> np.ndarray:
        fill = self.centre if self.fill is None else self.fill
        known = np.where(np.isnan(values), fill, values)
        return (known - self.centre) / self.scale if self.scale else known[:, :0]

    def values(self, features: np.ndarray) -> np.ndarray:
        return features * self.scale + self.centre if self.scale else np.full((len(features), 1), self.centre)

    def relearned(self, values: np.ndarray) -> Self:
        if self.complete or not self.scale:
            return self
        sums = Sums.of(values[:, 0])
        return replace(self, centre=sums.mean, scale=sums.deviation or self.scale) if sums.count else self


@dataclass(frozen=True)
class YesNo:
    """1 for yes, 0 for no. A missing one is the commoner of the two, or `fill`."""

    kind: ClassVar[str] = "yes/no"
    name: str
    missing: tuple[str, ...] = ()
    indicator: bool = False
    commonest: float = 0.0
    fixed: bool = False
    """whether the user gave it"""

    @property
    def own_features(self) -> list[str]:
        return [self.name]

    def read(self, cells: Cells) -> np.ndarray:
        return cells.answers[:, None]

    def place(self, values: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(values), self.commonest, values)

    def values(self, features: np.ndarray) -> np.ndarray:
        return features

    def relearned(self, values: np.ndarray) -> Self:
        known = values[~np.isnan(values)]
        return self if self.fixed or not len(known) else replace(self, commonest=float(known.mean() > 0.5))


@dataclass(frozen=True)
class Category:
    """A feature for each category, one of them 1. Rare and unseen ones are "other"; a missing one is the commonest."""

    kind: ClassVar[str] = "category"
    name: str
    missing: tuple[str, ...] = ()
    indicator: bool = False
    categories: tuple[str, ...] = ()
    other: bool = False
    """whether training rows have others; if not, an unseen one has all features 0"""
    commonest: str = ""
    fixed: bool = False

    @property
    def own_features(self) -> list[str]:
        return [f"{self.name}={value}" for value in self.categories] + [f"{self.name}=other"] * self.other

    def read(self, cells: Cells) -> np.ndarray:
        places = {value: float(i) for i, value in enumerate(self.categories)}
        table = np.array([*(places.get(word, len(places)) for word in cells.words), math.nan])
        return table[cells.codes][:, None]

    def place(self, values: np.ndarray) -> np.ndarray:
        codes = np.where(np.isnan(values[:, 0]), self._place_of_commonest, values[:, 0])
        return (codes[:, None] == np.arange(len(self.own_features))).astype(np.float64)

    def values(self, features: np.ndarray) -> np.ndarray:
        return np.where(features.any(axis=1), features.argmax(axis=1), len(self.categories)).astype(float)[:, None]

    def relearned(self, values: np.ndarray) -> Self:
        known = values[~np.isnan(values)]
        known = known[known < len(self.categories)].astype(np.int64)
        if self.fixed or not len(known):
            return self
        counts = np.bincount(known, minlength=len(self.categories))
        ties = sorted(value for value, n in zip(self.categories, counts, strict=True) if n == counts.max())
        return replace(self, commonest=ties[0])

    @property
    def _place_of_commonest(self) -> int:
        return self.categories.index(self.commonest) if self.commonest in self.categories else len(self.categories)


@dataclass(frozen=True)
class Moment:
    """Year, month, weekday and hour. The year is standardized; a cycle is a point on a circle, its mean if missing."""

    kind: ClassVar[str] = "date"
    name: str
    missing: tuple[str, ...] = ()
    indicator: bool = False
    formats: tuple[str, ...] = ()
    """how sites write it, the first that reads a cell"""
    parts: tuple[str, ...] = ()
    """those that differ between training rows"""
    means: tuple[float, ...] = ()
    scale: float = 1.0
    """of the year"""

    @property
    def own_features(self) -> list[str]:
        return [f"{self.name} {part}" for part in self.parts]

    def read(self, cells: Cells) -> np.ndarray:
        values = cells.moments(self.formats[0])
        for format in self.formats[1:] if not cells.is_moment else ():
            values = np.where(np.isnan(values[:, -1:]), cells.moments(format), values)
        return values[:, [PARTS.index(part) for part in self.parts]]

    def place(self, values: np.ndarray) -> np.ndarray:
        shift, scale = self._year
        return (np.where(np.isnan(values), np.array(self.means), values) - shift) / scale

    def values(self, features: np.ndarray) -> np.ndarray:
        shift, scale = self._year
        return features * scale + shift

    def relearned(self, values: np.ndarray) -> Self:
        sums = [Sums.of(values[:, i]) for i in range(len(self.parts))]
        if not sums or not sums[0].count:
            return self
        scale = (sums[0].deviation or self.scale) if self.parts[0] == "year" else self.scale
        return replace(self, means=tuple(part.mean for part in sums), scale=scale)

    @property
    def _year(self) -> tuple[np.ndarray, np.ndarray]:
        """What each part is shifted and divided by."""
        year = np.array([part == "year" for part in self.parts], dtype=bool)
        return np.where(year, np.array(self.means), 0.0), np.where(year, self.scale, 1.0)


Used = Number | YesNo | Category | Moment
Column = Used | Skipped
KINDS: dict[str, type[Column]] = {cls.kind: cls for cls in (Number, YesNo, Category, Moment, Skipped)}
