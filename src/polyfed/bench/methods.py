"""`polyfed bench methods`: a round of other methods beside one of FedAvg, on an MLP of MNIST's shape."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import polyfed as pf
from polyfed.algorithms.contract import get_algorithm
from polyfed.bench.engine import random_problem
from polyfed.core.errors import PolyfedError
from polyfed.engine.simulation import Simulation

CLIENTS, ROWS, EPOCHS, BATCH = 20, 3000, 5, 20
"""MNIST's training rows over 20 devices, and FedBC's local work."""
METHODS = ("fedprox", "fedbc")
BASE = "fedavg"


class CostRow(TypedDict):
    method: str
    round_seconds: float
    times_fedavg: float


@dataclass(frozen=True)
class Cost:
    """The best round of a method, and how many times FedAvg's best in the same run."""

    method: str
    round_seconds: float
    times_fedavg: float

    def as_dict(self) -> CostRow:
        return {"method": self.method, "round_seconds": self.round_seconds, "times_fedavg": self.times_fedavg}


def bench_methods(methods: Sequence[str] = METHODS, repeat: int = 5, rows: int = ROWS) -> list[Cost]:
    """A round of each method in turns, FedAvg first; the best of the repetitions."""
    if repeat < 1:
        raise PolyfedError(f"repeat must be at least 1, found {repeat}")
    problem = random_problem(CLIENTS, rows, [128])
    runs = {name: _simulation(problem, name) for name in dict.fromkeys((BASE, *methods))}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeat):
        for name, simulation in runs.items():
            before = simulation.seconds
            simulation.advance(1)
            seconds[name].append(simulation.seconds - before)
    best = {name: min(rounds) for name, rounds in seconds.items()}
    return [Cost(name, shortest, shortest / best[BASE]) for name, shortest in best.items()]


def _simulation(problem: pf.Problem, name: str) -> Simulation:
    """The method with this work, compiled and warmed up by a round."""
    cls = get_algorithm(name)
    known = {field.name for field in dataclasses.fields(cls)}  # pyright: ignore[reportArgumentType]
    if "local_epochs" not in known:
        raise PolyfedError(f"{name} has no local_epochs, so its round cannot be set beside FedAvg's")
    simulation = Simulation(problem, cls(lr=0.01, local_epochs=EPOCHS, batch=BATCH))  # pyright: ignore[reportCallIssue]
    simulation.prepare()
    simulation.advance(1)
    return simulation
