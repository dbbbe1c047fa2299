"""`polyfed leaderboard`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import polyfed


def test_what_is_wrong_is_said_in_a_sentence(tmp_path: Path) -> None:
    refused = polyfed("leaderboard", "run", "airlinez", cwd=tmp_path, check=2)
    assert "unknown federation 'airlinez'; did you mean 'airlines'?" in refused.stderr
    refused = polyfed("leaderboard", "run", "airlines", "--method", "fedavgg", cwd=tmp_path, check=2)
    assert "no method called 'fedavgg' stands on the leaderboard" in refused.stderr
    refused = polyfed("leaderboard", "draw", cwd=tmp_path, check=2)
    assert "`polyfed leaderboard run` makes it" in refused.stderr
    assert list(tmp_path.iterdir()) == []
    assert "synthetic-alike" in polyfed("leaderboard", "list", cwd=tmp_path).stdout
