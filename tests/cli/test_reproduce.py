"""`polyfed reproduce`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import polyfed


def test_reproductions_are_listed_and_misspelt_ones_suggested(tmp_path: Path) -> None:
    assert "scafflix/fig1" in polyfed("reproduce", "--list", cwd=tmp_path).stdout
    assert "did you mean 'flix/fig2'" in polyfed("reproduce", "flix/figg2", cwd=tmp_path, check=2).stderr
