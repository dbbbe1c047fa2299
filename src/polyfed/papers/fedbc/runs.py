"""The runs behind FedBC's figures and tables, those of one shape side by side, and what is kept of each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from polyfed import data, models
from polyfed.algorithms.contract import Algorithm
from polyfed.engine.client_metrics import Metrics
from polyfed.engine.measure import FineTune
from polyfed.engine.participation import Sampling
from polyfed.engine.simulation import Simulation
from polyfed.engine.sweep import Sweep, most_runs
from polyfed.models.base import Architecture
from polyfed.papers.fedbc.contenders import LEAKING, Contender, FedbcTask, algorithm_of, contender_of
from polyfed.papers.fedbc.fresh import fresh_accuracies
from polyfed.papers.shared.experiment import Row
from polyfed.papers.shared.held_out import Options
from polyfed.papers.shared.run_cache import RunCache
from polyfed.problem.problem import Problem

MODELS: dict[str, Callable[[], Architecture]] = {
    "linear": models.linear,
    "mlp": lambda: models.mlp([128]),
    "lenet": models.lenet,
    "lstm": models.lstm,
}
EXTREMES = ("smallest", "largest")
"""The participants of a round that are shown."""
SNAPSHOTS = (1, 50, 100, 200)
"""The multipliers are recorded after these rounds (Fig. 7e), and after the last."""


class Record(NamedTuple):
    """What is kept of a run."""

    rows: tuple[Row, ...]
    """over the rounds"""
    sizes: np.ndarray
    """every client's training rows"""
    weights: np.ndarray | None
    """every client's share of the server's averages"""
    multipliers: dict[int, np.ndarray]
    """every client's, by round"""

    def last(self, name: str) -> float:
        return float(self.rows[-1][name])


@lru_cache(maxsize=16)
def problem_of(source: str, given: Options, model: str, seed: int) -> Problem:
    return Problem(data.load(source, seed=seed, **dict(given)), MODELS[model](), "softmax", 0.0)


class Shape(NamedTuple):
    """What runs of one program have in common."""

    work: tuple[str | float | None, ...]
    label: str
    judged: str
    method: Hashable
    """its structure, without the traced numbers"""


class ContenderRun(NamedTuple):
    """A method with chosen hyper-parameters on a task, with one seed; `judged`: its table of contenders."""

    task: FedbcTask
    label: str
    judged: str
    chosen: Options
    seed: int

    @property
    def contender(self) -> Contender:
        return contender_of(self.label, self.judged)

    @property
    def shape(self) -> Shape:
        """Federations of one exponent have clients of like sizes."""
        task = self.task
        work = (task.source, task.model, task.epochs, task.rounds, task.every, task.batch, task.cohort)
        data = (*work, task.clients, dict(task.data).get("exponent"))
        return Shape(data, self.label, self.judged, jax.tree.structure(self.method))

    def simulation(self) -> Simulation:
        problem = problem_of(self.task.source, self.task.data, self.task.model, self.seed)
        cohort = 1.0 if self.contender.algorithm == "local" else min(self.task.cohort, len(problem))
        return Simulation(problem, self.method, participation=cohort, seed=self.seed)

    @property
    def method(self) -> Algorithm:
        return algorithm_of(self.task, self.contender, self.chosen)


def _from_plain(plain: Row) -> Record:
    """A record as the run cache stores it."""
    multipliers = {int(round): values for round, values in plain["multipliers"].items()}
    return Record(tuple(plain["rows"]), plain["sizes"], plain["weights"], multipliers)


_records: RunCache[Record] = RunCache(Record._asdict, _from_plain)
"""Figures that show the same run compute it once."""


def trace(runs: Sequence[ContenderRun]) -> list[Record]:
    """The runs, those of one shape in sweep, in the order given."""
    shapes: dict[Shape, list[ContenderRun]] = {}
    for run in dict.fromkeys(runs):
        if _records.get(run) is None:
            shapes.setdefault(run.shape, []).append(run)
    for alike in shapes.values():
        most = most_runs(alike[0].simulation())
        for first in range(0, len(alike), most):
            group = alike[first : first + most]
            for run, record in zip(group, _together(group), strict=True):
                _records.put(run, record)
    return [_records[run] for run in runs]


def _together(runs: Sequence[ContenderRun]) -> list[Record]:
    """Runs of one shape, round by round."""
    task, simulations = runs[0].task, [run.simulation() for run in runs]
    sweep = Sweep(simulations)
    sweep.prepare()
    rows: list[list[Row]] = [[] for _ in runs]
    snapshots: list[dict[int, np.ndarray]] = [{} for _ in runs]
    before = [np.zeros(len(s.problem)) for s in simulations]
    stops = {*range(task.every, task.rounds + 1, task.every), *SNAPSHOTS, task.rounds}
    for round in sorted(stop for stop in stops if stop <= task.rounds):
        sweep.advance(round - simulations[0].round)
        if round in (*SNAPSHOTS, task.rounds) and hasattr(simulations[0].start, "bond"):
            for snapshot, multipliers in zip(snapshots, sweep.states.bond.multiplier, strict=True):
                snapshot[round] = np.asarray(multipliers)[: len(before[0])]
        if round % task.every and round != task.rounds:
            continue
        measurements = _measure(sweep, runs, last=round == task.rounds)
        shown = _shown(sweep, runs, round) if task.every == 1 and not simulations[0].sampling.full else None
        for place, (simulation, metrics) in enumerate(zip(simulations, measurements, strict=True)):
            shares = simulation.server_weights
            summed = before[place] if shares is None else shares * round
            row = {"round": round, **measured(simulation.problem, metrics)}
            if shown is not None:
                row |= _participants(simulation, shown, place, summed - before[place])
            before[place] = summed
            rows[place].append(row)
    return [
        Record(tuple(mine), np.asarray(s.problem.federation.train.sizes), s.server_weights, multipliers)
        for mine, s, multipliers in zip(rows, simulations, snapshots, strict=True)
    ]


def _measure(sweep: Sweep, runs: Sequence[ContenderRun], last: bool) -> list[Metrics]:
    """Each run's metrics, of its fine-tuned model as well where that is judged; the leaking ones at the end only."""
    metrics, contender = sweep.measure(), runs[0].contender
    if contender.judged == "finetuned":
        tuned = sweep.measure([FineTune(1, float(dict(run.chosen)["lr"]), run.task.batch) for run in runs])
        metrics = [mine | theirs for mine, theirs in zip(metrics, tuned, strict=True)]
    if last and contender.adapts:
        leaking = sweep.measure(adapt_on_test=True)
        metrics = [mine | {LEAKING: theirs["personal"]} for mine, theirs in zip(metrics, leaking, strict=True)]
    return metrics


def measured(problem: Problem, metrics: Metrics) -> Row:
    """Accuracies over all rows, their mean and variance over clients, and training losses, of every model."""
    row: Row = {}
    for model, splits in metrics.items():
        for split in ("validation", "test"):
            if split not in splits:
                continue
            accuracy, sizes = splits[split]["accuracy"], np.asarray(problem.federation.split(split).sizes)
            there = sizes > 0
            row[f"{model}_{split}_pooled"] = float(np.average(accuracy[there], weights=sizes[there]))
            row[f"{model}_{split}_mean"] = float(np.mean(accuracy[there]))
            row[f"{model}_{split}_variance"] = float(np.var(accuracy[there]))
        weights = np.asarray(problem.federation.train.sizes)
        row[f"{model}_train_loss"] = float(np.average(splits["train"]["loss"], weights=weights))
    return row


@lru_cache
def _cohorts(plan: Sampling, seed: int, rounds: int) -> np.ndarray:
    """Who takes part, a row for each round."""
    slots = jnp.arange(plan.capacity)
    drawn = jax.jit(jax.vmap(lambda number: plan.cohort(jnp.uint32(seed), number, slots)[0]))
    return np.sort(np.asarray(drawn(jnp.arange(rounds, dtype=jnp.int32))), axis=1)


class Shown(NamedTuple):
    """A round's smallest and largest participant, of every run."""

    cohorts: list[np.ndarray]
    clients: list[list[int]]
    accuracies: np.ndarray | None
    """of the global model, on fresh rows of these two; None where their law is not known"""


def _shown(sweep: Sweep, runs: Sequence[ContenderRun], round: int) -> Shown:
    cohorts, clients = [], []
    for run, simulation in zip(runs, sweep.simulations, strict=True):
        here = _cohorts(simulation.sampling, run.seed, run.task.rounds)[round - 1]
        sizes = np.asarray(simulation.problem.federation.train.sizes)[here]
        cohorts.append(here)
        clients.append([int(here[np.argmin(sizes)]), int(here[np.argmax(sizes)])])
    known = runs[0].task.source == "synthetic"
    return Shown(cohorts, clients, fresh_accuracies(sweep, runs[0].task.data, clients) if known else None)


def _participants(simulation: Simulation, shown: Shown, place: int, shares: np.ndarray) -> Row:
    """The global model's accuracy on the round's smallest and largest participant, their weights and data shares."""
    sizes = np.asarray(simulation.problem.federation.train.sizes)
    total = sizes[shown.cohorts[place]].sum()
    row: Row = {}
    for which, (name, client) in enumerate(zip(EXTREMES, shown.clients[place], strict=True)):
        row[f"{name}_weight"] = float(shares[client])
        row[f"{name}_data"] = float(sizes[client] / total)
        if shown.accuracies is not None:
            row[f"{name}_accuracy"] = float(shown.accuracies[place, which])
    return row
