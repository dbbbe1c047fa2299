"""A CSV file's separator, encoding and decimal sign: found in its first lines, or given."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyfed.core.errors import PolyfedError

SEPARATORS = (",", ";", "\t", "|")
LOOKED_AT = 1 << 18
"""The bytes of a file that are looked at."""
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
    encoding = encoding or _encoding(path, start)
    try:
        lines = start.decode(encoding, errors="strict" if whole else "ignore").splitlines()
    except (UnicodeDecodeError, LookupError) as error:
        raise PolyfedError(f"{path}: cannot be read as a csv table in {encoding!r} ({error})") from None
    lines = [line for line in (lines if whole else lines[:-1]) if line.strip()][:200]
    separator = separator or _separator(lines)
    return Dialect(separator, encoding, decimal or _decimal(lines, separator), _codes(lines, separator))


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


def _rows(lines: list[str], separator: str) -> Iterator[list[str]]:
    """The lines' cells, up to a cell that is longer than csv takes: a whole wide line under another separator."""
    with suppress(csv.Error):
        yield from csv.reader(lines, delimiter=separator)


def _separator(lines: list[str]) -> str:
    """The one that cuts all lines into the same number of cells, the most; else the comma."""
    best, most = ",", 1
    for separator in SEPARATORS:
        sizes = {len(cells) for cells in _rows(lines, separator)}
        if len(sizes) == 1 and (size := sizes.pop()) > most:
            best, most = separator, size
    return best


def _decimal(lines: list[str], separator: str) -> str:
    """The comma where cells like 1,5 are more than cells like 1.5."""
    cells = [cell.strip() for row in _rows(lines[1:], separator) for cell in row]
    commas, points = (sum(bool(re.fullmatch(rf"[-+]?\d+{sign}\d+", cell)) for cell in cells) for sign in (",", r"\."))
    return "," if commas > points else "."


def _codes(lines: list[str], separator: str) -> tuple[str, ...]:
    rows = list(_rows(lines, separator))
    found = {i for row in rows[1:] for i, cell in enumerate(row) if re.fullmatch(r"0\d{2,}", cell.strip())}
    return tuple(name for i, name in enumerate(rows[0]) if i in found) if rows else ()
