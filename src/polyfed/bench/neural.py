"""`polyfed bench neural`: rounds of neural networks beside the loops of PyTorch and FedJAX, in one run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, NotRequired, TypedDict

import jax

from polyfed.bench.loops import FEDJAX, PEERS, TORCH, ask
from polyfed.bench.work import Peer, Work, loss_difference, make_problem, make_simulation, running, written
from polyfed.core.errors import PolyfedError
from polyfed.core.startup import start
from polyfed.engine.simulation import Simulation

AVERAGING = Peer(TORCH, PEERS / "torch_neural.py", "fedavg", 1)
MIXING = Peer(TORCH, PEERS / "torch_neural.py", "apfl", 2)
FEDJAX_AVERAGING = Peer(FEDJAX, PEERS / "fedjax_loop.py", "fedavg", 1)
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


class SpeedRow(TypedDict):
    work: str
    clients: int
    steps: int
    batch: int
    chunk: int
    round_seconds: float
    round_cpu_seconds: float
    peer: NotRequired[str]
    peer_seconds: NotRequired[float]
    peer_cpu_seconds: NotRequired[float]
    times_peer_per_gradient: NotRequired[float]
    loss_difference: NotRequired[float | None]


@dataclass(frozen=True)
class Speed:
    """Our round beside a peer's, if there is one; `chunk` clients ran side by side on each device."""

    work: Work
    chunk: int
    ours: Seconds
    peer: Peer | None = None
    theirs: Seconds | None = None
    difference: float | None = None
    """the relative difference of the losses after a few rounds on the same small data; None where the model draws"""

    def as_dict(self) -> SpeedRow:
        figures: SpeedRow = {
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
            figures["peer"] = f"{self.peer.environment.framework} {self.peer.method}"
            figures["peer_seconds"] = self.theirs.wall
            figures["peer_cpu_seconds"] = self.theirs.cpu
            figures["times_peer_per_gradient"] = share * self.theirs.wall / self.ours.wall
            figures["loss_difference"] = self.difference
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
    speeds: list[Speed] = []
    for each in work:
        differences = [loss_difference(each, peer, pythons[peer.environment]) for peer in each.peers]
        problem = make_problem(each)
        with ExitStack() as stack:
            place = stack.enter_context(written(problem))
            started = [running(each, peer, place, pythons[peer.environment], threads) for peer in each.peers]
            loops = [stack.enter_context(loop) for loop in started]
            runs = [make_simulation(problem, each, chunk=chunk, devices=devices) for chunk in (chunks or (None,))]
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
            speed = Speed(each, run.programs.round.chunk, _best(seconds))
            beside = [
                replace(speed, peer=peer, theirs=_best(times), difference=difference)
                for peer, times, difference in zip(each.peers, theirs, differences, strict=True)
                if times
            ]
            speeds += beside or [speed]
    return speeds


def _best(times: list[Seconds]) -> Seconds:
    return Seconds(min(t.wall for t in times), min(t.cpu for t in times))


def _round(run: Simulation) -> Seconds:
    before, used = run.seconds, time.process_time()
    run.advance(1)
    return Seconds(run.seconds - before, time.process_time() - used)
