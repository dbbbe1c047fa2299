"""Every command that writes refuses a place that it cannot write to, in a sentence and before it computes anything."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from polyfed.core.lock import locked
from tests.cli.command import CONFIG as QUICK
from tests.cli.command import polyfed

CONFIG = """
[data]
source = "synthetic"
clients = 2
[algorithm]
name = "fedavg"
[run]
rounds = 1000000
[tune]
space.fedavg.lr = [0.1, 1.0]
"""


@pytest.mark.parametrize(
    "command",
    [
        ("run", "slow.toml"),
        ("compare", "slow.toml"),
        ("tune", "slow.toml"),
        ("demo",),
        ("reproduce", "flix/fig2"),
        ("data", "fetch", "mnist"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_file_as_the_folder_is_refused_at_once(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "slow.toml").write_text(CONFIG)
    (tmp_path / "taken").write_text("kept")
    ended = polyfed(*command, "--out", "taken", cwd=tmp_path, check=2)
    assert ended.stderr.strip().endswith("error: taken: a file, expected a folder to write to")
    assert (tmp_path / "taken").read_text() == "kept"


def test_a_folder_as_the_page_is_refused_at_once(tmp_path: Path) -> None:
    ended = polyfed("report", ".", "--out", ".", cwd=tmp_path, check=2)
    assert "a folder, expected a file to write" in ended.stderr


def test_two_processes_in_one_folder_are_refused_by_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "slow.toml").write_text(CONFIG)
    for command in ("run", "tune"):
        with locked(tmp_path / "taken"):
            refused = polyfed(command, "slow.toml", "--out", "taken", cwd=tmp_path, check=2)
            assert [path.name for path in (tmp_path / "taken").iterdir()] == [".lock"]
        assert f"taken: process {os.getpid()} writes to this folder" in refused.stderr


def test_a_full_disk_is_a_sentence_and_leaves_no_half_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "quick.toml").write_text(QUICK)
    written = Path.write_text

    def full(self: Path, text: str, **options: str) -> int:
        if "report.html" not in self.name:
            return written(self, text, **options)
        written(self, text[:1000], **options)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    monkeypatch.setattr(Path, "write_text", full)
    ended = polyfed("run", "quick.toml", "--out", "runs", cwd=tmp_path, check=2)
    assert ended.stderr.strip().splitlines()[-1].endswith("report.html.part: the disk is full")
    assert [path.name for path in (tmp_path / "runs").iterdir() if "report" in path.name] == []
    assert {oct(path.stat().st_mode & 0o777) for path in (tmp_path / "runs").glob("*/*.safetensors")} == {"0o600"}
    assert {oct((tmp_path / "runs" / name).stat().st_mode & 0o777) for name in ("models", "server")} == {"0o700"}
