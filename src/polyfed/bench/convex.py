"""`polyfed bench convex`: rounds per second of the convex methods beside a plain NumPy loop over the clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict, TypeVar

import numpy as np

import polyfed as pf
from polyfed.algorithms.contract import Algorithm
from polyfed.compress import RandK
from polyfed.core.errors import PolyfedError
from polyfed.engine.simulation import Simulation

ALPHA, RIDGE, COORDINATES = 0.1, 0.1, 10
METHODS = ("GD", "DIANA", "Scafflix")
SECONDS = 0.3
"""About how long one repetition of either side takes."""

T = TypeVar("T")
Rows = list[tuple[np.ndarray, np.ndarray]]
Advance = Callable[[int], np.ndarray]
"""Runs so many more rounds, and returns the global model."""


class SpeedRow(TypedDict):
    clients: int
    method: str
    rounds_per_second: float
    numpy_rounds_per_second: float
    times_numpy: float
    difference: float | None


@dataclass(frozen=True)
class Speed:
    """One method with one number of clients: the best repetition of each side."""

    clients: int
    method: str
    round_seconds: float
    loop_seconds: float
    difference: float | None
    """The largest difference of the two global models after the same rounds; None where draws differ."""

    @property
    def times(self) -> float:
        return self.loop_seconds / self.round_seconds

    def as_dict(self) -> SpeedRow:
        return {
            "clients": self.clients,
            "method": self.method,
            "rounds_per_second": 1 / self.round_seconds,
            "numpy_rounds_per_second": 1 / self.loop_seconds,
            "times_numpy": self.times,
            "difference": self.difference,
        }


def bench_convex(
    clients: Sequence[int] = (8, 50, 500), repeat: int = 5, federation: Callable[[int], pf.Federation] | None = None
) -> list[Speed]:
    """GD, DIANA and Scafflix on mushrooms (or `federation(n)`), in turns with the NumPy loop."""
    if repeat < 1:
        raise PolyfedError(f"repeat must be at least 1, found {repeat}")
    if not clients or any(n < 1 for n in clients):
        raise PolyfedError(f"clients must be whole numbers, at least 1, found {list(clients)}")
    make = federation or (lambda n: pf.data.load("libsvm", name="mushrooms", clients=n))
    speeds: list[Speed] = []
    for n in clients:
        problem = pf.Problem(make(n), pf.models.linear(bias=False), "logistic", l2=RIDGE)
        speeds.extend(_compare(problem, method, repeat) for method in METHODS)
    return speeds


def _compare(problem: pf.Problem, name: str, repeat: int) -> Speed:
    """The two sides in turns, after as many rounds as show that they compute the same."""
    simulation = Simulation(problem, _method(name), dtype="float64", init="ones")
    simulation.prepare()
    loop = LOOPS[name](problem, simulation)
    simulation.advance(5)
    same = loop(5)
    difference = None if name == "DIANA" else float(np.max(np.abs(simulation.global_params["w"] - same)))
    ours = _enough(simulation.advance)
    theirs = _enough(loop)
    best, beside = [], []
    for _ in range(repeat):
        best.append(_seconds(simulation.advance, ours))
        beside.append(_seconds(loop, theirs))
    return Speed(len(problem), name, min(best), min(beside), difference)


def _method(name: str) -> Algorithm:
    """With the theory's stepsizes; Scafflix with a fixed number of local steps, so that both sides take the same."""
    if name == "GD":
        return pf.algorithms.FLIX(alpha=ALPHA)
    if name == "DIANA":
        return pf.algorithms.DIANA(alpha=ALPHA, compressor=RandK(COORDINATES))
    return pf.algorithms.Scafflix(alpha=ALPHA, steps="fixed")


def _enough(run: Callable[[int], object]) -> int:
    """How many rounds take about SECONDS."""
    run(3)
    return max(1, round(SECONDS / _seconds(run, 10)))


def _seconds(run: Callable[[int], object], rounds: int) -> float:
    begun = time.perf_counter()
    run(rounds)
    return (time.perf_counter() - begun) / rounds


def _clients(problem: pf.Problem) -> Rows:
    """(a, b) of every client, with labels b = +-1."""
    train = problem.federation.train
    targets = problem.loss.targets(problem.federation)(train.y)
    cuts = train.offsets[1:-1]
    return list(zip(np.split(train.x.astype(np.float64), cuts), np.split(targets, cuts), strict=True))


def _gradient(a: np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Of mean log(1 + exp(-b a.x)) + RIDGE/2 |x|^2."""
    return -(b / (1 + np.exp(b * (a @ x)))) @ a / len(b) + RIDGE * x


def _gd(problem: pf.Problem, simulation: Simulation) -> Advance:
    data, own, method = _clients(problem), simulation.client_state.own["w"], simulation.method
    assert isinstance(method, pf.algorithms.FLIX)
    lr = _resolved(method.lr)
    x = np.ones(own.shape[1])

    def advance(rounds: int) -> np.ndarray:
        nonlocal x
        for _ in range(rounds):
            total = np.zeros_like(x)
            for (a, b), mine in zip(data, own, strict=True):
                total += ALPHA * _gradient(a, b, ALPHA * x + (1 - ALPHA) * mine)
            x = x - lr / len(data) * total
        return x

    return advance


def _diana(problem: pf.Problem, simulation: Simulation) -> Advance:
    data, own = _clients(problem), simulation.client_state.mixture.own["w"]
    method = simulation.method
    assert isinstance(method, pf.algorithms.DIANA)
    lr, beta = _resolved(method.lr), _resolved(method.beta)
    size = own.shape[1]
    x, memory, mean = np.ones(size), np.zeros_like(own), np.zeros(size)
    draws = np.random.default_rng(0)

    def advance(rounds: int) -> np.ndarray:
        nonlocal x, mean
        for _ in range(rounds):
            total = np.zeros(size)
            for client, (a, b) in enumerate(data):
                gradient = ALPHA * _gradient(a, b, ALPHA * x + (1 - ALPHA) * own[client])
                kept = draws.choice(size, COORDINATES, replace=False)
                message = np.zeros(size)
                message[kept] = size / COORDINATES * (gradient - memory[client])[kept]
                memory[client] += beta * message
                total += message
            x = x - lr * (mean + total / len(data))
            mean = mean + beta * total / len(data)
        return x

    return advance


def _scafflix(problem: pf.Problem, simulation: Simulation) -> Advance:
    data, own = _clients(problem), simulation.client_state.mixture.own["w"]
    method = simulation.method
    assert isinstance(method, pf.algorithms.Scafflix)
    p, gamma = _resolved(method.p), np.broadcast_to(_resolved(method.lr), len(data))
    steps = max(1, round(1 / p))
    x, control, sent = np.ones(own.shape[1]), np.zeros_like(own), np.zeros_like(own)

    def advance(rounds: int) -> np.ndarray:
        nonlocal x
        for _ in range(rounds):
            total, weight = np.zeros_like(x), 0.0
            for client, (a, b) in enumerate(data):
                y = x
                for _ in range(steps):
                    slope = _gradient(a, b, ALPHA * y + (1 - ALPHA) * own[client]) - control[client]
                    y = y - gamma[client] / ALPHA * slope
                sent[client] = y
                total += ALPHA**2 / gamma[client] * y
                weight += ALPHA**2 / gamma[client]
            x = total / weight
            for client in range(len(data)):
                control[client] += p * ALPHA / gamma[client] * (x - sent[client])
        return x

    return advance


def _resolved(value: T | None) -> T:
    """A hyper-parameter that the theory has set."""
    assert value is not None
    return value


LOOPS: dict[str, Callable[[pf.Problem, Simulation], Advance]] = {"GD": _gd, "DIANA": _diana, "Scafflix": _scafflix}
