"""`polyfed bench neural`: rounds of neural networks beside the loops of PyTorch and FedJAX, in one run."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import polyfed as pf
from polyfed.algorithms.base import Algorithm
from polyfed.bench.loops import FEDJAX, TORCH, Environment, ask, end, start_loop
from polyfed.engine.simulation import Simulation
from polyfed.errors import PolyfedError
from polyfed.startup import start

LR = 0.1
TOLERANCE = 1e-3
"""The relative difference of the losses above which two sides do not compute the same."""


@dataclass(frozen=True)
class Peer:
    """A loop of another framework: `gradients` are those that it takes in a step."""

    environment: Environment
    script: str
    method: str
    gradients: int


@dataclass(frozen=True)
class Work:
    """A round: so many clients, each with so many steps of so many rows."""

    name: str
    model: str
    clients: int
    steps: int
    batch: int
    classes: int
    peers: tuple[Peer, ...]
    method: str = "fedavg"
    rows: int = 100
    options: dict[str, Any] = field(default_factory=dict)
    """what the model is built with"""

    @property
    def gradients(self) -> int:
        return 2 if self.method == "apfl" else 1

    @property
    def draws(self) -> bool:
        """Whether the model draws in training (dropout): then no two sides compute the same."""
        return self.model == "femnist_cnn" and self.options.get("dropout") != 0


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
        problem = _problem(one)
        with ExitStack() as running:
            loops = [running.enter_context(_loop(one, p, problem, pythons[p.environment], threads)) for p in one.peers]
            runs = [_run(problem, one.method, one, chunk, devices) for chunk in (chunks or (None,))]
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


def _run(problem: pf.Problem, method: str, work: Work, chunk: int | None = None, devices: int | None = None) -> Any:
    kinds: dict[str, type[Algorithm]] = {"fedavg": pf.algorithms.FedAvg, "apfl": pf.algorithms.APFL}
    algorithm = kinds[method](lr=LR, local_steps=work.steps, batch=work.batch)  # pyright: ignore[reportCallIssue]
    run = Simulation(problem, algorithm, chunk=chunk, devices=devices)
    run.prepare()
    return run


def _round(run: Simulation) -> Seconds:
    before, used = run.seconds, time.process_time()
    run.advance(1)
    return Seconds(run.seconds - before, time.process_time() - used)


@contextmanager
def _loop(
    work: Work, peer: Peer, problem: pf.Problem, python: Path | None, threads: int = 1, tf32: bool = True
) -> Iterator[Any]:
    """A peer's process with this problem's data and initial model; None where its environment is missing.

    `tf32`: on a GPU, products of 32-bit numbers are rounded to 19 bits first, as JAX does there by default.
    """
    options = {
        "model": work.model,
        "method": peer.method,
        "steps": work.steps,
        "batch": work.batch,
        "dropout": (0.25, 0.5) if work.draws else (0, 0),
        "threads": threads,
        "tf32": tf32,
        "device": "cpu" if jax.default_backend() == "cpu" else "cuda",
    }
    train, params = problem.federation.train, jax.tree_util.tree_flatten_with_path(problem.init())[0]
    arrays = {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in params}
    arrays |= {"x": train.x.reshape(len(problem), -1, *train.x.shape[1:]), "y": train.y.reshape(len(problem), -1)}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "problem.npz"
        np.savez(place, allow_pickle=False, **arrays)
        loop = start_loop(peer.environment, peer.script, [str(place), json.dumps(options)], python)
    try:
        yield loop
    finally:
        if loop is not None:
            end(loop)


def loss_difference(
    work: Work, peer: Peer, python: Path | None = None, clients: int = 2, rounds: int = 2
) -> float | None:
    """How far the losses of the two sides are apart after a few rounds, relative.

    Each client has as many rows as a batch, so that every step takes all of them, in whatever order; and products are
    those of full 32-bit numbers on a GPU, too.
    """
    if work.draws:
        return None
    small = replace(work, clients=clients, rows=work.batch, steps=2)
    problem = _problem(small)
    with _loop(small, peer, problem, python, tf32=False) as loop, jax.default_matmul_precision("highest"):
        if loop is None:
            return None
        run = _run(problem, peer.method, small)
        run.advance(rounds)
        for _ in range(rounds):
            ask(loop)
        theirs = ask(loop, "loss")[0]
        ours = float(np.mean(run.measure()["personal"]["train"]["loss"]))
    difference = abs(ours - theirs) / abs(theirs)
    if not difference <= TOLERANCE:
        raise PolyfedError(
            f"{work.name}: after {rounds} rounds on the same data our loss is {ours:.6g} and that of the "
            f"{peer.environment.framework} loop {theirs:.6g}: the two do not compute the same"
        )
    return difference


def _problem(work: Work) -> pf.Problem:
    """Random images as bytes, or random texts of 80 characters."""
    draws = np.random.default_rng(0)

    def client() -> tuple[np.ndarray, np.ndarray]:
        if work.model == "lstm":
            x = draws.integers(0, work.classes, (work.rows, 80)).astype(np.int32)
        else:
            x = draws.integers(0, 256, (work.rows, 28, 28), dtype=np.uint8)
        return x, draws.integers(0, work.classes, work.rows)

    clients = [client() for _ in range(work.clients)]
    federation = pf.Federation.from_arrays(clients, classes=work.classes, validation=0, test=0)
    return pf.Problem(federation, pf.models.MODELS[work.model](**work.options))
