"""`polyfed bench neural`: rounds of the FEMNIST CNN and the character LSTM beside plain PyTorch loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

import polyfed as pf
from polyfed.bench.loops import ask, torch_loop
from polyfed.engine.simulation import Simulation
from polyfed.errors import PolyfedError
from polyfed.startup import start

ROWS = 100


@dataclass(frozen=True)
class Work:
    """A round: so many clients, each with so many steps of so many rows."""

    model: str
    clients: int
    steps: int
    batch: int
    classes: int


WORK = (Work("femnist_cnn", 10, 5, 20, 62), Work("lstm", 4, 20, 10, 80))


@dataclass(frozen=True)
class Speed:
    """The best repetition of each side; `chunk` clients ran side by side on each device."""

    work: Work
    chunk: int
    round_seconds: float
    torch_seconds: float | None

    def as_dict(self) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "model": self.work.model,
            "clients": self.work.clients,
            "steps": self.work.steps,
            "batch": self.work.batch,
            "chunk": self.chunk,
            "round_seconds": self.round_seconds,
        }
        if self.torch_seconds is not None:
            figures |= {
                "torch_loop_seconds": self.torch_seconds,
                "times_torch_loop": self.torch_seconds / self.round_seconds,
            }
        return figures


def bench_neural(
    repeat: int = 3,
    torch_python: Path | None = None,
    chunks: Sequence[int] = (),
    devices: int | None = None,
    work: Sequence[Work] = WORK,
) -> list[Speed]:
    """Measure in turns: our round, with each chunk, then PyTorch's, and again. Without chunks: the engine's choice."""
    if repeat < 1:
        raise PolyfedError(f"repeat must be at least 1, found {repeat}")
    start()
    threads = jax.local_device_count() if devices is None else devices
    found = []
    for one in work:
        words = map(str, (one.model, one.clients, one.steps, one.batch, ROWS, one.classes, threads))
        torch = torch_loop("torch_neural.py", words, torch_python)
        method, problem = pf.algorithms.FedAvg(local_steps=one.steps, batch=one.batch), _problem(one)
        runs = [Simulation(problem, method, chunk=chunk, devices=devices) for chunk in (chunks or (None,))]
        rounds, loops = [[] for _ in runs], []
        for run in runs:
            run.advance(1)
        for _ in range(repeat):
            for run, seconds in zip(runs, rounds, strict=True):
                before = run.seconds
                run.advance(1)
                seconds.append(run.seconds - before)
            if torch is not None:
                loops.append(ask(torch))
        if torch is not None:
            torch.communicate(timeout=60)
        best = min(loops) if loops else None
        found += [
            Speed(one, run.programs.round.chunk, min(seconds), best) for run, seconds in zip(runs, rounds, strict=True)
        ]
    return found


def _problem(work: Work) -> pf.Problem:
    """Random images as bytes, or random texts of 80 characters."""
    draws = np.random.default_rng(0)

    def client() -> tuple[np.ndarray, np.ndarray]:
        if work.model == "lstm":
            x = draws.integers(0, work.classes, (ROWS, 80)).astype(np.int32)
        else:
            x = draws.integers(0, 256, (ROWS, 28, 28), dtype=np.uint8)
        return x, draws.integers(0, work.classes, ROWS)

    clients = [client() for _ in range(work.clients)]
    federation = pf.Federation.from_arrays(clients, classes=work.classes, validation=0, test=0)
    return pf.Problem(federation, pf.models.MODELS[work.model]())
