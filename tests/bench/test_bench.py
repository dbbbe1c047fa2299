"""The benchmark: its arithmetic, and that the command runs. Its figures are not judged here: machines differ."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import polyfed as pf
from polyfed.bench.convex import METHODS, Speed, bench_convex
from polyfed.bench.engine import FLOPS, Figures
from polyfed.bench.loops import PEERS, TORCH, start_loop
from polyfed.bench.methods import bench_methods
from polyfed.bench.neural import FEDJAX_AVERAGING, MIXING, ON_CPU, ON_GPU, Seconds, bench_neural
from polyfed.bench.neural import Speed as NeuralSpeed
from polyfed.bench.work import Peer, Work, loss_difference
from tests.cli.command import polyfed


def test_the_figures_follow_from_the_times() -> None:
    figures = Figures(matrix_gflops=200.0, round_seconds=0.5, torch_seconds=1.5, memory_mib={1000: 400.0, 10000: 500.0})
    found = figures.as_dict()
    assert FLOPS == 6 * 100 * 20 * 20 * 198_800
    assert found["share_of_matrix_product"] == pytest.approx(FLOPS / 0.5 / 200e9)
    assert found["times_torch_loop"] == pytest.approx(3.0)
    assert found["client_updates_per_second"] == pytest.approx(200)
    assert found["memory_ratio"] == pytest.approx(1.25)


@pytest.mark.full
def test_the_command_prints_a_share_of_the_machines_rate() -> None:
    command = [sys.executable, "-m", "polyfed", "bench", "engine", "--repeat", "1", "--no-memory", "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)
    assert 0 < found["share_of_matrix_product"] < 2


@pytest.mark.full
def test_methods_are_set_beside_fedavg_in_the_same_run() -> None:
    found = bench_methods(["fedbc"], repeat=1, rows=20)
    assert [cost.method for cost in found] == ["fedavg", "fedbc"]
    assert found[0].times_fedavg == 1
    assert found[1].as_dict()["times_fedavg"] == pytest.approx(found[1].round_seconds / found[0].round_seconds)
    with pytest.raises(pf.PolyfedError, match="flixx"):
        bench_methods(["flixx"], repeat=1, rows=20)
    with pytest.raises(pf.PolyfedError, match="scaffnew has no local_epochs"):
        bench_methods(["scaffnew"], repeat=1, rows=20)


def test_a_python_without_pytorch_is_refused(tmp_path: Path) -> None:
    done = polyfed("bench", "engine", "--torch", "no-such-python", cwd=tmp_path, check=2)
    assert "no-such-python" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.full
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
        if speed.method == "DIANA":
            assert speed.difference is None
        else:
            assert speed.difference is not None
            assert speed.difference < 1e-12


def test_the_convex_figures_follow_from_the_times() -> None:
    found = Speed(50, "GD", round_seconds=0.001, loop_seconds=0.004, difference=0.0).as_dict()
    assert found["times_numpy"] == pytest.approx(4.0)
    assert found["rounds_per_second"] == pytest.approx(1000.0)


@pytest.mark.parametrize("options", [{"repeat": 0}, {"clients": (0,)}, {"clients": ()}])
def test_convex_measurements_that_cannot_be_are_refused(options) -> None:
    with pytest.raises(pf.PolyfedError, match="at least 1"):
        bench_convex(**options)


SMALL = Work("small", "mlp", clients=2, steps=1, batch=2, classes=5, peers=(), method="apfl", rows=4)
STUB = """
import sys
assert sys.argv[2].startswith("{")
print("ready", flush=True)
for line in sys.stdin:
    print(LOSS if line.strip() == "loss" else "0.25 0.5", flush=True)
"""


def with_stub(tmp_path, loss: str) -> Work:
    """A small work beside a loop that answers at once, with this loss."""
    (tmp_path / "stub.py").write_text(STUB.replace("LOSS", loss))
    return replace(SMALL, peers=(Peer(TORCH, tmp_path / "stub.py", "fedavg", 1),))


@pytest.mark.full
def test_the_neural_rounds_are_measured_with_the_chunks_asked_for() -> None:
    found = bench_neural(1, chunks=(2,), devices=1, work=(SMALL,))
    assert [(speed.chunk, speed.peer) for speed in found] == [(2, None)]
    assert all(speed.ours.wall > 0 and speed.ours.cpu > 0 for speed in found)
    with pytest.raises(pf.PolyfedError, match="at least 1"):
        bench_neural(0)


@pytest.mark.parametrize(("peer", "times"), [(MIXING, 1.5), (FEDJAX_AVERAGING, 3.0)])
def test_a_peer_is_compared_per_gradient(peer: Peer, times: float) -> None:
    work = replace(SMALL, peers=(peer,))
    figures = NeuralSpeed(work, 2, Seconds(0.5, 0.9), peer, Seconds(0.75, 0.8), 1e-6).as_dict()
    assert figures.get("times_peer_per_gradient") == pytest.approx(times)
    assert figures.get("peer", "").split()[0] == peer.environment.framework


def test_a_peer_that_computes_something_else_is_not_compared(tmp_path) -> None:
    with pytest.raises(pf.PolyfedError, match="do not compute the same"):
        bench_neural(1, torch_python=Path(sys.executable), devices=1, work=(with_stub(tmp_path, "99.0"),))


def test_a_half_made_environment_is_as_good_as_none(tmp_path: Path) -> None:
    nowhere = replace(TORCH, python=tmp_path / "nowhere" / "python")
    assert nowhere.gap() == f"there is no {nowhere.python}"
    venv.create(tmp_path / "empty")
    empty = replace(TORCH, python=tmp_path / "empty" / "bin" / "python")
    assert empty.gap() == f"{empty.python} cannot import torch"
    assert replace(empty, packages=("json", "zlib")).gap() is None
    assert start_loop(empty, PEERS / "torch_loop.py", []) is None
    with pytest.raises(pf.PolyfedError, match="could not run the PyTorch loop"):
        start_loop(empty, PEERS / "torch_loop.py", [], empty.python)


@pytest.mark.parametrize("peer", ON_CPU[0].peers, ids=lambda peer: peer.environment.framework)
def test_the_peers_compute_what_the_engine_computes(peer: Peer) -> None:
    """Two rounds on the same data give the same loss; where the environment was made."""
    if gap := peer.environment.gap():
        pytest.skip(gap)
    found = loss_difference(ON_CPU[0], peer)
    assert found is not None
    assert found < 1e-5


def test_the_gpu_is_given_a_hundred_clients_a_round() -> None:
    assert {work.clients for work in ON_GPU} == {100}
    assert {work.model for work in ON_GPU} >= {"mlp", "femnist_cnn"}
