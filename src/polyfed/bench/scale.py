"""`polyfed bench scale`: rounds of 100 clients out of ever larger populations, each in a process of its own."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import numpy as np

import polyfed as pf
from polyfed.bench.loops import ask, end
from polyfed.core import trees
from polyfed.core.errors import PolyfedError
from polyfed.core.machine import memory_bytes, peak_memory_bytes
from polyfed.engine.checkpoint import checkpoint
from polyfed.engine.simulation import Simulation
from polyfed.engine.states.in_waves import Store

FEATURES, CLASSES, ROWS = 784, 10, 25
COHORT, STEPS, BATCH = 100, 10, 10
POPULATIONS = (1_000, 10_000, 100_000, 1_000_000)
WARM = 3
"""Rounds before the first that counts, in which programs are compiled."""


@dataclass(frozen=True)
class Work:
    """APFL on softmax regression over generated clients, states on disk, a cohort a round."""

    clients: int
    cohort: int = COHORT
    steps: int = STEPS
    features: int = FEATURES

    @property
    def parameters(self) -> int:
        return (self.features + 1) * CLASSES


@dataclass(frozen=True)
class Point:
    """What a population took: the median round, and its ratio to the smallest population's in the same turns."""

    clients: int
    round_seconds: float
    ratio: float
    peak_memory_bytes: int
    seen: int
    """clients that took part, or were evaluated"""
    store_bytes: int
    checkpoint_bytes: int


def population(clients: int, features: int = FEATURES) -> pf.Population:
    """Clients whose rows follow from their number: a class has its centre, a client its shift."""
    centres = np.random.default_rng(0).standard_normal((CLASSES, features), np.float32)

    def rows(client: int) -> tuple[np.ndarray, np.ndarray]:
        draws = np.random.default_rng([1, client])
        y = draws.integers(0, CLASSES, ROWS)
        shift = draws.standard_normal(features, np.float32)
        return centres[y] + shift + draws.standard_normal((ROWS, features), np.float32), y

    return pf.Population(rows, np.full(clients, ROWS), classes=CLASSES, validation=0, test=0.2)


def simulation(work: Work, folder: Path | None = None) -> Simulation:
    """A run of this work, in which every program is compiled."""
    problem = pf.Problem(population(work.clients, work.features), pf.models.linear())
    method = pf.algorithms.APFL(lr=0.01, local_steps=work.steps, batch=BATCH)
    cohort = min(work.cohort, work.clients)
    run = Simulation(problem, method, participation=cohort, store="disk", folder=folder, eval_clients=cohort)
    run.prepare()
    run.advance(WARM)
    return run


def bench_scale(populations: Sequence[int] = POPULATIONS, repeat: int = 20) -> list[Point]:
    """A round of each population in turn, `repeat` times; then what memory, store and checkpoint take."""
    if repeat < 1:
        raise PolyfedError(f"repeat must be at least 1, found {repeat}")
    for clients in populations:
        if clients < COHORT:
            raise PolyfedError(f"a population must have at least {COHORT} clients, found {clients}")
    processes = [_started("_serve", clients) for clients in populations]
    try:
        for process in processes:
            ask(process, "ready?")
        turns = np.array([[ask(process)[0] for process in processes] for _ in range(repeat)])
        facts = [ask(process, "facts") for process in processes]
    finally:
        for process in processes:
            end(process)
    ratios = np.median(turns / turns[:, :1], axis=0)
    return [
        Point(clients, float(np.median(turns[:, i])), float(ratios[i]), *map(int, facts[i]))
        for i, clients in enumerate(populations)
    ]


def bench_writers(store: Store, clients: int = 539, rows: int = 100) -> dict[str, object]:
    """The memory of a round of APFL in which all clients take a step on the FEMNIST CNN, in a process of its own."""
    process = _started("_writers", clients, rows, store)
    answer, _ = process.communicate()
    if process.returncode:
        raise PolyfedError(f"the round with store '{store}' ended with code {process.returncode}")
    return json.loads(answer)


def as_dicts(points: Sequence[Point]) -> list[dict[str, float]]:
    return [asdict(point) for point in points]


def this_machine() -> dict[str, object]:
    """Where and when figures were measured, and how busy the machine was: its load average over the last minute."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "memory_gib": round(memory_bytes() / 2**30),
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
    }


def _started(function: str, *arguments: int | str) -> subprocess.Popen[str]:
    call = f"from polyfed.bench import scale; scale.{function}(*{list(arguments)!r})"
    return subprocess.Popen([sys.executable, "-c", call], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _serve(clients: int) -> None:
    """Answer the questions on the input, a line each."""
    with TemporaryDirectory() as folder:
        run = simulation(Work(clients), Path(folder))
        run.measure()
        for question in sys.stdin:
            before = run.seconds
            if question == "round\n":
                run.advance(1)
            answer = [run.seconds - before] if question != "facts\n" else _facts(run, Path(folder))
            print(*answer, flush=True)


def _facts(run: Simulation, folder: Path) -> list[int]:
    state = run.state()
    saved = checkpoint.save(folder, run.round, state, {})
    size = sum(file.stat().st_size for file in saved.iterdir())
    return [peak_memory_bytes() or 0, len(state.clients), _row_bytes(run) * len(state.clients), size]


def _row_bytes(run: Simulation) -> int:
    """What one client's state takes."""
    return trees.bits(run.start) // 8


def _writers(clients: int, rows: int, store: Store) -> None:
    draws = np.random.default_rng(0)
    pairs = [
        (draws.integers(0, 256, (rows, 28, 28), dtype=np.uint8), draws.integers(0, 62, rows)) for _ in range(clients)
    ]
    federation = pf.Federation.from_arrays(pairs, classes=62, validation=0, test=0)
    problem = pf.Problem(federation, pf.models.femnist_cnn())
    run = Simulation(problem, pf.algorithms.APFL(lr=0.1, local_steps=1, batch=20), store=store)
    run.prepare()
    run.advance(1)
    figures = {
        "store": store,
        "clients": clients,
        "parameters": run.parameters,
        "state_bytes": _row_bytes(run) * clients,
        "round_seconds": run.seconds,
        "peak_memory_bytes": peak_memory_bytes(),
    }
    print(json.dumps(figures))
