"""The page of bounds names every function of the theory, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from polyfed import theory

PAGE = Path(__file__).resolve().parents[2] / "docs" / "bounds.md"


def test_every_name_of_the_theory_stands_on_the_page_of_bounds() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    named = {name for line in rows for name in re.findall(r"`(\w+)`", line)}
    assert named == set(theory.__all__)
