"""[data.columns]: what the user says about columns, which goes before what their cells look like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.files import JsonObject

KINDS = ("number", "yes/no", "category", "date", "skip")


@dataclass(frozen=True)
class Override:
    """What is known of a column beforehand; None and () leave it to the cells."""

    kind: str | None = None
    format: str | None = None
    """of a date, as strftime has it, or "iso" or "time" """
    missing: tuple[str, ...] = ()
    """words that mean a missing cell, such as -9"""
    values: tuple[str, ...] = ()
    """the categories, in this order; all others are "other" """
    fill: float | str | None = None
    """what stands in for a missing cell, in place of the mean or the commonest value"""


def read_overrides(given: Mapping[str, object] | None) -> dict[str, Override]:
    """Check the section; a word in place of a table is the kind."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise PolyfedError(f"columns must be a table of column names, found {given!r}")
    return {str(name): _override(str(name), said) for name, said in given.items()}


def check_names(overrides: Iterable[str], known: Iterable[str]) -> None:
    """Refuse what is said about a column that nobody has."""
    known = list(known)
    for name in overrides:
        if name not in known:
            raise PolyfedError(f"columns.{name}: no site has the column {name!r}{suggestion(name, known)}")


def _override(name: str, said: object) -> Override:
    if isinstance(said, str):
        said = {"kind": said}
    known = [field.name for field in fields(Override)]
    if not isinstance(said, Mapping):
        raise PolyfedError(f"columns.{name} must be one of {', '.join(KINDS)}, or a table, found {said!r}")
    table: JsonObject = dict(said)
    for key in table:
        if key not in known:
            raise PolyfedError(f"columns.{name} has no key {key!r}{suggestion(str(key), known)}")
    kind = table.get("kind")
    if kind is not None and kind not in KINDS:
        raise PolyfedError(f"columns.{name}.kind is {kind!r}{suggestion(str(kind), KINDS)}")
    for key in ("missing", "values"):
        if not isinstance(table.get(key, []), list | tuple):
            raise PolyfedError(f"columns.{name}.{key} must be a list, found {table[key]!r}")
        table[key] = tuple(map(str, table.get(key, ())))
    if table.get("format") is not None and not isinstance(table["format"], str):
        raise PolyfedError(f"columns.{name}.format must be a word such as '%d.%m.%Y', found {table['format']!r}")
    if kind is None:
        kind = table["kind"] = "date" if table.get("format") else "category" if table["values"] else None
    fill = table.get("fill")
    if kind == "number" and (isinstance(fill, str | bool)):
        raise PolyfedError(f"columns.{name}.fill must be a number, found {fill!r}")
    if isinstance(fill, bool) or (fill is not None and not isinstance(fill, str | int | float)):
        raise PolyfedError(f"columns.{name}.fill must be a number or a word, found {fill!r}")
    return Override(**table)
