"""Files that are written whole: a reader finds the old one or the new one, never a part of it."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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


def as_toml(table: Mapping[str, object]) -> str:
    """A config as text. The library that writes it is imported here, since most programs write none."""
    import tomlkit

    return tomlkit.dumps(table)


def slug(label: str) -> str:
    """A label as the name of a file or a folder."""
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "method"
