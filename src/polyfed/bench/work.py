"""A round that several frameworks run: its data, their processes, and whether they compute the same."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from subprocess import Popen
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import polyfed as pf
from polyfed.algorithms.contract import Algorithm, get_algorithm
from polyfed.bench.loops import Environment, ask, end, start_loop
from polyfed.core.errors import PolyfedError
from polyfed.core.precision import Compute
from polyfed.engine.participation import sampling
from polyfed.engine.simulation import Simulation

LR = 0.1
TOLERANCE = 1e-3
"""The relative difference of the losses above which two sides do not compute the same."""
SENT = 64
"""The loops are told the cohorts of so many rounds; ours follow from the seed."""


@dataclass(frozen=True)
class Peer:
    """A framework's loop, and how many gradients it takes in a step."""

    environment: Environment
    script: Path
    method: str
    gradients: int


@dataclass(frozen=True)
class Work:
    """A round: so many clients, or a cohort of them, each with so many steps of so many rows."""

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
    features: tuple[int, ...] = (28, 28)
    cohort: int | None = None

    @property
    def gradients(self) -> int:
        return 2 if self.method == "apfl" else 1

    @property
    def draws(self) -> bool:
        """Whether the model draws in training (dropout): then no two sides compute the same."""
        return self.model == "femnist_cnn" and self.options.get("dropout") != 0

    @cached_property
    def cohorts(self) -> list[list[int]] | None:
        """Who takes part in the first rounds of our run; None where everybody does."""
        if self.cohort is None:
            return None
        draw, slots = sampling(self.cohort, self.clients), jnp.arange(self.cohort)
        return jax.jit(jax.vmap(lambda k: draw.cohort(jnp.uint32(0), k, slots)[0]))(jnp.arange(SENT)).tolist()

    def small(self, clients: int = 2) -> Work:
        """A few steps in which each takes all of the client's rows, so that no order of the rows matters."""
        return replace(self, clients=clients, rows=self.batch, steps=2, cohort=None)


def make_problem(work: Work) -> pf.Problem:
    """Random images as bytes, texts, or real numbers; the labels follow from the inputs by one rule for all clients."""
    draws, count = np.random.default_rng(0), work.clients * work.rows
    if work.model == "lstm":
        x = draws.integers(0, work.classes, (count, 80)).astype(np.int32)
        y = (3 * x[:, -1] + 1) % work.classes
    elif work.model == "linear":
        x = draws.standard_normal((count, *work.features), np.float32)
        y = _taught(draws, x, work.classes)
    else:
        x = draws.integers(0, 256, (count, *work.features), dtype=np.uint8)
        y = _taught(draws, x, work.classes)
    parts = zip(np.split(x, work.clients), np.split(y, work.clients), strict=True)
    federation = pf.Federation.from_arrays(list(parts), classes=work.classes, validation=0, test=0)
    return pf.Problem(federation, pf.models.MODELS[work.model](**work.options))


def _taught(draws: np.random.Generator, x: np.ndarray, classes: int) -> np.ndarray:
    """The labels that a linear rule gives, block by block, so that never all bytes are real numbers at once."""
    rule = draws.standard_normal((int(np.prod(x.shape[1:])), classes), np.float32)
    blocks = (block.reshape(len(block), -1).astype(np.float32) for block in np.array_split(x, -(-len(x) // 10_000)))
    return np.concatenate([np.argmax((block - block.mean()) @ rule, axis=1) for block in blocks])


def make_simulation(
    problem: pf.Problem,
    work: Work,
    *,
    chunk: int | None = None,
    devices: int | None = None,
    compute: Compute | None = None,
) -> Simulation:
    """Our side of a work."""
    kind: type[Algorithm] = get_algorithm(work.method)
    algorithm = kind(lr=LR, local_steps=work.steps, batch=work.batch)  # pyright: ignore[reportCallIssue]
    cohort = work.cohort or 1.0
    run = Simulation(problem, algorithm, participation=cohort, chunk=chunk, devices=devices, compute=compute)
    run.prepare()
    return run


@contextmanager
def written(problem: pf.Problem) -> Iterator[Path]:
    """A file with the clients' rows and the initial model, which every loop reads."""
    train, params = problem.federation.train, jax.tree_util.tree_flatten_with_path(problem.init())[0]
    arrays = {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in params}
    arrays |= {"x": train.x.reshape(len(problem), -1, *train.x.shape[1:]), "y": train.y.reshape(len(problem), -1)}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "problem.npz"
        np.savez(place, allow_pickle=False, **arrays)
        yield place


@contextmanager
def running(
    work: Work, peer: Peer, place: Path, python: Path | None = None, threads: int = 1, tf32: bool = True
) -> Iterator[Popen[str] | None]:
    """A framework's process with this problem's file; None where its environment is missing.

    `tf32`: on a GPU, products of 32-bit numbers are rounded to 19 bits first, as JAX does there by default.
    """
    options = {
        "model": work.model,
        "method": peer.method,
        "clients": work.clients,
        "classes": work.classes,
        "steps": work.steps,
        "batch": work.batch,
        "cohorts": work.cohorts,
        "dropout": (0.25, 0.5) if work.draws else (0, 0),
        "threads": threads,
        "tf32": tf32,
        "device": "cpu" if jax.default_backend() == "cpu" else "cuda",
    }
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
    small = replace(work.small(clients), method=peer.method)
    problem = make_problem(small)
    with (
        written(problem) as place,
        running(small, peer, place, python, tf32=False) as loop,
        jax.default_matmul_precision("highest"),
    ):
        if loop is None:
            return None
        run = make_simulation(problem, small)
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
