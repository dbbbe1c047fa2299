"""The pages' style sheet, for those that have no script to choose between light and dark."""

from __future__ import annotations

import re
from importlib.resources import files

DARK = re.compile(r':root\[data-theme="dark"\] (\{.*?\})', re.DOTALL)


def style_without_scripts() -> str:
    """report.css, with its dark colours where the reader's browser prefers them."""
    style = files("polyfed.report").joinpath("assets", "report.css").read_text(encoding="utf-8")
    dark = DARK.search(style)
    assert dark is not None
    return f"{style}\n@media (prefers-color-scheme: dark) {{ :root {dark.group(1)} }}\n"
