"""Works (a), (c) and (e) on an accelerator, beside a PyTorch loop there: `PYTHONPATH=src python benchmarks/gpu.py`.

The Python that runs it needs JAX with the accelerator and, for the loop, PyTorch. Each figure is the best of a few
stretches of rounds; the loop is measured in turns with ours, after both have reached the same loss on a small version.
`--compute float32 bfloat16` also takes each work with products of 16-bit numbers, without a loop beside it.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from works import TORCH_LOOP, WORKS, operations

from polyfed.bench.loops import ask
from polyfed.bench.work import Work, loss_difference, make_problem, make_simulation, running, written
from polyfed.core import trees
from polyfed.core.precision import Compute
from polyfed.core.startup import start

COPIED = 4 << 30
SIDE = 8192
CASES = {"a": (100, 1000), "c": (100,), "e": (1000,)}
BYTES = {"float32": 4, "bfloat16": 2}
LOOP_CLIENTS = 100
"""The loop runs one client after another: with more clients than that, its time is taken with so many."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES), help="these works alone")
    parser.add_argument("--clients", type=int, nargs="*", help="these numbers of clients instead")
    parser.add_argument("--repeat", type=int, default=5, help="rounds of each")
    parser.add_argument("--rounds", type=int, default=10, help="rounds in one call of ours, as a run makes them")
    parser.add_argument("--torch", type=Path, default=Path(sys.executable), help="a Python that has PyTorch")
    parser.add_argument("--no-torch", action="store_true", help="without the PyTorch loop")
    parser.add_argument("--compute", nargs="*", choices=BYTES, default=["float32"], help="types of the products")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    start()
    rates = {"copy_gb_per_second": copy_rate(), "product_tflops": product_rate("float32")}
    if "bfloat16" in options.compute:
        rates["product_tflops_bfloat16"] = product_rate("bfloat16")
    device = jax.devices()[0].device_kind
    print(device, {name: round(rate) for name, rate in rates.items()})
    rows = []
    for key in options.only:
        for clients in options.clients or CASES[key]:
            work = replace(WORKS[key], clients=clients, peers=())
            for compute in options.compute:
                about = {"work": key, "clients": clients, "compute": compute}
                rows.append(about | measure(work, key, compute, rates, options))
                print(json.dumps(rows[-1]), flush=True)
    record = {
        "machine": {
            "device": device,
            "python": platform.python_version(),
            "jax": jax.__version__,
            "torch": None if options.no_torch else torch_version(options.torch),
        },
        "date": time.strftime("%Y-%m-%d"),
        **rates,
        "works": rows,
    }
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


def measure(work: Work, key: str, compute: Compute, rates: dict[str, float], options: Any) -> dict[str, Any]:
    """Our rounds, and the loop's in turns with them, whose numbers are of 32 bits."""
    python = None if options.no_torch or compute != "float32" else options.torch
    found: dict[str, Any] = {}
    if python is not None:
        found["loss_difference"] = loss_difference(work, TORCH_LOOP, python)
    beside = replace(work, clients=min(work.clients, LOOP_CLIENTS))
    problem = make_problem(work)
    run = make_simulation(problem, work, compute=compute)
    run.advance(1)
    ours, theirs = [], []
    if python is None:
        ours = [advance(run, options.rounds) for _ in range(options.repeat)]
    else:
        with written(make_problem(beside)) as place, running(beside, TORCH_LOOP, place, python) as loop:
            assert loop is not None
            ask(loop)
            for _ in range(options.repeat):
                ours.append(advance(run, options.rounds))
                theirs.append(ask(loop)[0])
    seconds = min(ours)
    rate = rates["product_tflops" if compute == "float32" else "product_tflops_bfloat16"]
    found |= {
        "chunk": run.programs.round.chunk,
        "compile_seconds": run.compile_seconds,
        "round_seconds": seconds,
        "client_updates_per_second": work.clients / seconds,
        "tflops": operations(work) / seconds / 1e12,
        "share_of_product_rate": operations(work) / seconds / 1e12 / rate,
    }
    if key == "a":
        floor = traffic(work, trees.count(problem.init()), compute) / (rates["copy_gb_per_second"] * 1e9)
        found |= {"floor_seconds": floor, "share_of_memory_floor": floor / seconds}
    if theirs:
        loop_seconds = min(theirs) * work.clients / beside.clients
        found |= {"torch_seconds": loop_seconds, "times_torch": loop_seconds / seconds}
    return found


def torch_version(python: Path) -> str:
    command = [str(python), "-c", "import torch; print(torch.__version__)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def traffic(work: Work, numbers: int, compute: str) -> int:
    """Bytes that weights must travel: read forward, read backward, read and written by the update, in every step.

    What is read forward and backward is of the products' type, what is updated of 32 bits.
    """
    return (2 * BYTES[compute] + 2 * BYTES["float32"]) * numbers * work.clients * work.steps


def advance(run: Any, rounds: int) -> float:
    """The seconds of a round; those between two evaluations are one call of one program."""
    before = run.seconds
    run.advance(rounds)
    return (run.seconds - before) / rounds


def copy_rate() -> float:
    """GB/s of reading and writing a large array."""
    numbers = jnp.zeros(COPIED // 4, jnp.float32)
    return 2 * COPIED / best(jax.jit(lambda a: a + 1), numbers) / 1e9


def product_rate(compute: str) -> float:
    """TFLOP/s of a large matrix product at the default precision."""
    square = jnp.ones((SIDE, SIDE), compute)
    return 2 * SIDE**3 / best(jax.jit(lambda a: a @ a), square) / 1e12


def best(function: Any, argument: jax.Array, repeat: int = 10) -> float:
    function(argument).block_until_ready()
    times = []
    for _ in range(repeat):
        begun = time.perf_counter()
        function(argument).block_until_ready()
        times.append(time.perf_counter() - begun)
    return min(times)


if __name__ == "__main__":
    main()
