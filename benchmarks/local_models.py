"""What a bank of local models of the FEMNIST CNN takes: seconds, memory and disk, and those of the runs that read it.

    python benchmarks/local_models.py --clients 3400 --rows 20 --epochs 1    generated clients, rows on demand
    python benchmarks/local_models.py --writers --epochs 100                 MNIST's 539 writers, from the data folder

Each line is a JSON object; `peak_memory_gib` is the most that the process has held up to then.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import polyfed as pf
from polyfed.core.machine import peak_memory_bytes
from polyfed.engine.simulation import Simulation

BATCH = 20


def generated(clients: int, rows: int) -> pf.Population:
    """Clients whose images follow from their number."""

    def read(client: int) -> tuple[np.ndarray, np.ndarray]:
        draws = np.random.default_rng([1, client])
        y = draws.integers(0, 10, rows)
        return (20 * y[:, None, None, None] + draws.integers(0, 50, (rows, 28, 28, 1))).astype(np.uint8), y

    return pf.Population(read, np.full(clients, rows), classes=10, validation=0, test=0)


def tell(what: str, begun: float, **facts: Any) -> None:
    seconds, peak = time.perf_counter() - begun, peak_memory_bytes() or 0
    print(json.dumps({"what": what, "seconds": round(seconds, 1), "peak_memory_gib": round(peak / 2**30, 2)} | facts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=3400)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--tolerance", type=float)
    parser.add_argument("--cohort", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--writers", action="store_true")
    parser.add_argument("--folder", type=Path, help="where banks and states go; by default a temporary folder")
    given = parser.parse_args()
    data: Any = pf.data.load("mnist_by_writer") if given.writers else generated(given.clients, given.rows)
    problem = pf.Problem(data, pf.models.femnist_cnn(), "softmax")
    with TemporaryDirectory(dir=given.folder) as place:
        begun = time.perf_counter()
        training: dict[str, Any] = {"epochs": given.epochs, "lr": given.lr, "tolerance": given.tolerance}
        bank = pf.local_models(problem, place, batch=BATCH, **training)
        size = (bank.folder / "models.safetensors").stat().st_size
        facts = {"clients": len(bank), "epochs": int(bank.epochs.sum()), "far": len(bank.far)}
        tell("make the bank", begun, training_seconds=round(float(bank.seconds.sum()), 1), bytes=size, **facts)
        for method in (
            pf.algorithms.FLIX(alpha=0.5, lr=0.1, batch=BATCH),
            pf.algorithms.Scafflix(alpha=0.5, lr=0.03, p=0.2, batch=BATCH, steps="fixed"),
        ):
            begun = time.perf_counter()
            run = Simulation(
                problem,
                method,
                participation=min(given.cohort, len(bank)),
                store="disk",
                folder=Path(place),
                local_models=bank,
            )
            run.prepare()
            run.advance(given.rounds)
            tell(f"{given.rounds} rounds of {method.name}, {given.cohort} clients each", begun)


if __name__ == "__main__":
    main()
