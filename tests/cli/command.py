"""`polyfed` as tests call it: in this process, or in a process of its own where the process is what is tested."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from polyfed.cli import options
from polyfed.cli.main import main
from tests.compilation import QUICK

CONFIG = """
[data]
source = "synthetic"
clients = 6
sizes = 40
seed = 3

[problem]
l2 = 0.001

[algorithm]
name = "scaffold"
lr = 0.05
local_steps = 4
batch = 8

[run]
rounds = 12
participation = 0.5
eval_every = 4
checkpoint_every = 3
alone = false
finetune_steps = 0
"""
"""Little to compile; a test that is about more sets it."""
COMPARE = (
    CONFIG.replace('name = "scaffold"\n', "").replace("finetune_steps = 0", "finetune_steps = 10")
    + """
seeds = [0, 1]

[[compare]]
name = "local"
label = "Alone"

[[compare]]
name = "fedavg"

[[compare]]
name = "fedavg"
label = "FedAvg & <tuning>"
finetune = true
"""
)
TERMINAL = {"COLUMNS": "100", "NO_COLOR": "1"}


def polyfed(*arguments: str, cwd: Path, check: int | None = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    """Call the entry point in this process; `check` is the exit code to expect, None for any."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), chdir(cwd):
        warnings.simplefilter("default")
        patch.setattr(sys, "argv", ["polyfed", *arguments])
        for name, value in (TERMINAL | variables).items():
            patch.setenv(name, value)
        for console in (options.out, options.err):  # which asked for the width when they were made
            patch.setattr(console, "_width", int({**TERMINAL, **variables}["COLUMNS"]))
        with redirect_stdout(out), redirect_stderr(err):
            code = _exit_code()
    done = subprocess.CompletedProcess(["polyfed", *arguments], code, out.getvalue(), err.getvalue())
    assert check is None or done.returncode == check, done.stdout + done.stderr
    return done


def _exit_code() -> int:
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def polyfed_process(*arguments: str, cwd: Path, check: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `python -m polyfed`."""
    with start_polyfed(*arguments, cwd=cwd) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == check, out + err
    return subprocess.CompletedProcess(["polyfed", *arguments], process.returncode, out, err)


def start_polyfed(*arguments: str, cwd: Path, **variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "polyfed", *arguments]
    environment = {**os.environ, **TERMINAL, "XLA_FLAGS": QUICK, **variables}
    return subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def metrics(run: Path) -> list[dict[str, float]]:
    """The rows of a run's metrics.jsonl, but for the time that they took."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def models(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "models").iterdir()}


def newest_checkpoint(run: Path) -> int:
    """The round of a run's last checkpoint; 0 where there is none."""
    folders = sorted((run / "checkpoint").glob("round-*"))
    return int(folders[-1].name.removeprefix("round-")) if folders else 0
