"""What the process sets up before JAX runs."""

from __future__ import annotations

import os

from polyfed import startup


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
