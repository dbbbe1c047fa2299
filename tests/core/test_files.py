"""Places to write to are checked before anything is computed; what is damaged is named."""

from __future__ import annotations

import csv
import errno
import os
import tempfile
from pathlib import Path

import pytest

from polyfed.core.errors import PolyfedError, of_the_system
from polyfed.core.files import (
    check_file,
    check_folder,
    plain_cell,
    read_object,
    safe_cell,
    whole,
    write_csv,
    write_text,
)


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


def test_a_file_that_could_not_be_written_whole_leaves_the_old_one_and_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    write_text(path, "old")

    def full(self: Path, text: str, **_: object) -> None:
        with self.open("w") as file:
            file.write(text[:2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        write_text(path, "new and longer")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert path.read_bytes() == b"old"


def test_a_write_that_the_machine_refuses_names_its_file(tmp_path: Path) -> None:
    """The system names a file that cannot be opened, and none that cannot grow."""

    def refused(path: Path) -> None:
        with whole(path) as part:
            part.write_text("half of it")
            raise OSError(errno.EFBIG, "File too large")

    with pytest.raises(OSError, match="large") as caught:
        refused(tmp_path / "a.csv")
    assert of_the_system(caught.value) == f"{tmp_path / 'a.csv'}: File too large"
    assert list(tmp_path.iterdir()) == []


FORMULAS = ["=cmd|' /C calc'!A0", "+1+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1+1", "'=1", "''-3"]


@pytest.mark.parametrize("word", FORMULAS)
def test_words_that_a_spreadsheet_would_run_are_text(tmp_path: Path, word: str) -> None:
    write_csv(tmp_path / "c.csv", [{"client": word, "loss": -1.5}])
    with (tmp_path / "c.csv").open(newline="") as file:
        [row] = csv.DictReader(file)
    assert row == {"client": f"'{word}", "loss": "-1.5"}
    assert plain_cell(row["client"]) == word


@pytest.mark.parametrize("word", ["east", "-3", "+1e5", "'tis", "", "a=b"])
def test_other_words_stay_as_they_are(word: str) -> None:
    assert safe_cell(word) == plain_cell(word) == word


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "a/report.html"), "a/report.html: the disk is full"),
        (OSError(errno.EROFS, "Read-only file system", "a"), "a: Read-only file system"),
        (MemoryError(), "the memory is used up; fewer clients at a time (run.chunk) or a smaller model take less"),
        (
            RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.\nmore"),
            "the memory is used up (RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.); fewer clients at a time "
            "(run.chunk) take less",
        ),
        (RuntimeError("a bug"), None),
        (OSError("a bug"), None),
    ],
)
def test_what_the_machine_refuses_is_a_sentence(error: Exception, sentence: str | None) -> None:
    assert of_the_system(error) == sentence


@pytest.mark.parametrize("damage", [b"", b'{"north": ', b"[1]", b"null", b"\xff\x00"])
def test_a_damaged_object_is_named_and_not_taken_for_none(tmp_path: Path, damage: bytes) -> None:
    file = tmp_path / "facts.json"
    assert read_object(file) == {}
    write_text(file, '{"north": 1}')
    assert read_object(file) == {"north": 1}
    file.write_bytes(damage)
    with pytest.raises(PolyfedError, match=r"facts\.json: is damaged: "):
        read_object(file)
