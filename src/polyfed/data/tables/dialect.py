"""A CSV file's separator, encoding and decimal sign: found in its first lines, or given."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import itertools
import lzma
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from polyfed.core.errors import PolyfedError

SEPARATORS = (",", ";", "\t", "|")
LOOKED_AT = 1 << 18
"""The bytes of a file that are looked at."""
MOST_ROWS = 200
"""The rows of them that are."""
MOSTLY = 0.9
"""The share of rows that a separator must cut as it cuts the first line."""
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written."""

    separator: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    codes: tuple[str, ...] = field(default=(), compare=False)
    """columns with whole numbers that begin with 0, such as postcodes, which are words"""

    def __str__(self) -> str:
        names = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}
        separator = names.get(self.separator, repr(self.separator))
        return f"separator {separator}, encoding {self.encoding}, decimal {names.get(self.decimal, 'point')}"


def find_dialect(
    path: Path, separator: str | None = None, encoding: str | None = None, decimal: str | None = None
) -> Dialect:
    """What was given, and the rest from the file's first lines."""
    for name, value in (("separator", separator), ("decimal", decimal)):
        if value is not None and (not isinstance(value, str) or len(value) != 1):
            raise PolyfedError(f"{name} must be a single character, found {value!r}")
    if decimal not in (None, ".", ","):
        raise PolyfedError(f"decimal must be '.' or ',', found {decimal!r}")
    try:
        with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
            start = file.read(LOOKED_AT)
            whole = len(start) < LOOKED_AT
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise PolyfedError(f"{path}: cannot be read as a csv table ({error})") from None
    _refuse_other_files(path, start)
    encoding = encoding or _encoding(path, start)
    try:
        text = start.decode(encoding, errors="strict" if whole else "ignore")
    except (UnicodeDecodeError, LookupError) as error:
        raise PolyfedError(f"{path}: cannot be read as a csv table in {encoding!r} ({error})") from None
    rows = {sign: _rows(text, sign, whole) for sign in ([separator] if separator else SEPARATORS)}
    separator = separator or _separator(rows)
    cells = rows[separator]
    return Dialect(separator, encoding, decimal or _decimal(cells, separator), _codes(cells))


def _refuse_other_files(path: Path, start: bytes) -> None:
    """What is no text by its first bytes is refused with what to do."""
    workbook = "an Excel workbook: save its sheet as CSV"
    zipped = (
        workbook if b"[Content_Types].xml" in start else "a zip archive: unpack it, or compress the table with gzip"
    )
    kinds = {
        b"PK\x03\x04": zipped,
        b"\xd0\xcf\x11\xe0": workbook,
        b"\x1f\x8b": "compressed with gzip: call it .csv.gz",
        b"PAR1": "a Parquet file: call it .parquet",
    }
    for begins, what in kinds.items():
        if start.startswith(begins):
            raise PolyfedError(f"{path}: is no csv table but {what}")


def _encoding(path: Path, start: bytes) -> str:
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if b"\0" in start:
        raise PolyfedError(f"{path}: cannot be read as a csv table (it has a zero byte)")
    if start[:3] == b"\xef\xbb\xbf":
        return "utf-8-sig"
    try:
        start[: start.rfind(b"\n") + 1 or len(start)].decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _rows(text: str, separator: str, whole: bool) -> list[list[str]]:
    """The first rows; a cell in quotes may go over several lines, and the last row of a part may be cut off.

    They end before a cell that is longer than csv takes, such as a wide line under another separator than its own.
    """
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend(itertools.islice(csv.reader(io.StringIO(text, newline=""), delimiter=separator), MOST_ROWS + 1))
    if len(rows) > MOST_ROWS or not whole:
        rows = rows[:-1]
    return [row for row in rows if any(cell.strip() for cell in row)]


def _separator(rows: Mapping[str, list[list[str]]]) -> str:
    """The one that cuts the first line and nearly all others into as many cells, the most; else the comma."""
    best, most = ",", 1
    for separator, cut in rows.items():
        size = len(cut[0]) if cut else 0
        if size > most and sum(len(cells) == size for cells in cut) >= MOSTLY * len(cut):
            best, most = separator, size
    return best


def _decimal(rows: list[list[str]], separator: str) -> str:
    """The comma where cells like 1,5 or 1.234,5 are more than cells like 1.5 or 1,234.5.

    1,234,567 has no decimals, and 1,500 none in a column whose other numbers are like 20 or 999. Elsewhere 1,500 may be
    fifteen hundred: it counts where nothing else tells, and where the comma separates no cells.
    """
    columns = [[cell.strip() for cell in column] for column in itertools.zip_longest(*rows[1:], fillvalue="")]

    def count(pattern: str, cells: Sequence[str]) -> int:
        return sum(bool(re.fullmatch(pattern, cell)) for cell in cells)

    def sure(decimal: str, group: str) -> int:
        number = rf"[-+]?(\d+|\d{{1,3}}({group}\d{{3}})+){decimal}\d+"
        decimals = sum(count(number, cells) for cells in columns)
        return decimals - open_(decimal) + sum(_sure_groups(partial(count, cells=cells), group) for cells in columns)

    def open_(sign: str) -> int:
        return sum(count(_ONE_GROUP.format(sign), cells) for cells in columns)

    commas, points = sure(",", r"\."), sure(r"\.", ",")
    if commas == points and separator != ",":
        commas, points = open_(","), open_(r"\.")
    return "," if commas > points else "."


_ONE_GROUP = r"[-+]?[1-9]\d{{0,2}}{}\d{{3}}"


def _sure_groups(count: Callable[[str], int], sign: str) -> int:
    """The cells of a column in which this sign must set thousands apart."""
    open_, small, numbers = count(_ONE_GROUP.format(sign)), count(r"[-+]?\d{1,3}"), count(r"[-+]?\d[\d.,]*")
    many = count(rf"[-+]?[1-9]\d{{0,2}}({sign}\d{{3}}){{2,}}")
    return many + (open_ if (small or many) and open_ + small + many == numbers else 0)


def _codes(rows: list[list[str]]) -> tuple[str, ...]:
    found = {i for row in rows[1:] for i, cell in enumerate(row) if re.fullmatch(r"0\d{2,}", cell.strip())}
    return tuple(name for i, name in enumerate(rows[0]) if i in found) if rows else ()
