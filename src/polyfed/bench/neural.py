"""`polyfed bench neural`: rounds of neural networks beside the loops of PyTorch and FedJAX, in one run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax

from polyfed.bench.loops import FEDJAX, TORCH, ask
from polyfed.bench.work import Peer, Work, loss_difference, make_problem, make_simulation, running, written
from polyfed.core.errors import PolyfedError
from polyfed.core.startup import start
from polyfed.engine.simulation import Simulation

AVERAGING = Peer(TORCH, "torch_neural.py", "fedavg", 1)
MIXING = Peer(TORCH, "torch_neural.py", "apfl", 2)
FEDJAX_AVERAGING = Peer(FEDJAX, "fedjax_loop.py", "fedavg", 1)
ON_CPU = (
    Work("APFL, MLP", "mlp", 100, 20, 20, 10, (MIXING, FEDJAX_AVERAGING), "apfl", rows=400),
    Work("FedAvg, FEMNIST CNN", "femnist_cnn", 10, 5, 20, 62, (AVERAGING,)),
    Work("FedAvg, the CNN without dropout", "femnist_cnn", 10, 5, 20, 62, (AVERAGING,), options={"dropout": 0}),
    Work("FedAvg, LSTM", "lstm", 4, 20, 10, 80, (AVERAGING,)),
)
ON_GPU = (
    Work("FedAvg, MLP", "mlp", 100, 20, 20, 10, (AVERAGING,), rows=400),
    Work("APFL, MLP", "mlp", 100, 20, 20, 10, (MIXING,), "apfl", rows=400),
    Work("FedAvg, FEMNIST CNN", "femnist_cnn", 100, 10, 20, 62, (AVERAGING,)),
    Work("FedAvg, the CNN without dropout", "femnist_cnn", 100, 10, 20, 62, (AVERAGING,), options={"dropout": 0}),
)


class Seconds(NamedTuple):
    """The shortest of the repetitions: by the clock, and of the processor."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Speed:
    """Our round beside a peer's, if there is one; `chunk` clients ran side by side on each device."""

    work: Work
    chunk: int
    ours: Seconds
    peer: Peer | None = None
    theirs: Seconds | None = None
    difference: float | None = None
    """of the losses after a few rounds on the same small data, relative; None where the model draws"""

    def as_dict(self) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "work": self.work.name,
            "clients": self.work.clients,
            "steps": self.work.steps,
            "batch": self.work.batch,
            "chunk": self.chunk,
            "round_seconds": self.ours.wall,
            "round_cpu_seconds": self.ours.cpu,
        }
        if self.peer is not None and self.theirs is not None:
            share = self.work.gradients / self.peer.gradients
            figures |= {
                "peer": f"{self.peer.environment.framework} {self.peer.method}",
                "peer_seconds": self.theirs.wall,
                "peer_cpu_seconds": self.theirs.cpu,
                "times_peer_per_gradient": share * self.theirs.wall / self.ours.wall,
                "loss_difference": self.difference,
            }
        return figures


def bench_neural(
    repeat: int = 5,
    torch_python: Path | None = None,
    fedjax_python: Path | None = None,
    chunks: Sequence[int] = (),
    devices: int | None = None,
    work: Sequence[Work] | None = None,
) -> list[Speed]:
    """Measure in turns: our round, with each chunk, then the peers', and again. Without chunks: the engine's choice."""
    if repeat < 1:
        raise PolyfedError(f"repeat must be at least 1, found {repeat}")
    start()
    if work is None:
        work = ON_CPU if jax.default_backend() == "cpu" else ON_GPU
    pythons = {TORCH: torch_python, FEDJAX: fedjax_python}
    threads = jax.local_device_count() if devices is None else devices
    found = []
    for one in work:
        differences = [loss_difference(one, peer, pythons[peer.environment]) for peer in one.peers]
        problem = make_problem(one)
        with ExitStack() as stack:
            place = stack.enter_context(written(problem))
            started = [running(one, peer, place, pythons[peer.environment], threads) for peer in one.peers]
            loops = [stack.enter_context(loop) for loop in started]
            runs = [make_simulation(problem, one, chunk=chunk, devices=devices) for chunk in (chunks or (None,))]
            asked = [loop for loop in loops if loop is not None]
            for turn in (*(lambda run=run: _round(run) for run in runs), *(lambda a=a: ask(a) for a in asked)):
                turn()  # compiles, and warms up
            ours, theirs = [[] for _ in runs], [[] for _ in loops]
            for _ in range(repeat):
                for run, seconds in zip(runs, ours, strict=True):
                    seconds.append(_round(run))
                for loop, seconds in zip(loops, theirs, strict=True):
                    if loop is not None:
                        seconds.append(Seconds(*ask(loop)))
        for run, seconds in zip(runs, ours, strict=True):
            speed = Speed(one, run.programs.round.chunk, _best(seconds))
            beside = [
                replace(speed, peer=peer, theirs=_best(times), difference=difference)
                for peer, times, difference in zip(one.peers, theirs, differences, strict=True)
                if times
            ]
            found += beside or [speed]
    return found


def _best(times: list[Seconds]) -> Seconds:
    return Seconds(min(t.wall for t in times), min(t.cpu for t in times))


def _round(run: Simulation) -> Seconds:
    before, used = run.seconds, time.process_time()
    run.advance(1)
    return Seconds(run.seconds - before, time.process_time() - used)
