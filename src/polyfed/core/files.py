"""Files that are written whole: a reader finds the old one or the new one, never a part of it."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from polyfed.core.errors import PolyfedError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

JsonObject = dict[str, Any]
"""What a JSON or TOML file holds, or is to hold: tables, lists and plain values, to any depth."""


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be made or written to. It is not made: the nearest one that exists is tried."""
    if folder.exists() and not folder.is_dir():
        raise PolyfedError(f"{folder}: a file, expected a folder to write to")
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise PolyfedError(f"{folder}: cannot be made, as {there} is a file")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        verb = "be written to" if there == folder else f"be made in {there}"
        raise PolyfedError(f"{folder}: cannot {verb}: {error.strerror or error}") from None


def check_file(path: Path) -> None:
    """Refuse a file that cannot be written."""
    if path.is_dir():
        raise PolyfedError(f"{path}: a folder, expected a file to write")
    check_folder(path.parent)


@contextmanager
def whole(path: Path) -> Generator[Path]:
    """A file to write to in place of `path`; it takes its name when all is written, and goes if that fails."""
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        os.replace(part, path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        name_file(error, path)
        raise


def name_file(error: BaseException, path: Path) -> None:
    """What the machine refused while this file was written, as a full disk, names no file by itself."""
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        error.filename = str(path)


def write_text(path: Path, text: str) -> None:
    with whole(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """A line per row, the first row's keys as the heading."""
    with whole(path) as part, part.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writerow({key: safe_cell(key) for key in rows[0]})
        writer.writerows({key: safe_cell(value) for key, value in row.items()} for row in rows)


FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""How a formula begins; the last four are wide letters, which East Asian spreadsheets take for the first four."""


def safe_cell(value: object) -> object:
    """A word that a spreadsheet would take for a formula, with an apostrophe before it; all else as it is.

    One more before apostrophes that stand there already: no two words become one.
    """
    if not isinstance(value, str) or not value.lstrip("'").startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def plain_cell(text: str) -> str:
    """What `safe_cell` was given."""
    return text[1:] if text.startswith("'") and text.lstrip("'").startswith(FORMULA) else text


def owner_only(path: Path) -> Path:
    """A folder, made if it is not there: then nobody but its owner can read what is in it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def as_json(value: object, indent: int | None = None) -> str:
    """As JSON knows it: a number that is not finite becomes null."""

    def known(value: object) -> object:
        if isinstance(value, dict):
            return {key: known(inner) for key, inner in cast(JsonObject, value).items()}
        if isinstance(value, list | tuple):
            return [known(inner) for inner in cast(list[object], value)]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(known(value), indent=indent)


def read_object(path: Path) -> JsonObject:
    """The JSON object in a file, an empty one where there is no file; what is damaged is refused by name."""
    try:
        given: object = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        raise PolyfedError(f"{path}: is damaged: {error}") from None
    if not isinstance(given, dict):
        raise PolyfedError(f"{path}: is damaged: expected a JSON object")
    return cast(JsonObject, given)


def as_toml(table: Mapping[str, object]) -> str:
    """A config as text. The library that writes it is imported here, since most programs write none."""
    import tomlkit

    return tomlkit.dumps(table)


def slug(label: str) -> str:
    """A label as the name of a file or a folder."""
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "method"
