"""The command `polyfed algorithms`."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from polyfed.cli.options import AsJson, out


def algorithms(
    name: Annotated[str | None, typer.Argument(help="Show one algorithm's hyper-parameters.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the algorithms, or the hyper-parameters of one."""
    from polyfed.algorithms import REGISTRY, get_algorithm

    chosen = REGISTRY if name is None else {name: get_algorithm(name)}
    if as_json:
        listing = {key: {field.name: field.default for field in _fields(cls)} for key, cls in chosen.items()}
        print(json.dumps(listing, indent=1, default=repr))
        return
    table = Table(box=None, pad_edge=False)
    if name is None:
        table.add_column("name", style="bold")
        table.add_column("what it is")
        for key, cls in sorted(chosen.items()):
            table.add_row(key, escape(_first_line(cls)))
    else:
        for column in ("hyper-parameter", "default", "type"):
            table.add_column(column, style="bold" if column == "hyper-parameter" else "")
        out.print(f"[bold]{name}[/]: {escape(_first_line(chosen[name]))}\n")
        for field in sorted(_fields(chosen[name]), key=lambda field: bool(field.kw_only)):  # shared ones come last
            table.add_row(field.name, escape(repr(field.default)), escape(str(field.type)))
    out.print(table)


def _fields(cls: type) -> tuple[dataclasses.Field[object], ...]:
    assert dataclasses.is_dataclass(cls)
    return dataclasses.fields(cls)


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().splitlines()[0]
