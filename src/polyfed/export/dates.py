"""Dates that are words, read within an ONNX graph: by the same formats as `data.tables.cells`, to the same numbers."""

from __future__ import annotations

import calendar
import math
import re
from collections.abc import Iterator
from itertools import product

import numpy as np
from onnx import TensorProto

from polyfed.core.errors import PolyfedError
from polyfed.data.tables.cells import ISO, PARTS, TIME
from polyfed.export.graph import Graph, Value

_ISO = (
    r"\d{4}-\d{1,2}(-\d{1,2}([T ](\d{2}|\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{1,9})?)?)"
    r"( ?(Z|[+-]([01]\d|2[0-3])(:?(00|15|30|45))?))?)?)?"
)
_TWO = {"%d": (1, 31), "%m": (1, 12), "%H": (0, 23), "%I": (1, 12), "%M": (0, 59), "%S": (0, 59)}
"""The directives of one or two digits, and the range of each."""
_YEARS = {"%Y": r"\d{4}", "%y": r"\d{2}"}
_WORDS = {
    "%b": {name.lower(): n for n, name in enumerate(calendar.month_abbr) if name},
    "%B": {name.lower(): n for n, name in enumerate(calendar.month_name) if name},
    "%p": {"am": 0, "pm": 12},
}
"""The directives that are words, in small letters or large ones, and what each word means."""
_MONTHS = ("%m", "%b", "%B")
_DAYS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)
_FROM_MARCH = 2
"""Days are counted from the first of March of year 0, a Wednesday, where Monday is 0."""


def moments(graph: Graph, words: Value, formats: tuple[str, ...], name: str) -> Value:
    """(rows, PARTS) of words (rows,), NaN where no format reads one; see `Cells.moments`."""
    words = graph("Concat", words, graph.constant([""]), axis=0)  # so that there is a row
    parts = ""
    for format in formats:
        read = _read(graph, words, format, name)
        if parts:
            unread = graph("IsNaN", graph("Slice", parts, *_ints(graph, [-1], [len(PARTS)], [1])))
            read = graph("Where", unread, read, parts)
        parts = read
    return graph("Slice", parts, *_ints(graph, [0], [-1], [0]))


def _read(graph: Graph, words: Value, format: str, name: str) -> Value:
    if format == ISO:
        return _iso(graph, words)
    if format == TIME:
        return _written(graph, words, "%H:%M", name, optional=r"(:\d{1,2})?", dated=False)
    return _written(graph, words, format, name)


def _written(graph: Graph, words: Value, format: str, name: str, *, optional: str = "", dated: bool = True) -> Value:
    """What a format of strftime reads: fields, and what stands between them."""
    pieces = re.split(r"(%.)", format)
    fields, between = pieces[1::2], pieces[2::2]
    whole = "%d" in fields and all(sum(field in kind for field in fields) == 1 for kind in (_YEARS, _MONTHS))
    known = set(fields) <= {*_YEARS, *_TWO, *_WORDS} and ("%I" in fields) == ("%p" in fields)
    if pieces[0] or between[-1] or not all(between[:-1]) or not (whole or not dated) or not known:
        raise PolyfedError(f"column {name!r}: dates written as {format!r} do not fit into ONNX")
    patterns = {**_YEARS, **{field: f"(?i:{'|'.join(words)})" for field, words in _WORDS.items()}}
    pattern = "".join(
        patterns.get(field, r"\d{1,2}") + re.escape(text) for field, text in zip(fields, between, strict=True)
    )
    instead = {"%Y": "2000", **{field: next(iter(words)) for field, words in _WORDS.items()}}
    example = "".join(instead.get(field, "01") + text for field, text in zip(fields, between, strict=True))
    read = graph("RegexFullMatch", words, pattern=pattern + optional)
    rest, values = graph("Where", read, words, graph.constant(example)), {}
    if optional:
        rest = graph("StringConcat", rest, graph.constant(":"))
        between[-1] = ":"
    for field, text in zip(fields, between, strict=True):
        word, rest = _split(graph, rest, text) if text else (rest, "")
        kind = "year" if field in _YEARS else "month" if field in _MONTHS else field
        values[kind] = _field(graph, field, word)
    given = [values["year"], values["month"], values["%d"]] if dated else None
    hour, minute = (values[field] if field in values else graph.whole(0) for field in ("%H", "%M"))
    if "%p" in values:  # 12 AM is 0, and an hour that is none stays so
        twelve = graph.cast(graph("Equal", values["%I"], graph.whole(12)), TensorProto.INT64)
        hour = graph("Sub", graph("Add", values["%I"], values["%p"]), graph("Mul", twelve, graph.whole(12)))
        hour = graph("Where", _at_least(graph, values["%I"], 1), hour, graph.whole(-1))
    return _parts(graph, read, given, hour, minute)


def _iso(graph: Graph, words: Value) -> Value:
    """ISO 8601; what follows the month may be missing. Separators are put where they may be missing, then cut off."""
    read = graph("RegexFullMatch", words, pattern=_ISO)
    rest = graph("Where", read, words, graph.constant("2000-01-01"))
    year, rest = _cut(graph, rest, "-")
    month, rest = _cut(graph, rest, "-")
    head, tail = _cut(graph, rest, "T")
    day, rest = _split(graph, graph("StringConcat", graph("StringConcat", head, graph.constant(" ")), tail), " ")
    day, _ = _cut(graph, day, "-")
    rest, ahead = _cut(graph, rest, "+")
    rest, behind = _cut(graph, rest, "-")
    rest, _ = _cut(graph, rest, "Z")
    hour, rest = _cut(graph, rest, ":")
    minute, _ = _cut(graph, rest, ":")
    numbers = [
        graph.look_up(year, {f"{n:04d}": n for n in range(1, 10_000)}, -1),
        graph.look_up(month, _numbers(1, 12), -1),
        graph.look_up(day, {"": 1} | _numbers(1, 31), -1),
    ]
    absent = {"": 0, " ": 0}
    hours = graph.look_up(hour, absent | _numbers(0, 23, " "), -1)
    minutes = graph.look_up(minute, absent | _numbers(0, 59, " "), -1)
    quarters = ["", *(f"{sign}{minutes:02d}" for sign in ("", ":") for minutes in (0, 15, 30, 45))]
    offsets = {f"{h:02d}{m}": 60 * h + int(m[-2:] or 0) for h in range(24) for m in quarters}
    shifts = [graph.look_up(_cut(graph, word, "-")[0], offsets, 0) for word in (ahead, behind)]
    return _parts(graph, read, numbers, hours, minutes, graph("Sub", *shifts))


def _parts(
    graph: Graph, read: Value, date: list[Value] | None, hour: Value, minute: Value, shift: Value | None = None
) -> Value:
    """(rows, PARTS) from year, month and day (None: there are hours alone), hour, minute, and minutes ahead of UTC."""
    valid = [read, _at_least(graph, hour, 0), _at_least(graph, minute, 0)]
    total = graph("Add", graph("Mul", hour, graph.whole(60)), minute)
    if date is None:
        turn = graph("Mod", graph("Max", total, graph.whole(0)), graph.whole(1440))
        gone = graph("Mul", graph.cast(turn, TensorProto.DOUBLE), graph.constant(math.nan))
        columns = [gone] * (len(PARTS) - 2) + [_turned(graph, turn, 1440, f) for f in (np.sin, np.cos)]
    else:
        year, month, day = date
        valid += [_at_least(graph, number, 1) for number in date]
        month = graph("Clip", month, graph.whole(1), graph.whole(12))
        valid.append(graph("LessOrEqual", day, _last_day(graph, year, month)))
        total = graph("Add", total, graph("Mul", _days(graph, year, month, day), graph.whole(1440)))
        total = total if shift is None else graph("Sub", total, shift)
        total = graph("Max", total, graph.whole(0))  # where it is not valid
        days = graph("Div", total, graph.whole(1440))
        year, month = _year_and_month(graph, days)
        weekday = graph("Mod", graph("Add", days, graph.whole(_FROM_MARCH)), graph.whole(7))
        minutes = graph("Mod", total, graph.whole(1440))
        cycles = ((graph("Sub", month, graph.whole(1)), 12), (weekday, 7), (minutes, 1440))
        columns = [graph.cast(year, TensorProto.DOUBLE)]
        columns += [_turned(graph, place, size, function) for place, size in cycles for function in (np.sin, np.cos)]
    one = graph.constant([1])
    table = graph("Concat", *[graph("Unsqueeze", column, one) for column in columns], axis=1)
    good = valid[0]
    for other in valid[1:]:
        good = graph("And", good, other)
    return graph("Where", graph("Unsqueeze", good, one), table, graph.constant(math.nan))


def _turned(graph: Graph, place: Value, size: int, function: np.ufunc) -> Value:
    """The sine or cosine of a place on a circle of so many places."""
    return graph("Gather", graph.constant(function(2 * np.pi * (np.arange(size) / size))), place)


def _days(graph: Graph, year: Value, month: Value, day: Value) -> Value:
    """Days since the first of March of year 0, where a year begins in March, so that leap days come last."""

    n = graph.whole
    early = graph.cast(graph("Less", month, n(3)), TensorProto.INT64)
    year = graph("Sub", year, early)
    month = graph("Add", graph("Sub", month, n(3)), graph("Mul", early, n(12)))
    in_year = graph("Div", graph("Add", graph("Mul", month, n(153)), n(2)), n(5))
    leaps = graph("Add", graph("Sub", graph("Div", year, n(4)), graph("Div", year, n(100))), graph("Div", year, n(400)))
    before = graph("Add", graph("Mul", year, n(365)), leaps)
    return graph("Sub", graph("Add", graph("Add", before, in_year), day), n(1))


def _year_and_month(graph: Graph, days: Value) -> tuple[Value, Value]:
    """Those of a day: the inverse of `_days`. 400 years have 146,097 days."""

    n = graph.whole
    era = graph("Div", days, n(146_097))
    left = graph("Mod", days, n(146_097))
    leap = graph("Sub", graph("Sub", left, graph("Div", left, n(1460))), graph("Div", left, n(146_096)))
    year = graph("Div", graph("Add", leap, graph("Div", left, n(36_524))), n(365))
    before = graph(
        "Sub", graph("Add", graph("Mul", year, n(365)), graph("Div", year, n(4))), graph("Div", year, n(100))
    )
    in_year = graph("Sub", left, before)
    month = graph("Div", graph("Add", graph("Mul", in_year, n(5)), n(2)), n(153))  # 0 is March
    late = graph.cast(graph("Greater", month, n(9)), TensorProto.INT64)
    month = graph("Sub", graph("Add", month, n(3)), graph("Mul", late, n(12)))
    return graph("Add", graph("Add", year, late), graph("Mul", era, n(400))), month


def _last_day(graph: Graph, year: Value, month: Value) -> Value:
    def divides(number: int) -> Value:
        rest = graph("Mod", year, graph.whole(number))
        return graph("Equal", rest, graph.whole(0))

    leap = graph("Or", graph("And", divides(4), graph("Not", divides(100))), divides(400))
    february = graph("And", leap, graph("Equal", month, graph.whole(2)))
    days = graph("Gather", graph.constant(_DAYS), graph("Sub", month, graph.whole(1)))
    return graph("Add", days, graph.cast(february, TensorProto.INT64))


def _split(graph: Graph, words: Value, text: str) -> tuple[Value, Value]:
    """What stands before and after the first `text`, which every word has."""
    both = graph("StringSplit", words, delimiter=text, maxsplit=1)
    return graph("Gather", both, graph.whole(0), axis=1), graph("Gather", both, graph.whole(1), axis=1)


def _cut(graph: Graph, words: Value, text: str) -> tuple[Value, Value]:
    """The same, where words may lack it; to what comes after it, or to nothing, one more `text` is added."""
    return _split(graph, graph("StringConcat", words, graph.constant(text)), text)


def _field(graph: Graph, field: str, word: Value) -> Value:
    if field == "%Y":
        return graph.look_up(word, {f"{n:04d}": n for n in range(1, 10_000)}, -1)
    if field == "%y":
        return graph.look_up(word, {f"{n:02d}": n + (1900 if n > 68 else 2000) for n in range(100)}, -1)
    if field in _WORDS:
        return graph.look_up(word, {cased: n for text, n in _WORDS[field].items() for cased in _cases(text)}, -1)
    return graph.look_up(word, _numbers(*_TWO[field]), -1)


def _cases(text: str) -> Iterator[str]:
    """All ways of small and large letters: turning them small asks the machine for a locale, which it may not have."""
    return map("".join, product(*((letter, letter.upper()) for letter in text)))


def _numbers(first: int, last: int, after: str = "") -> dict[str, int]:
    """Numbers of one or two digits as they may be written; `after` may follow them."""
    plain = {text: n for n in range(first, last + 1) for text in {str(n), f"{n:02d}"}}
    return plain | ({text + after: n for text, n in plain.items()} if after else {})


def _at_least(graph: Graph, number: Value, least: int) -> Value:
    return graph("GreaterOrEqual", number, graph.whole(least))


def _ints(graph: Graph, *lists: list[int]) -> list[Value]:
    return [graph.constant(np.array(numbers, np.int64)) for numbers in lists]
