"""What the process sets up before JAX runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from polyfed.core import startup
from polyfed.core.errors import PolyfedError
from polyfed.core.startup import trim_compiled


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


def test_the_compiled_programs_that_were_not_used_for_longest_go(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("POLYFED_CACHE", str(tmp_path))
    for age, name in enumerate(("new", "middle", "old")):
        path = tmp_path / "compiled" / f"processor-{age}" / f"{name}-cache"
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(1000))
        os.utime(path, (1e9 - age, 1e9 - age))
    assert trim_compiled(3000) == 0
    assert trim_compiled(2500) == 1
    assert sorted(path.name for path in tmp_path.rglob("*-cache")) == ["middle-cache", "new-cache"]
    monkeypatch.setenv("POLYFED_CACHE_LIMIT", "0.000001")  # of a GiB: 1073 bytes
    assert trim_compiled() == 1
    assert [path.name for path in tmp_path.rglob("*-cache")] == ["new-cache"]


def test_a_process_begins_by_removing_what_is_beyond_the_limit(tmp_path: Path) -> None:
    def compiled(program: str, limit: str) -> set[Path]:
        code = f"from polyfed.core.startup import start; start(); import jax; jax.jit({program})(1.0)"
        env = os.environ | {"POLYFED_CACHE": str(tmp_path), "POLYFED_CACHE_LIMIT": limit}
        subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True)
        return set(tmp_path.rglob("*-cache"))

    first = compiled("lambda x: x + 1", "4")
    assert first
    assert compiled("lambda x: x + 1", "4") == first
    second = compiled("lambda x: x * x - 3", "0")
    assert second
    assert not second & first


def test_too_low_a_limit_on_memory_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('[data]\nsource = "synthetic"\n[algorithm]\nname = "fedavg"\n')
    command = f"ulimit -v 2800000; exec {sys.executable} -m polyfed run c.toml --out runs"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    [sentence] = done.stderr.strip().splitlines()
    assert sentence.startswith("error: ")
    assert sentence.endswith("may take 2.7 GiB of memory (ulimit -v), and needs at least 3.0 to start")
    assert [path.name for path in tmp_path.iterdir()] == ["c.toml"]


@pytest.mark.parametrize("limit", ["abc", "nan", "inf", ""])
def test_a_limit_of_the_cache_that_is_none_is_named(monkeypatch, limit) -> None:
    monkeypatch.setenv("POLYFED_CACHE_LIMIT", limit)
    with pytest.raises(PolyfedError, match="POLYFED_CACHE_LIMIT must be a number of GiB, found"):
        trim_compiled()
