"""The cells of one column, read as numbers, as words, as answers (yes or no) or as moments."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pandas import Series

MISSING = frozenset(("", "?", "-", ".", "NA", "N/A", "n/a", "<NA>", "NaN", "nan", "NaT", "null", "NULL", "None"))
"""Words that mean a missing cell, beside empty cells."""
MISSING_IN_ANY_CASE = frozenset(
    (
        *("--", "#n/a", "n.a.", "unknown", "missing", "not available", "not known"),
        *("k.a.", "k. a.", "keine angabe", "unbekannt", "fehlt", "inconnu"),
    )
)
YES = frozenset(("yes", "y", "true", "t", "ja", "j", "oui", "si", "sí", "1"))
NO = frozenset(("no", "n", "false", "f", "nein", "non", "0"))
ISO, TIME = "iso", "time"
FORMATS = (
    ISO,
    "%d.%m.%Y",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y %H:%M:%S",
    "%d/%m/%Y",
    "%d/%m/%Y %H:%M",
    "%m/%d/%Y",
    "%m/%d/%Y %H:%M",
    "%Y/%m/%d",
    "%Y/%m/%d %H:%M",
    TIME,
    "%d/%m/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M:%S",
    "%m/%d/%Y %I:%M %p",
    "%m/%d/%Y %I:%M:%S %p",
    "%d-%m-%Y",
    "%d-%m-%Y %H:%M",
    "%m-%d-%Y",
    "%d-%b-%Y",
    "%d %b %Y",
    "%d %B %Y",
    "%b %d, %Y",
    "%B %d, %Y",
    "%d.%m.%y",
    "%d/%m/%y",
    "%m/%d/%y",
)
"""How dates are written, the first that reads most cells: ISO 8601, the others as strftime has them, hours alone."""
PARTS = ("year", "month sin", "month cos", "weekday sin", "weekday cos", "hour sin", "hour cos")
"""What is made of a moment: the year, and three cycles as points on a circle."""
TRIED = 100
"""About so many words are tried before all are read as dates."""
_CODE = re.compile(r"0\d{2,}")
"""A whole number that begins with 0, such as a postcode, is a word."""
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
"""A number whose thousands are set apart, as a DataFrame may have it; a CSV's are plain by now."""
_LIKE_A_DATE = re.compile(
    r"\d{1,4}[-./:]\d{1,2}([-./:]\d{1,4})?([T ]\d.*)?(Z|[+-]\d\d:?\d\d)?"
    r"|\d{1,2}[- ][A-Za-z]{3,9}[- ]\d{4}|[A-Za-z]{3,9} \d{1,2}, \d{4}"
)


class Cells:
    """One column of some rows. A cell that cannot be read is missing in that reading."""

    def __init__(self, column: Series, missing: Sequence[str] = ()) -> None:
        import pandas as pd

        self.name, self._missing = str(column.name), frozenset(missing)
        if pd.api.types.is_timedelta64_dtype(column):
            column = column.dt.total_seconds()
        self.is_moment = pd.api.types.is_datetime64_any_dtype(column)
        self.is_number = pd.api.types.is_numeric_dtype(column) and column.dtype.kind != "c"
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    @cached_property
    def _coded(self) -> tuple[np.ndarray, np.ndarray]:
        """(each row's place among the distinct words, -1 where it is missing; the distinct words)."""
        import pandas as pd

        try:
            codes, values = pd.factorize(self._column)
        except TypeError:  # lists and the like
            codes, values = pd.factorize(self._column.map(str, na_action="ignore"))
        cells = [spelt(value) for value in values.tolist()]
        words, merged = np.unique(np.array([*cells, ""], dtype=object), return_inverse=True)
        gone = np.array([is_missing(word) or word in self._missing for word in words])
        kept = np.cumsum(~gone) - 1
        place = np.where(gone, -1, kept)[merged]  # the last is that of the empty word, for codes of -1
        return place[codes], words[~gone]

    @property
    def codes(self) -> np.ndarray:
        """Each row's place among `words`, -1 where the cell is missing."""
        return self._coded[0]

    @cached_property
    def words(self) -> list[str]:
        """The distinct words, in sorted order."""
        return self._coded[1].tolist()

    @cached_property
    def present(self) -> np.ndarray:
        """Which cells are not missing."""
        if self.is_number:
            return ~np.isnan(self.numbers)
        if self.is_moment:
            return np.asarray(self._column.notna())
        return self.codes >= 0

    @cached_property
    def numbers(self) -> np.ndarray:
        """Float64, NaN where the cell is missing or no number; infinite ones stay."""
        if not self.is_number:
            return self._read(_number)
        values = self._column.to_numpy(dtype=np.float64, na_value=np.nan)
        absent = [number for number in map(_number, self._missing) if not math.isnan(number)]
        return np.where(np.isin(values, absent), np.nan, values) if absent else values

    @cached_property
    def answers(self) -> np.ndarray:
        """1.0 for yes, 0.0 for no, NaN for anything else."""
        if self.is_number:
            return np.where(np.isin(self.numbers, (0.0, 1.0)), self.numbers, np.nan)
        return self._read(lambda word: 1.0 if word.lower() in YES else 0.0 if word.lower() in NO else math.nan)

    def moments(self, format: str) -> np.ndarray:
        """(rows, PARTS), NaN where the cell is missing or not written like this; hours alone have no date."""
        import pandas as pd

        if self.is_moment:
            zone = getattr(self._column.dtype, "tz", None)
            return _parts(pd.DatetimeIndex(self._column if zone is None else self._column.dt.tz_convert("UTC")))
        table = np.full((len(self.words) + 1, len(PARTS)), np.nan)
        if self._dates:
            table[self._dates] = _parsed([self.words[i] for i in self._dates], format)
        return table[self.codes]  # the last line, of -1, is NaN

    @cached_property
    def _dates(self) -> list[int]:
        """Where among the words those are that look like a date or a time."""
        return [i for i, word in enumerate(self.words) if _LIKE_A_DATE.fullmatch(word)]

    def fits(self, format: str) -> bool:
        """Whether some of the first words that look like dates are written like this."""
        words = self.words
        some = [words[i] for i in self._dates[:: max(1, len(self._dates) // TRIED)]]
        return bool(some) and not np.isnan(_parsed(some, format)[:, -1]).all()

    def _read(self, rule: Callable[[str], float]) -> np.ndarray:
        return np.array([*map(rule, self.words), math.nan])[self.codes]


def spelt(value: object) -> str:
    """A value as a word: whole numbers as 7, whether or not missing ones elsewhere made them 7.0."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def is_missing(word: str) -> bool:
    """Whether a word means that the cell is missing."""
    return word in MISSING or word.lower() in MISSING_IN_ANY_CASE


def is_number(word: str) -> bool:
    """Whether a word is read as a number."""
    return not math.isnan(_number(word))


def _number(word: str) -> float:
    if _CODE.fullmatch(word):
        return math.nan
    try:
        value = float(word.replace(",", "") if _THOUSANDS.fullmatch(word) else word)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _parsed(words: list[str], format: str) -> np.ndarray:
    import pandas as pd

    if format == TIME:
        read = [pd.to_datetime(words, format=time, errors="coerce") for time in ("%H:%M", "%H:%M:%S")]
        parts = _parts(read[0].where(read[0].notna(), read[1]))
        parts[:, :-2] = np.nan
        return parts
    if format == ISO:
        dated = [word if re.match(r"\d{4}-", word) else None for word in words]
        return _parts(pd.DatetimeIndex(pd.to_datetime(dated, format="ISO8601", errors="coerce", utc=True)))
    return _parts(pd.DatetimeIndex(pd.to_datetime(words, format=format, errors="coerce")))


def _parts(moments: Any) -> np.ndarray:
    """The parts of a DatetimeIndex. Cycles: 12 months, 7 days, 24 hours."""
    cycles = (
        (moments.month.to_numpy(np.float64) - 1) / 12,
        moments.day_of_week.to_numpy(np.float64) / 7,
        (moments.hour.to_numpy(np.float64) + moments.minute.to_numpy(np.float64) / 60) / 24,
    )
    circle = [part for turn in cycles for part in (np.sin(2 * np.pi * turn), np.cos(2 * np.pi * turn))]
    return np.column_stack([moments.year.to_numpy(np.float64), *circle])
