"""The preparation, a part of the model: from a table's columns, by their names, to the features that a model sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject
from polyfed.data.tables.cells import Cells
from polyfed.data.tables.columns import KINDS, Column, Number, Skipped, Used

if TYPE_CHECKING:
    from pandas import DataFrame

FORMAT = 1


@dataclass(frozen=True)
class Preparation:
    """What becomes of each column, in the order of the features."""

    columns: tuple[Column, ...]
    lacking: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """by site, the columns that none of its training rows has"""
    notes: tuple[str, ...] = ()
    """what a reader should know of how the table was read"""

    @classmethod
    def plain(cls, names: Sequence[str]) -> Self:
        """Of a table of complete numbers, which stay as they are."""
        return cls(tuple(Number(name, complete=True) for name in names))

    @property
    def is_plain(self) -> bool:
        """Whether numbers stay as they are."""
        return all(isinstance(column, Number) and column.complete for column in self.columns)

    @property
    def used(self) -> list[Used]:
        return [column for column in self.columns if not isinstance(column, Skipped)]

    @property
    def left_out(self) -> list[Skipped]:
        return [column for column in self.columns if isinstance(column, Skipped)]

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.used for name in features_of(column))

    def told(self) -> list[str]:
        """What a reader should know: which columns are left out and why, and what could not be read."""
        gone = ", ".join(f"{column.name} ({column.why})" for column in self.left_out)
        return ([f"columns left out: {gone}"] if gone else []) + list(self.notes)

    def apply(self, rows: DataFrame, unread: list[str] | None = None) -> np.ndarray:
        """(rows, features) in float64; columns in any order, and others may be there. A lacking column is missing.

        `unread` takes a sentence for each column with cells that are there and cannot be read.
        """
        import pandas as pd

        blocks, table = [np.zeros((len(rows), 0))], cast(Any, rows)  # the stubs let rows[name] be a DataFrame
        for column in self.used:
            cells = table[column.name] if column.name in rows.columns else None
            if cells is None:
                if isinstance(column, Number) and column.complete:
                    raise PolyfedError(f"there is no column {column.name!r}")
                cells = pd.Series([np.nan] * len(rows), name=column.name)
            read = Cells(cells, column.missing)
            values = column.read(read)
            blocks.append(_placed(column, values))
            lost = 0 if unread is None else int((read.present & np.isnan(values).all(axis=1)).sum())
            if unread is not None and lost:
                some = f"{lost:,} of {len(rows):,} cells"
                unread.append(
                    f"column {column.name!r}: {some} cannot be read as a {column.kind}; they count as missing"
                )
        return np.column_stack(blocks)

    def check_columns(self, rows: DataFrame, site: str) -> None:
        """Refuse rows without a column that the site had in training."""
        for column in self.used:
            if column.name not in rows.columns and column.name not in self.lacking.get(site, ()):
                raise PolyfedError(f"there is no column {column.name!r}, which site {site!r} had in training")

    def relearned(self, features: np.ndarray) -> Self:
        """With means, scales and commonest values of these training rows, given as features; categories stay."""
        columns = {column.name: column.relearned(values) for column, values in self._values(features)}
        return type(self)(tuple(columns.get(column.name, column) for column in self.columns), self.lacking, self.notes)

    def recoded(self, features: np.ndarray, other: Preparation) -> np.ndarray:
        """Features of this preparation as those of one that `relearned` made of it."""
        new = {column.name: column for column in other.used}
        blocks = [_placed(new[column.name], values) for column, values in self._values(features)]
        return np.column_stack(blocks) if blocks else features

    def blocks(self) -> Iterator[tuple[Used, slice]]:
        """Each used column and where its features are."""
        start = 0
        for column in self.used:
            yield column, slice(start, end := start + len(features_of(column)))
            start = end

    def _values(self, features: np.ndarray) -> Iterator[tuple[Used, np.ndarray]]:
        """Each column's values, taken back out of features."""
        for column, place in self.blocks():
            block = features[:, place]
            if not column.indicator:
                yield column, column.values(block)
                continue
            yield column, np.where(block[:, -1:] > 0, np.nan, column.values(block[:, :-1]))

    def to_json(self) -> JsonObject:
        return {
            "format": FORMAT,
            "columns": [{"kind": column.kind, **asdict(column)} for column in self.columns],
            "lacking": {site: list(names) for site, names in self.lacking.items()},
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        try:
            if given["format"] != FORMAT:
                raise PolyfedError(f"a preparation in format {given['format']!r}, expected {FORMAT}")
            columns = tuple(_column(dict(about)) for about in given["columns"])
            lacking = {site: tuple(names) for site, names in given["lacking"].items()}
            return cls(columns, lacking, tuple(given["notes"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise PolyfedError(f"a preparation that cannot be read: {error!r}") from None


def features_of(column: Used) -> list[str]:
    """The names of a column's features; the indicator is the last."""
    return column.own_features + [f"{column.name} missing"] * column.indicator


def _placed(column: Used, values: np.ndarray) -> np.ndarray:
    block = column.place(values)
    if not column.indicator:
        return block
    gone = np.isnan(values).all(axis=1) if values.shape[1] else np.zeros(len(values), bool)
    return np.column_stack([block, gone.astype(np.float64)])


def _column(about: JsonObject) -> Column:
    kind: Any = KINDS[about.pop("kind")]
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in about.items()})
