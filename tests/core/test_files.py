"""Places to write to are checked before anything is computed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from polyfed.core.errors import PolyfedError
from polyfed.core.files import check_file, check_folder


def test_a_folder_that_can_be_made_is_not_made(tmp_path: Path) -> None:
    check_folder(tmp_path)
    check_folder(tmp_path / "a/b/c")
    check_file(tmp_path / "a/page.html")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("kept")
    with pytest.raises(PolyfedError, match=r"notes\.txt: a file, expected a folder"):
        check_folder(tmp_path / "notes.txt")
    with pytest.raises(PolyfedError, match=r"notes\.txt/runs: cannot be made, as .*notes\.txt is a file"):
        check_folder(tmp_path / "notes.txt/runs")
    with pytest.raises(PolyfedError, match="a folder, expected a file to write"):
        check_file(tmp_path)


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(dir: Path) -> None:  # as a read-only disk does; permissions do not bind who runs tests as root
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(PolyfedError, match="cannot be written to: Permission denied"):
        check_folder(tmp_path)
    with pytest.raises(PolyfedError, match=r"runs/new: cannot be made in .*: Permission denied"):
        check_folder(tmp_path / "runs/new")
