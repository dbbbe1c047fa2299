"""Files that are written whole: a reader finds the old one or the new one, never a part of it."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from polyfed.core.errors import PolyfedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be made or written to. It is not made: the nearest one that is there is tried."""
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


def write_text(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text)
    os.replace(part, path)


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """A line per row, the first row's keys as the heading."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    os.replace(part, path)


def as_json(value: object, indent: int | None = None) -> str:
    """As JSON knows it: a number that is not finite becomes null."""

    def known(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: known(inner) for key, inner in cast(dict[Any, Any], value).items()}
        if isinstance(value, list | tuple):
            return [known(inner) for inner in cast(list[Any], value)]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(known(value), indent=indent)


def as_toml(table: Mapping[str, object]) -> str:
    """A config as text. The library that writes it is imported here, since most programs write none."""
    import tomlkit

    return tomlkit.dumps(table)


def slug(label: str) -> str:
    """A label as the name of a file or a folder."""
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "method"
