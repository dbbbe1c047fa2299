"""Real processes on loopback, with TLS and node authentication."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from polyfed.core.errors import PolyfedError
from polyfed.deploy.network.processes import ChildProcess, environment
from tests.compilation import QUICK
from tests.deploy.expected import small
from tests.deploy.live import SITES, Live

SCAFFNEW = {"name": "scaffnew", "lr": 0.1, "p": 0.3, "batch": 4}


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    federation = Live(tmp_path / "project")
    yield federation
    federation.stop()


def processes_of(folder: Path) -> list[str]:
    """The command lines that name the folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            lines.append(line)
    return lines


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_stopping_a_program_also_ends_what_it_detached(tmp_path) -> None:
    """A program may start others in sessions of their own."""
    sleep = [sys.executable, "-c", "import time; time.sleep(60)", str(tmp_path)]
    start = f"import subprocess, time; subprocess.Popen({sleep}, start_new_session=True); print('up', flush=True)"
    child = ChildProcess(["python", "-c", f"{start}; time.sleep(60)"], environment(tmp_path), tmp_path / "log")
    end = time.monotonic() + 60
    while "up" not in child.log.read_text() and time.monotonic() < end:
        time.sleep(0.05)
    assert len(processes_of(tmp_path)) == 2
    child.stop()
    while processes_of(tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    assert not processes_of(tmp_path)


def test_a_whole_federation_on_this_machine_equals_the_simulator_and_leaves_nothing_running(tmp_path) -> None:
    """The round trip of the quick suite: two sites and two rounds, in folders that all may read, with umask 0."""
    live = Live(tmp_path / "project", SITES[:2])
    for folder in (live.folder, live.server, *(live.folder / site for site in live.sites)):
        folder.chmod(0o755)
    before = set(live.folder.rglob("*"))
    live.set(small("apfl"), {"rounds": 2})  # it keeps a state, and asks sites for no constants
    command = [str(Path(sys.executable).parent / "polyfed"), "deploy", "up", str(live.folder)]
    env = environment(live.folder / "flower", XLA_FLAGS=QUICK)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False, umask=0)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "round 2 of 2: north, south" in done.stdout
    live.assert_equal()
    assert not processes_of(live.folder)
    made = set(live.folder.rglob("*")) - before
    assert len(made) > 20
    assert [path for path in made if path.stat().st_mode & 0o077] == []


@pytest.mark.deploy
def test_ctrl_c_stops_all_that_was_started(live) -> None:
    command = [str(Path(sys.executable).parent / "polyfed"), "deploy", "up", str(live.folder)]
    env = environment(live.folder / "flower", XLA_FLAGS=QUICK)
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as up:
        assert up.stdout is not None
        while "site 'west'" not in up.stdout.readline():
            assert up.poll() is None
        live.wait(lambda: len(live.online()) == len(SITES))
        up.send_signal(signal.SIGINT)
        assert up.wait(timeout=120) == 130
    live.wait(lambda: not processes_of(live.folder), patience=5.0)


@pytest.mark.deploy
def test_a_run_that_is_asked_for_while_the_server_starts_is_not_lost(live) -> None:
    live.set(small("fedavg"), {"rounds": 1})
    for name in ("server", *SITES):
        live.start(name)
    request = None
    while request is None:
        with suppress(PolyfedError):  # which says that the server is not up yet
            request = live.link.submit()
    live.wait(live.finished)
    live.assert_equal()


@pytest.mark.deploy
def test_a_server_and_a_site_that_are_killed_leave_no_trace_in_the_result(live) -> None:
    live.set(SCAFFNEW, {"rounds": 6}, deadline=300.0)
    live.up()
    live.link.submit()
    live.wait(lambda: live.rounds() >= 1)
    live.children["server"].kill()
    live.wait(lambda: not processes_of(live.server))
    before = live.rounds()
    live.start("server")
    live.wait(lambda: live.rounds() > before)
    live.children["south"].kill()
    live.wait(lambda: not processes_of(live.folder / "south"))
    live.start("south")
    live.wait(live.finished)
    live.assert_equal()


@pytest.fixture(scope="module")
def standing(tmp_path_factory) -> Iterator[Live]:
    """One federation for several runs."""
    federation = Live(tmp_path_factory.mktemp("standing") / "project")
    federation.up()
    yield federation
    federation.stop()


@pytest.mark.deploy
@pytest.mark.parametrize("name", ["local", "fedavg", "scaffold", "apfl", "fedbc", "diana", "scafflix", "ditto"])
def test_algorithms_across_real_processes_equal_the_simulator(standing, name) -> None:
    method = small(name) | ({"compressor": {"name": "rand_k", "k": 3}, "lr": 0.01} if name == "diana" else {})
    standing.set(method, {"rounds": 3}, run=f"study-{name}")
    standing.link.submit()
    standing.wait(standing.finished)
    standing.assert_equal()


@pytest.mark.deploy
def test_a_masked_and_private_run_across_real_processes_equals_the_simulator(standing) -> None:
    pytest.importorskip("dp_accounting", reason="needs dp-accounting: pip install 'polyfed[privacy]'")
    privacy = {"clip": 0.05, "noise": 0.5, "delta": 0.01, "seed": 0}
    standing.set(small("scaffold"), {"rounds": 2}, privacy, run="study-masked", secure=True)
    standing.link.submit()
    standing.wait(standing.finished)
    standing.assert_equal()
    assert [row["epsilon"] > 0 for row in standing.link.progress()] == [True, True]
