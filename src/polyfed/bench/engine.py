"""`polyfed bench engine`: one round of FedAvg beside the machine's matrix-product rate and a plain PyTorch loop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import polyfed as pf
from polyfed.bench.loops import PEERS, TORCH, ask, end, start_loop
from polyfed.core.aligned import aligned, empty
from polyfed.core.errors import PolyfedError
from polyfed.core.machine import peak_memory_bytes
from polyfed.engine.simulation import Simulation

CLIENTS, STEPS, BATCH, ROWS = 100, 20, 20, 400
WEIGHTS = 784 * 200 + 200 * 200 + 200 * 10
FLOPS = 6 * CLIENTS * STEPS * BATCH * WEIGHTS
"""Forward, and backward twice as much; two operations per weight and example."""


@dataclass(frozen=True)
class Figures:
    """The best of the repetitions of each, in one run."""

    matrix_gflops: float
    round_seconds: float
    torch_seconds: float | None
    memory_mib: dict[int, float]

    @property
    def gflops(self) -> float:
        return FLOPS / self.round_seconds / 1e9

    @property
    def share(self) -> float:
        """The round's arithmetic rate as a share of the matrix-product rate."""
        return self.gflops / self.matrix_gflops

    def as_dict(self) -> dict[str, float]:
        figures = {
            "matrix_product_gflops": self.matrix_gflops,
            "round_seconds": self.round_seconds,
            "round_gflops": self.gflops,
            "share_of_matrix_product": self.share,
            "client_updates_per_second": CLIENTS / self.round_seconds,
        }
        if self.torch_seconds is not None:
            figures |= {
                "torch_loop_seconds": self.torch_seconds,
                "times_torch_loop": self.torch_seconds / self.round_seconds,
            }
        for clients, used in self.memory_mib.items():
            figures[f"memory_mib_{clients}_clients"] = used
        if len(self.memory_mib) == 2:
            small, large = self.memory_mib.values()
            figures["memory_ratio"] = large / small
        return figures


def bench_engine(repeat: int = 5, torch_python: Path | None = None, measure_memory: bool = True) -> Figures:
    """Measure in turns: matrix product, our round, PyTorch's round, and again."""
    if repeat < 1:
        raise PolyfedError(f"repeat must be at least 1, found {repeat}")
    torch = start_loop(TORCH, PEERS / "torch_loop.py", map(str, (CLIENTS, STEPS, BATCH, ROWS)), torch_python)
    simulation = Simulation(random_problem(CLIENTS, ROWS), pf.algorithms.FedAvg(local_steps=STEPS, batch=BATCH))
    multiply = jax.jit(lambda a: a @ a)
    square = jnp.ones((2048, 2048))
    multiply(square).block_until_ready()
    simulation.advance(1)
    rates, rounds, loops = [], [], []
    for _ in range(repeat):
        for _ in range(3):
            begun = time.perf_counter()
            multiply(square).block_until_ready()
            rates.append(2 * 2048**3 / (time.perf_counter() - begun) / 1e9)
        before = simulation.seconds
        simulation.advance(1)
        rounds.append(simulation.seconds - before)
        if torch is not None:
            loops.append(ask(torch)[0])
    if torch is not None:
        end(torch)
    used = {clients: _memory(clients) for clients in (1_000, 10_000)} if measure_memory else {}
    return Figures(max(rates), min(rounds), min(loops) if loops else None, used)


def random_problem(clients: int, rows: int, hidden: Sequence[int] = (200, 200)) -> pf.Problem:
    """Random examples, made in place, so that memory holds nothing but the data."""
    x = empty((clients * rows, 784), np.float32)
    np.random.default_rng(0).standard_normal(out=x, dtype=np.float32)
    y = aligned(np.random.default_rng(1).integers(0, 10, clients * rows).astype(np.int32))
    offsets = np.arange(clients + 1, dtype=np.int64) * rows
    none = pf.data.Split(x[:0], y[:0], np.zeros(clients + 1, np.int64))
    names = tuple(f"client-{i}" for i in range(clients))
    federation = pf.Federation(names, pf.data.Split(x, y, offsets), none, none, classes=10)
    return pf.Problem(federation, pf.models.mlp(hidden), "softmax")


def _memory(clients: int) -> float:
    """MiB beyond the data that one round of so many clients takes, in a process of its own."""
    command = [sys.executable, "-c", f"from polyfed.bench.engine import _print_memory; _print_memory({clients})"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ})
    return float(json.loads(answer.stdout)["mib"])


def _print_memory(clients: int, rows: int = 20) -> None:
    problem = random_problem(clients, rows)
    train = problem.federation.train
    pf.simulate(problem, pf.algorithms.FedAvg(local_steps=2, batch=BATCH), rounds=1)
    peak = peak_memory_bytes() or 0
    print(json.dumps({"mib": (peak - train.x.nbytes - train.y.nbytes) / 2**20}))
