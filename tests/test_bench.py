"""The benchmark: its arithmetic, and that the command runs. Its figures are not judged here: machines differ."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import polyfed as pf
from polyfed.bench.convex import METHODS, Speed, bench_convex
from polyfed.bench.engine import FLOPS, Figures
from polyfed.bench.methods import bench_methods
from polyfed.bench.neural import Speed as NeuralSpeed
from polyfed.bench.neural import Work, bench_neural


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


def test_methods_are_set_beside_fedavg_in_the_same_run() -> None:
    found = bench_methods(["fedbc"], repeat=1, rows=20)
    assert [cost.method for cost in found] == ["fedavg", "fedbc"]
    assert found[0].times_fedavg == 1
    assert found[1].as_dict()["times_fedavg"] == pytest.approx(found[1].round_seconds / found[0].round_seconds)
    with pytest.raises(pf.PolyfedError, match="flixx"):
        bench_methods(["flixx"], repeat=1, rows=20)
    with pytest.raises(pf.PolyfedError, match="scaffnew has no local_epochs"):
        bench_methods(["scaffnew"], repeat=1, rows=20)


def test_a_python_without_pytorch_is_refused() -> None:
    command = [sys.executable, "-m", "polyfed", "bench", "engine", "--torch", "no-such-python"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "no-such-python" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_convex_loops_compute_what_the_engine_computes() -> None:
    """The NumPy loops are references of their own: after five rounds the models agree. DIANA draws other numbers."""

    def federation(clients: int) -> pf.Federation:
        draws = np.random.default_rng(0)
        rows = {
            f"site-{i}": {"train": (draws.normal(size=(12 + i, 15)), np.sign(draws.normal(size=12 + i)))}
            for i in range(clients)
        }
        return pf.Federation.from_arrays(rows)

    found = bench_convex((3,), repeat=1, federation=federation)
    assert [(speed.clients, speed.method) for speed in found] == [(3, method) for method in METHODS]
    for speed in found:
        assert speed.round_seconds > 0
        assert speed.difference is None if speed.method == "DIANA" else speed.difference < 1e-12


def test_the_convex_figures_follow_from_the_times() -> None:
    found = Speed(50, "GD", round_seconds=0.001, loop_seconds=0.004, difference=0.0).as_dict()
    assert found["times_numpy"] == pytest.approx(4.0)
    assert found["rounds_per_second"] == pytest.approx(1000.0)


@pytest.mark.parametrize("options", [{"repeat": 0}, {"clients": (0,)}, {"clients": ()}])
def test_convex_measurements_that_cannot_be_are_refused(options) -> None:
    with pytest.raises(pf.PolyfedError, match="at least 1"):
        bench_convex(**options)


def test_the_neural_rounds_are_measured_with_the_chunks_asked_for() -> None:
    work = (Work("lstm", clients=2, steps=1, batch=2, classes=5),)
    found = bench_neural(1, None, chunks=(2,), devices=1, work=work)
    assert [speed.chunk for speed in found] == [2]
    assert all(speed.round_seconds > 0 for speed in found)
    figures = NeuralSpeed(work[0], 2, round_seconds=0.5, torch_seconds=0.75).as_dict()
    assert figures["times_torch_loop"] == pytest.approx(1.5)
    with pytest.raises(pf.PolyfedError, match="at least 1"):
        bench_neural(0)
