"""What the page on running a federation for months says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import polyfed as pf
from tests.deploy.expected import simulated
from tests.deploy.loopback import Loopback

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
METHOD = {"name": "apfl", "batch": 8, "local_steps": 3}


def units() -> list[str]:
    return re.findall(r"```ini\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize(("place", "name"), [(0, "polyfed-server.service"), (1, "polyfed-site@north.service")])
def test_systemd_has_nothing_to_say_about_the_units(place: int, name: str, tmp_path: Path) -> None:
    """With the program where it is here: systemd looks whether it exists."""
    program = Path(sys.executable).parent / "polyfed"
    text = units()[place].replace("/opt/polyfed/bin/polyfed", str(program))
    (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    said = [line for line in (done.stdout + done.stderr).splitlines() if name.partition("@")[0] in line]
    assert done.returncode == 0, done.stderr
    assert said == []


def stopped_after(grid: Loopback, rounds: int) -> None:
    """Serve until the server is killed while the next round's answers come in."""

    def die(_site: str, round: int, _reply: object) -> None:
        if round == rounds:
            raise KeyboardInterrupt

    grid.change = lambda site, round, reply: die(site, round, reply) or reply
    with pytest.raises(KeyboardInterrupt):
        grid.serve(METHOD)
    grid.change = None


@pytest.mark.full
def test_a_site_that_is_restored_from_its_backup_goes_on_as_if_nothing_had_been(three, loopback, tmp_path) -> None:
    grid: Loopback = loopback()
    stopped_after(grid, 3)
    shutil.make_archive(str(tmp_path / "backup"), "gztar", grid.folder / "site-1")
    shutil.rmtree(grid.folder / "site-1")
    shutil.unpack_archive(tmp_path / "backup.tar.gz", grid.folder / "site-1")
    grid.restart("site-1")
    grid.serve(METHOD)
    grid.assert_equal(simulated(three, METHOD))


def test_an_old_backup_is_not_taken_for_the_present_and_the_run_can_go_back_to_it(three, loopback, tmp_path) -> None:
    grid: Loopback = loopback()
    stopped_after(grid, 2)
    shutil.copytree(grid.folder / "site-1", tmp_path / "backup")
    stopped_after(grid, 4)
    shutil.rmtree(grid.folder / "site-1")
    shutil.copytree(tmp_path / "backup", grid.folder / "site-1")
    grid.restart("site-1")
    with pytest.raises(pf.PolyfedError, match="2 of 3 sites answered"):
        grid.serve(METHOD, minimum=3, patience=1)
    grid.serve(METHOD, back=2)
    grid.assert_equal(simulated(three, METHOD))
