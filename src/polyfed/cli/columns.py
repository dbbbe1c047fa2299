"""What was understood of a table's columns, as tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from polyfed.data.tables.understood import AtSite, Understood


def columns_table(columns: list[Understood]) -> Table:
    """A row per column: what it holds, and where it is missing or different most."""
    table = Table(box=None, pad_edge=False, title="\ncolumns", title_justify="left")
    table.add_column("column", style="bold", overflow="fold")
    table.add_column("holds")
    table.add_column("features", justify="right")
    table.add_column("missing", justify="right")
    table.add_column("missing most at", overflow="fold")
    table.add_column("differs most at", overflow="fold")
    for column in columns:
        if column.why is not None:
            table.add_row(escape(column.column), "[dim]left out[/]", "", "", "", "")
            continue
        empty, far = column.emptiest, column.farthest
        table.add_row(
            escape(column.column),
            column.kind,
            str(column.features),
            _share(column.missing),
            "" if empty is None else f"{escape(empty.site)} {_share(empty.missing)}",
            "" if far is None else f"{escape(far.site)} {shift(column, far)}",
        )
    return table


def sites_table(columns: list[Understood]) -> Table:
    """A row per column and site."""
    table = Table(box=None, pad_edge=False, title="\ncolumns by client", title_justify="left")
    table.add_column("column", style="bold", overflow="fold")
    table.add_column("client", overflow="fold")
    table.add_column("missing", justify="right")
    table.add_column("shift against the others", justify="right")
    for column in columns:
        for place, at in enumerate(column.sites):
            name = escape(column.column) if place == 0 else ""
            table.add_row(name, escape(at.site), _share(at.missing), shift(column, at))
    return table


def shift(column: Understood, at: AtSite) -> str:
    """In standard deviations (sd), or as the share of rows that have other categories."""
    if at.shift is None:
        return "-"
    return _share(at.shift) if column.kind == "category" else f"{at.shift:+.2f} sd"


def _share(value: float) -> str:
    return f"{100 * value:.1f}%" if 0 < value < 0.1 else f"{100 * value:.0f}%"
