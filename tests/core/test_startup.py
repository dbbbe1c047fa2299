"""What the process sets up before JAX runs."""

from __future__ import annotations

import os
import subprocess
import sys

from polyfed.core import startup


def test_devices_may_wait_for_each_other_as_long_as_a_round_takes(monkeypatch) -> None:
    """XLA would end the process after 40 seconds; a flag that the user has set stays as it is."""
    mine = "--xla_cpu_collective_call_terminate_timeout_seconds=5"
    monkeypatch.setenv("XLA_FLAGS", f"--xla_cpu_multi_thread_eigen=false {mine}")
    startup.start.__wrapped__()
    flags = os.environ["XLA_FLAGS"].split()
    assert flags[:2] == ["--xla_cpu_multi_thread_eigen=false", mine]
    assert flags[2:] == ["--xla_cpu_collective_call_warn_stuck_timeout_seconds=600"]
    monkeypatch.delenv("XLA_FLAGS")
    startup.start.__wrapped__()
    assert os.environ["XLA_FLAGS"].split() == [f"{name}={seconds}" for name, seconds in startup.PATIENCE.items()]


def test_the_sentence_about_the_machine_leaves_it_all_its_cores() -> None:
    """A reproduction asks for it before its first run; JAX keeps what devices it has by then."""
    code = "from polyfed.papers.shared.folder import hardware; hardware(); import jax; print(jax.local_device_count())"
    environment = {name: value for name, value in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) == len(os.sched_getaffinity(0))
