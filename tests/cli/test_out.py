"""Every command that writes refuses a place that it cannot write to, in a sentence and before it computes anything."""

from __future__ import annotations

from pathlib import Path

import pytest

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
