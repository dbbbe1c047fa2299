"""What sites with tables tell before round 1, read against a schema with bounds: columns in words, then sums."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject
from polyfed.data.tables.overrides import Override, read_overrides
from polyfed.data.tables.preparation import Preparation
from polyfed.data.tables.schema import ColumnSchema, Layout, SiteSchema
from polyfed.data.tables.sums import MIN_COUNT, Sums
from polyfed.deploy.protocol.plain_values import Refused

MOST_COLUMNS, MOST_WORDS, LONGEST_WORD = 10_000, 10**6, 256
LARGEST_SUM = 1e30
"""Of a number in a site's sums."""


@dataclass(frozen=True)
class TableSettings:
    """What the server says of tables: its section [data]."""

    features: tuple[str, ...] = ()
    """the columns to use, in this order; none named: all that any site has"""
    columns: JsonObject = field(default_factory=dict)
    """what is known of columns beforehand, see [data.columns]"""
    min_count: int = MIN_COUNT
    """the fewest rows of a site that a category must have to be named"""
    prepare: bool | None = None
    """None: where a site has anything but numbers without gaps, or sites differ in their columns"""

    @property
    def overrides(self) -> dict[str, Override]:
        return read_overrides(self.columns)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of(cls, given: Mapping[str, Any], where: str) -> Self:
        """A section, or what came in a message; a wrong key is named."""
        made = cls(**{**given, "features": tuple(given.get("features", ()))})
        if not all(isinstance(name, str) for name in made.features) or len(set(made.features)) < len(made.features):
            raise PolyfedError(f"{where}features must be different names of columns, found {list(made.features)}")
        if isinstance(made.min_count, bool) or not isinstance(made.min_count, int) or made.min_count < 1:
            raise PolyfedError(f"{where}min_count must be a whole number above 0, found {made.min_count!r}")
        if made.prepare not in (None, True, False):
            raise PolyfedError(f"{where}prepare must be true or false, found {made.prepare!r}")
        if made.prepare is False and made.columns:
            raise PolyfedError(f"{where}columns says how to prepare tables, and prepare is false")
        read_overrides(made.columns)
        return made

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            return cls.of(json.loads(text), "")
        except (TypeError, ValueError, AttributeError) as error:
            raise Refused(f"the question about tables cannot be read ({type(error).__name__})") from None


@dataclass(frozen=True)
class TableSchema:
    """A site's answer in words."""

    complete: bool
    """whether all of it is numbers without gaps"""
    schema: SiteSchema

    def to_json(self) -> str:
        return json.dumps({"complete": self.complete, "columns": self.schema.to_json()["columns"]})


def read_schema(site: str, given: Mapping[str, object]) -> TableSchema | None:
    """A site's answer; None from one whose rows are no table."""
    if given == {}:
        return None
    complete, columns = given.get("complete"), given.get("columns")
    if set(given) != {"complete", "columns"} or not isinstance(complete, bool) or not isinstance(columns, dict):
        raise Refused("what it says of its table must be complete, and columns")
    if len(columns) > MOST_COLUMNS:
        raise Refused(f"a table may have at most {MOST_COLUMNS} columns, found {len(columns)}")
    read = {_word(name, "a column's name"): _column(name, about) for name, about in columns.items()}
    if sum(len(column.categories) for column in read.values()) > MOST_WORDS:
        raise Refused(f"a table may have at most {MOST_WORDS} categories")
    return TableSchema(complete, SiteSchema(site, read))


def _column(name: str, about: object) -> ColumnSchema:
    keys = ("present", "many", "categories", "formats", "exact")
    if not isinstance(about, dict) or set(about) != set(keys):
        raise Refused(f"column {name!r:.80} must have {', '.join(keys)}")
    if not isinstance(about["present"], bool) or not isinstance(about["many"], bool):
        raise Refused(f"column {name!r:.80}: present and many must be true or false")
    words = []
    for key in keys[2:]:
        given = about[key]
        if not isinstance(given, list) or len(given) > MOST_WORDS:
            raise Refused(f"column {name!r:.80}: {key} must be a list of words")
        words.append(tuple(_word(word, f"{key} of column {name!r:.80}") for word in given))
        if len(set(words[-1])) < len(words[-1]):
            raise Refused(f"column {name!r:.80}: {key} must be different words")
    return ColumnSchema(about["present"], about["many"], *words)


def _word(value: object, what: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_WORD:
        raise Refused(f"{what} must be a text of 1 to {LONGEST_WORD} letters")
    return value


def read_layout(text: str) -> Layout:
    """The layout that a server asks a site's sums for."""
    try:
        layout = Layout.from_json(json.loads(text))
    except (PolyfedError, ValueError, RecursionError) as error:
        raise Refused(f"the layout of sums cannot be read ({type(error).__name__})") from None
    if len(layout.columns) > MOST_COLUMNS or layout.size > 100 * MOST_WORDS:
        raise Refused("the layout of sums is too large")
    return layout


def check_sums(vector: np.ndarray, layout: Layout, most_rows: int) -> None:
    """Refuse numbers that no rows can have: counts beyond the rows, sums that do not go with their squares."""
    if vector.shape != (layout.size,) or vector.dtype != np.float64:
        raise Refused(f"its sums are {vector.dtype}{list(vector.shape)}, expected float64[{layout.size}]")
    if not np.isfinite(vector).all() or np.abs(vector).max() > LARGEST_SUM:
        raise Refused(f"its sums must be finite numbers, at most {LARGEST_SUM:g}")
    sums = layout.totals(vector)
    if not 0 < sums.rows <= most_rows:
        raise Refused(f"its rows must be 1 to {most_rows}, found {sums.rows}")
    for name, column in sums.columns.items():
        counts = (column.present, column.whole, column.yes, column.no, column.distinct, column.repeated)
        if not all(0 <= count <= sums.rows for count in (*counts, *column.counts.values())) or column.length < 0:
            raise Refused(f"column {name!r:.80}: a count that {sums.rows} rows cannot have")
        for three in (column.numbers, *(part for parts in column.moments.values() for part in parts.values())):
            _check_three(name, three, sums.rows)


def _check_three(name: str, sums: Sums, rows: int) -> None:
    if not 0 <= sums.count <= rows or sums.squares < 0:
        raise Refused(f"column {name!r:.80}: a count or a sum of squares that {rows} rows cannot have")
    if sums.total**2 > sums.count * sums.squares * (1 + 1e-9) + 1e-9:
        raise Refused(f"column {name!r:.80}: a sum that does not go with its squares")


def read_preparation(given: object) -> JsonObject | None:
    """A preparation as JSON, if it is one."""
    if given is None:
        return None
    if not isinstance(given, dict):
        raise Refused("a preparation must be a JSON object")
    try:
        Preparation.from_json(given)
    except Exception as error:
        raise Refused(f"the preparation cannot be read ({type(error).__name__})") from None
    return given
