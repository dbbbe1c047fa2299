"""Small pieces of HTML for notebooks. Every word is escaped: names of clients and columns come from data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape


def page(title: str, *parts: str) -> str:
    """A heading and what follows it."""
    return f"<div><strong>{escape(title)}</strong>{''.join(parts)}</div>"


def note(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], most: int = 20) -> str:
    """A table of the first rows; of others it says how many there are."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:most])
    more = note(f"and {len(rows) - most:,} more") if len(rows) > most else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f'<td style="text-align: left">{escape("" if value is None else str(value))}</td>'
    text = f"{value:,}" if isinstance(value, int) else "" if math.isnan(value) else f"{value:,.4g}"
    return f'<td style="text-align: right">{text}</td>'
