"""`polyfed reproduce`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cli.command import polyfed


def test_reproductions_are_listed_and_misspelt_ones_suggested(tmp_path: Path) -> None:
    assert "scafflix/fig1" in polyfed("reproduce", "--list", cwd=tmp_path).stdout
    assert "did you mean 'flix/fig2'" in polyfed("reproduce", "flix/figg2", cwd=tmp_path, check=2).stderr


def test_stored_rows_are_judged_again_and_verdicts_are_printed_with_what_decides(tmp_path: Path) -> None:
    pages = Path(__file__).resolve().parents[2] / "docs" / "reproductions"
    shutil.copytree(pages / "plsgd/fig2", tmp_path / "plsgd/fig2")
    shown = polyfed("reproduce", "plsgd/fig2", "--redraw", "--out", ".", cwd=tmp_path).stdout  # exit code 0
    words = " ".join(shown.split())
    assert "holds: Local SGD's consensus error stays at the level of (20), to 1e-9." in words
    assert "does not hold: PLSGD, α = 0.1: (21) bounds its mean. (0.06026 against 0.02784; exact)" in words
    claims = json.loads((tmp_path / "plsgd/fig2/claims.json").read_text())["claims"]
    assert claims == json.loads((pages / "plsgd/fig2/claims.json").read_text())["claims"]
    assert "no stored rows" in polyfed("reproduce", "plsgd/fig4", "--redraw", cwd=tmp_path, check=2).stderr
    mixed = polyfed("reproduce", "plsgd/fig2", "--redraw", "--quick", cwd=tmp_path, check=2).stderr
    assert "--redraw runs nothing" in mixed
