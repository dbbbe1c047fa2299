"""The benchmark: its arithmetic, and that the command runs. Its figures are not judged here: machines differ."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from polyfed.bench.engine import FLOPS, Figures


def test_the_figures_follow_from_the_times() -> None:
    figures = Figures(matrix_gflops=200.0, round_seconds=0.5, torch_seconds=1.5, memory_mib={1000: 400.0, 10000: 500.0})
    found = figures.as_dict()
    assert FLOPS == 6 * 100 * 20 * 20 * 198_800
    assert found["share_of_matrix_product"] == pytest.approx(FLOPS / 0.5 / 200e9)
    assert found["times_torch_loop"] == pytest.approx(3.0)
    assert found["client_updates_per_second"] == pytest.approx(200)
    assert found["memory_ratio"] == pytest.approx(1.25)


def test_the_command_prints_a_share_of_the_machines_rate() -> None:
    command = [sys.executable, "-m", "polyfed", "bench", "engine", "--repeat", "1", "--no-memory", "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)
    assert 0 < found["share_of_matrix_product"] < 2


def test_a_python_without_pytorch_is_refused() -> None:
    command = [sys.executable, "-m", "polyfed", "bench", "engine", "--torch", "no-such-python"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "no-such-python" in done.stderr
    assert "Traceback" not in done.stderr
