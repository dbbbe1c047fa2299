"""A bank of pure local models whose making was stopped or killed goes on to the same bits."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors import safe_open

import polyfed as pf
from polyfed.engine import local_models as making
from tests.engine.test_local_models import BANK


class Stop(Exception):
    pass


def test_a_making_that_was_stopped_goes_on_to_the_same_bits(problem, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(making, "SYNC", 0.0)
    options: dict[str, Any] = BANK | {"chunk": 1, "devices": 1}
    whole = pf.local_models(problem, tmp_path / "whole", **options)

    def stop(done: int, total: int, seconds: float) -> None:
        if done == 4:
            raise Stop

    with pytest.raises(Stop):
        pf.local_models(problem, tmp_path / "parts", progress=stop, **options)
    seen: list[int] = []
    parts = pf.local_models(problem, tmp_path / "parts", progress=lambda done, *_: seen.append(done), **options)
    assert seen == [5, 6]
    for name in ("grad_norms", "start_norms", "epochs"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
    for a, b in zip(jax.tree.leaves(parts.params), jax.tree.leaves(whole.params), strict=True):
        np.testing.assert_array_equal(a, b)
    assert parts.seconds.min() > 0
    assert not list(tmp_path.rglob("*unfinished*"))


KILLED = """
import os, signal, sys
import polyfed as pf
from polyfed.engine import local_models as making
from tests.conftest import unequal_clients

making.SYNC = 0.0
federation = pf.Federation.from_arrays(unequal_clients(), classes=3)
problem = pf.Problem(federation, pf.models.mlp([5]), "softmax", l2=0.01)

def kill(done, total, seconds):
    if done == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

bank = pf.local_models(problem, sys.argv[1], epochs=3, batch=4, patience=1, chunk=1, devices=1, progress=kill)
print(bank.folder)
"""


@pytest.mark.full
def test_a_killed_making_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    def made(place: str, last: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", KILLED, str(tmp_path / place), str(last)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2])

    killed = made("parts", 3)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.rglob("models.unfinished"))) == 1
    folders = [Path(made(place, 99).stdout.strip()) for place in ("parts", "whole")]
    assert folders[0].name == folders[1].name
    tensors = []
    for folder in folders:
        with safe_open(folder / "models.safetensors", framework="np") as file:
            tensors.append({name: file.get_tensor(name) for name in file.keys() if name != "seconds"})  # noqa: SIM118
    assert tensors[0]["done"].all()
    for name, array in tensors[0].items():
        np.testing.assert_array_equal(array, tensors[1][name])
