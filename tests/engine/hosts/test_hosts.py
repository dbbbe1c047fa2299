"""One simulation in two processes on loopback: the same numbers as in one, and an orderly end where one is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import numpy as np
import pytest

import polyfed as pf
from polyfed.core.errors import PolyfedError
from polyfed.engine.checkpoint import checkpoint as checkpoints
from polyfed.engine.hosts.team import Team, find_team, from_launcher
from polyfed.engine.states import in_waves as streamed
from tests.compilation import QUICK
from tests.conftest import unequal_clients
from tests.engine.hosts.one_of_two import CASES, deployed, end, simulated

ROOT = Path(__file__).parents[3]
LIMIT = 300
"""Seconds after which a process that hangs is ended, and its test fails."""
CONFIG = """
[data]
source = "synthetic"
clients = 5
[problem]
model = "linear"
[algorithm]
name = "apfl"
local_steps = 2
[run]
rounds = 1000000
participation = 3
checkpoint_every = 3
dtype = "float64"
alone = false
finetune_steps = 0
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@contextmanager
def started(*commands: list[str], cwd: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes with two devices each, which end with the test."""
    flags = {"JAX_NUM_CPU_DEVICES": "2", "XLA_FLAGS": QUICK}
    where = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [
        subprocess.Popen([sys.executable, *command], cwd=cwd, env=os.environ | flags | where, **pipes)
        for command in commands
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.full
def test_two_processes_end_with_the_numbers_of_one(problem, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(streamed, "WAVE_BYTES", 300)
    clients = {
        name: {split: [part.tolist() for part in rows] for split, rows in splits.items()}
        for name, splits in unequal_clients().items()
    }
    (tmp_path / "clients.json").write_text(json.dumps(clients))
    simulated(problem, "scafflix", tmp_path, rounds=2, resume=False)
    port = str(free_port())
    work = [
        [str(ROOT / "tests" / "engine" / "hosts" / "one_of_two.py"), str(index), port, str(tmp_path)]
        for index in (0, 1)
    ]
    with started(*work, cwd=tmp_path) as processes:
        results = {
            name: simulated(problem, name, tmp_path / "one", rounds=4, resume=False, store="device") for name in CASES
        }
        told = [process.communicate(timeout=LIMIT) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], told
    kinds = ["Resident", "Resident", "Streamed", "Streamed"]
    refused = [
        "process 1 was not given the same run as process 0: seed differs",
        "runs of a sweep are those of one process, found 2",
    ]
    # Each process has the states of its own clients alone: 4 devices for 6 clients, so 4 clients and 2.
    for index, share in enumerate((4, 2)):
        lines = (tmp_path / f"told-{index}").read_text().splitlines()
        assert lines == [f"{name} {share} {kind}" for name, kind in zip(CASES, kinds, strict=True)] + refused
    assert not (tmp_path / "not-here").exists()
    for name, result in results.items():
        with np.load(tmp_path / f"{name}.npz") as file:
            found = list(file.values())
        if name == "apfl":
            found = end(simulated(problem, name, tmp_path, rounds=4, resume=True))
        expected = end(result) + (deployed(result) if len(found) > len(end(result)) else [])
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.full
def test_a_lost_process_ends_the_run_which_one_process_takes_up(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)
    together = ["-m", "polyfed", "run", "config.toml", "--out", "run", f"--hosts=127.0.0.1:{free_port()},127.0.0.1"]
    with started(*([*together, "--host-index", str(index)] for index in (0, 1)), cwd=tmp_path) as guards:
        kept = tmp_path / "run" / "checkpoint"
        limit = time.monotonic() + LIMIT
        while checkpoints.latest(kept) is None and all(guard.poll() is None for guard in guards):
            assert time.monotonic() < limit
            time.sleep(0.1)
        [worker] = Path(f"/proc/{guards[1].pid}/task/{guards[1].pid}/children").read_text().split()
        os.kill(int(worker), signal.SIGKILL)
        told = [guard.communicate(timeout=LIMIT) for guard in guards]
    assert [guard.returncode for guard in guards] == [3, 3], told
    for _, err in told:
        assert err.strip().splitlines()[-1] == (
            "error: process 1 of 2 (127.0.0.1) was lost: killed by signal 9; the run has stopped. "
            "Start all 2 processes again, or another number, with --resume to go on from the last checkpoint"
        )
        assert "Traceback" not in err
        assert "stack trace" not in err
    path = checkpoints.latest(kept)
    assert path is not None
    rounds = int(re.sub(r"\D", "", path.name)) + 2
    from polyfed.studies.config import read_config

    config = read_config(tmp_path / "config.toml", [])
    problem, method = config.problem, config.methods[0].algorithm
    options = {"rounds": rounds, "participation": 3, "dtype": "float64", "eval_every": rounds}
    resumed = pf.simulate(problem, method, resume=kept, **options)
    whole = pf.simulate(problem, method, **options)
    for a, b in zip(jax.tree.leaves(resumed.client_state), jax.tree.leaves(whole.client_state), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(resumed.history["objective"].iloc[-1], whole.history["objective"].iloc[-1], rtol=1e-12)


def test_hosts_are_read_as_they_are_written(monkeypatch) -> None:
    for variable in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(variable, raising=False)
    assert find_team("a.example:4000,b.example", 1) == Team("a.example", 4000, 2, 1, ("a.example", "b.example"))
    assert find_team("127.0.0.1:4000,host.invalid", None) == Team(
        "127.0.0.1", 4000, 2, 0, ("127.0.0.1", "host.invalid")
    )
    assert find_team("off", None) is None
    assert find_team("127.0.0.1:4000", None) is None
    assert find_team(None, None) is None


@pytest.mark.parametrize(
    ("hosts", "index", "sentence"),
    [
        ("a,b", 0, "--hosts must be HOST:PORT,HOST,..., the port being one of the first host; found 'a,b'"),
        ("a:1,b", 2, "--host-index must be from 0 to 1, found 2"),
        (None, 1, "--host-index needs --hosts HOST:PORT,HOST,..."),
        (
            "127.0.0.1:1,localhost",
            None,
            "--host-index is needed: of 127.0.0.1, localhost, more than one is an address of this machine",
        ),
    ],
)
def test_hosts_that_make_no_sense_are_refused(monkeypatch, hosts, index, sentence) -> None:
    for variable in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(PolyfedError, match=re.escape(sentence)):
        find_team(hosts, index)


def test_launchers_say_who_takes_part() -> None:
    slurm = {"SLURM_JOB_ID": "4097", "SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "5"}
    firsts = {"n7": "n7", "n7,m1": "n7", "n[012-015,20],m1": "n012", "n[3,5]": "n3", "r[1-2]n[3,4]-ib,m1": "r1n3-ib"}
    for nodes, first in firsts.items():
        assert from_launcher(slurm | {"SLURM_STEP_NODELIST": nodes}) == Team(first, 61441, 8, 5)
    assert from_launcher(slurm | {"SLURM_STEP_NODELIST": "n7", "SLURM_STEP_NUM_TASKS": "1"}) is None
    assert from_launcher(slurm) is None  # a batch script, of which srun starts the processes
    mpi = {
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_MCA_orte_hnp_uri": "8192.0;tcp://10.1.2.3,172.17.0.1:41000",
    }
    assert from_launcher(mpi) == Team("10.1.2.3", 61442, 2, 1)
    with pytest.raises(PolyfedError, match="the launcher's variables cannot be read"):
        from_launcher(mpi | {"OMPI_COMM_WORLD_SIZE": "two"})
    with pytest.raises(PolyfedError, match="process 9 of 8"):
        from_launcher(slurm | {"SLURM_STEP_NODELIST": "n7", "SLURM_PROCID": "9"})
    del mpi["OMPI_MCA_orte_hnp_uri"]  # as Open MPI 5 leaves it
    with pytest.raises(PolyfedError, match=r"OMPI_MCA_orte_hnp_uri.*name the processes with --hosts"):
        from_launcher(mpi)
    assert from_launcher(mpi | {"OMPI_COMM_WORLD_SIZE": "1"}) is None


def test_a_rank_that_is_no_number_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "abc")
    with pytest.raises(PolyfedError, match="SLURM_PROCID must be a whole number, found 'abc'"):
        find_team("127.0.0.1:4000,127.0.0.1", None)
