"""One process at a time in a folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from polyfed.core.errors import PolyfedError
from polyfed.core.lock import locked

HOLD = """
import sys, time
from pathlib import Path
from polyfed.core.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def owner(tmp_path: Path):
    """Another process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_process_is_refused_and_told_who_is_there(owner: subprocess.Popen[str], tmp_path: Path) -> None:
    with pytest.raises(PolyfedError, match=f"run: process {owner.pid} writes to this folder"), locked(tmp_path / "run"):
        pass


def test_what_a_killed_process_left_is_no_obstacle(owner: subprocess.Popen[str], tmp_path: Path) -> None:
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert (tmp_path / "run" / ".lock").exists()
    with locked(tmp_path / "run"):
        assert (tmp_path / "run" / ".lock").read_text() == f"{os.getpid()}\n"


def test_nothing_is_left_where_nothing_was_written(tmp_path: Path) -> None:
    with locked(tmp_path / "a/b"):
        assert (tmp_path / "a/b").is_dir()
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path / "a"):
        (tmp_path / "a" / "file").write_text("kept")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["file"]


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(PolyfedError, match="file/run: cannot be written to: Not a directory"),
        locked(tmp_path / "file/run"),
    ):
        pass
