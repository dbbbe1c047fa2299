"""`polyfed leaderboard`."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from polyfed.studies.leaderboard import Board, Cell
from polyfed.studies.leaderboard.processes import side_by_side
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


def row(method: str, seed: int, value: float) -> Cell:
    return Cell("airlines", method, seed, value, None, value, 2, 1e6, 1.0, "2 1", "", "s")


def test_tables_of_other_machines_are_merged_cell_by_cell(tmp_path: Path) -> None:
    Board(tmp_path / "all.csv").put([row("fedavg", 1, 0.1), row("fedavg", 2, 0.1), row("local", 1, 0.5)])
    Board(tmp_path / "one.csv").put([row("fedavg", 1, 0.7)])
    Board(tmp_path / "two.csv").put([row("apfl", 1, 0.9)])
    merge = ["leaderboard", "merge", "--table", "all.csv"]
    assert "3 rows in all.csv" in polyfed(*merge, "one.csv", "two.csv", cwd=tmp_path).stdout
    found = {(cell.method, cell.seed): cell.personal for cell in Board.read(tmp_path / "all.csv").cells}
    assert found == {("apfl", 1): 0.9, ("fedavg", 1): 0.7, ("local", 1): 0.5}
    before = (tmp_path / "all.csv").read_bytes()
    refused = polyfed(*merge, "one.csv", "one.csv", cwd=tmp_path, check=2)
    assert "airlines, fedavg, seed 1 is in the given tables 2 times, expected once" in refused.stderr
    assert "nine.csv: there is no such file" in polyfed(*merge, "nine.csv", cwd=tmp_path, check=2).stderr
    assert (tmp_path / "all.csv").read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system keeps no process on a core")
def test_cells_side_by_side_have_a_core_each_and_one_that_fails_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes are stand-ins that write their cores and options where their rows go."""
    stand_in = tmp_path / "python"
    stand_in.write_text(
        f"#!{sys.executable}\n"
        "import os, sys\n"
        "given = sys.argv[1:]\n"
        "name, label, table = given[4], given[6], given[8]\n"
        "if label == 'broken': sys.exit(2)\n"
        "cores = ' '.join(map(str, os.sched_getaffinity(0)))\n"
        "head = 'federation,method,seed,personal,shared,worst,rounds,bits,seconds,curve,chosen,spec'\n"
        "open(table, 'w').write(f'{head}\\n{name},{label},1,,,,1,1,1,{cores},{given[9]} {given[10]},s\\n')\n"
    )
    stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    mine = os.sched_getaffinity(0)
    places = [("airlines", label) for label in ("a", "b", "broken", "c", "d")]
    found = dict(side_by_side(places, 2, ["--add", "mine.toml"]))
    assert os.sched_getaffinity(0) == mine
    assert {place: len(cells) for place, cells in found.items()} == {
        place: 0 if place[1] == "broken" else 1 for place in places
    }
    rows = [cell for cells in found.values() for cell in cells]
    assert {cell.method for cell in rows} == {"a", "b", "c", "d"}
    assert {cell.chosen for cell in rows} == {"--add mine.toml"}
    assert {int(cell.curve) for cell in rows} <= mine  # one number each
    assert len({cell.curve for cell in rows}) == min(2, len(mine))
