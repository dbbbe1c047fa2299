"""The runs behind FedBC's figures and tables: methods, one budget of tuning for all, and what is kept of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from polyfed import data, models
from polyfed.algorithms.contract import Algorithm, get_algorithm
from polyfed.engine.measure import FineTune
from polyfed.engine.participation import Sampling
from polyfed.engine.simulation import Metrics, Simulation
from polyfed.engine.sweep import Lockstep, most_runs
from polyfed.papers.shared.experiment import Progress
from polyfed.papers.shared.finished import Kept
from polyfed.papers.shared.held_out import Options, Row, options
from polyfed.problem.problem import Problem
from polyfed.studies.search_space import tune_plan

SEEDS, BUDGET, COHORT = 5, 12, 10
MODELS: dict[str, Callable[[], Any]] = {
    "linear": models.linear,
    "mlp": lambda: models.mlp([128]),
    "lenet": models.lenet,
    "lstm": models.lstm,
}
SNAPSHOTS = (1, 50, 100, 200)
"""The rounds after which the multipliers are kept (Fig. 7e), beside the last."""
LEAKING = "leaking"
"""The model that is adapted on test rows, as in the paper; nothing is claimed or chosen by it."""
RATES = [0.01, 0.03, 0.1, 0.3]
ADAPTED = {"lr": [0.003, 0.01, 0.03, 0.1], "inner_lr": [0.003, 0.01, 0.03]}
"""Per-FedBC's stepsizes: those of the model that is trained, and of its adaptation."""


class Contender(NamedTuple):
    """A method: its algorithm, the options that are not tuned, what is, and which of its models is judged."""

    algorithm: str
    fixed: dict[str, Any]
    space: dict[str, Any]
    judged: str = "global"

    @property
    def adapts(self) -> bool:
        """Whether it deploys a model that a last step adapted: the paper takes that step on test rows."""
        return self.algorithm in ("perfedavg", "perfedbc") or bool(self.fixed.get("adapt_steps"))

    def candidates(self, task: Task) -> dict[str, Any]:
        """What is tuned on a task, and the values to choose from."""
        return self.space if task.rates is None else self.space | {"lr": list(task.rates)}


GLOBAL: dict[str, Contender] = {
    "FedAvg, by size": Contender("fedavg", {}, {"lr": RATES}),
    "FedAvg, uniform": Contender("fedavg", {"weighting": "uniform"}, {"lr": RATES}),
    "q-FedAvg": Contender("qfedavg", {}, {"lr": RATES, "q": [0.01, 0.1, 1.0]}),
    "FedProx": Contender("fedprox", {}, {"lr": RATES, "mu": [0.01, 0.1, 1.0]}),
    "SCAFFOLD": Contender("scaffold", {}, {"lr": RATES}),
    "FedBC": Contender("fedbc", {}, {"lr": RATES, "dual_lr": [1e-4, 1e-3, 1e-2]}),
}
"""The methods whose global model is compared. Where a space is smaller than the budget, draws between fill it up."""
LOCAL: dict[str, Contender] = {
    "Alone": Contender("local", {}, {"lr": RATES}, "personal"),
    "FedAvg, fine-tuned": Contender("fedavg", {"weighting": "uniform"}, {"lr": RATES}, "finetuned"),
    "FedAvg by size, fine-tuned": Contender("fedavg", {}, {"lr": RATES}, "finetuned"),
    "Per-FedAvg": Contender("perfedavg", {}, {"lr": RATES, "inner_lr": [0.01, 0.03, 0.1]}, "personal"),
    "pFedMe": Contender(
        "pfedme", {"inner_lr": 0.03}, {"lr": [0.01, 0.03, 0.1], "penalty": [0.1, 1.0, 10.0]}, "personal"
    ),
    "FedBC": Contender("fedbc", {}, {"lr": RATES, "dual_lr": [1e-4, 1e-3, 1e-2]}, "personal"),
    "FedBC, from x_i": Contender("fedbc", {"start": "own"}, {"lr": RATES, "dual_lr": [1e-4, 1e-3, 1e-2]}, "personal"),
    "FedBC-FineTune": Contender("fedbc", {"adapt_steps": 1}, {"lr": RATES, "dual_lr": [1e-4, 1e-3, 1e-2]}, "personal"),
    "Per-FedBC": Contender("perfedbc", {"dual_lr": 1e-4}, ADAPTED, "personal"),
    "Per-FedBC, own models": Contender("perfedbc", {"dual_lr": 1e-4, "deploy": "own"}, ADAPTED, "personal"),
}
"""The methods whose clients' own models are compared."""


@dataclass(frozen=True)
class Task:
    """A federation and the work of a round."""

    source: str
    data: Options
    model: str
    epochs: int
    rounds: int
    every: int = 1
    batch: int = 20
    cohort: int = COHORT
    rates: tuple[float, ...] | None = None
    """the stepsizes to choose from, where they are not the contender's"""


class Record(NamedTuple):
    """What is kept of a run: rows over the rounds, and of every client at the end its rows, weight and multiplier."""

    rows: tuple[Row, ...]
    sizes: np.ndarray
    weights: np.ndarray | None
    multipliers: dict[int, np.ndarray]

    def last(self, name: str) -> float:
        return float(self.rows[-1][name])


@lru_cache(maxsize=16)
def problem_of(source: str, given: Options, model: str, seed: int) -> Problem:
    return Problem(data.load(source, seed=seed, **dict(given)), MODELS[model](), "softmax", 0.0)


def algorithm_of(task: Task, contender: Contender, chosen: Options) -> Algorithm:
    given = {**contender.fixed, **dict(chosen), "local_epochs": task.epochs, "batch": task.batch}
    return get_algorithm(contender.algorithm)(**given)


class Run(NamedTuple):
    """A method, tuned so, on a task with a seed; `judged`: the table of contenders that it stands in."""

    task: Task
    label: str
    judged: str
    chosen: Options
    seed: int

    @property
    def contender(self) -> Contender:
        return (GLOBAL if self.judged == "global" else LOCAL)[self.label]

    @property
    def shape(self) -> tuple[Any, ...]:
        """What runs of one program have in common; those of one exponent have clients of like sizes."""
        task, given = self.task, dict(self.task.data)
        work = (task.source, task.model, task.epochs, task.rounds, task.every, task.batch, task.cohort)
        data = (*work, given.get("clients"), given.get("exponent"))
        return (data, self.label, self.judged, jax.tree.structure(self.method))

    def simulation(self) -> Simulation:
        problem = problem_of(self.task.source, self.task.data, self.task.model, self.seed)
        cohort: Any = 1.0 if self.contender.algorithm == "local" else min(self.task.cohort, len(problem))
        return Simulation(problem, self.method, participation=cohort, seed=self.seed)

    @property
    def method(self) -> Any:
        return algorithm_of(self.task, self.contender, self.chosen)


def _made(plain: dict[str, Any]) -> Record:
    multipliers = {int(round): values for round, values in plain["multipliers"].items()}
    return Record(tuple(plain["rows"]), plain["sizes"], plain["weights"], multipliers)


_kept: Kept[Record] = Kept(Record._asdict, _made)
"""Figures that show the same run compute it once."""


def trace(runs: Sequence[Run]) -> list[Record]:
    """The runs, those of one shape in lockstep, in the order given."""
    shapes: dict[Any, list[Run]] = {}
    for run in dict.fromkeys(runs):
        if _kept.get(run) is None:
            shapes.setdefault(run.shape, []).append(run)
    for alike in shapes.values():
        most = most_runs(alike[0].simulation())
        for first in range(0, len(alike), most):
            group = alike[first : first + most]
            for run, record in zip(group, _together(group), strict=True):
                _kept.put(run, record)
    return [_kept[run] for run in runs]


def _together(runs: Sequence[Run]) -> list[Record]:
    """Some runs of one shape, round by round."""
    task, simulations = runs[0].task, [run.simulation() for run in runs]
    lockstep = Lockstep(simulations)
    lockstep.prepare()
    rows: list[list[Row]] = [[] for _ in runs]
    kept: list[dict[int, np.ndarray]] = [{} for _ in runs]
    before = [np.zeros(len(s.problem)) for s in simulations]
    stops = {*range(task.every, task.rounds + 1, task.every), *SNAPSHOTS, task.rounds}
    for round in sorted(stop for stop in stops if stop <= task.rounds):
        lockstep.advance(round - simulations[0].round)
        if round in (*SNAPSHOTS, task.rounds) and hasattr(simulations[0].start, "bond"):
            for found, multipliers in zip(kept, lockstep.states.bond.multiplier, strict=True):
                found[round] = np.asarray(multipliers)[: len(before[0])]
        if round % task.every and round != task.rounds:
            continue
        found = _metrics(lockstep, runs, last=round == task.rounds)
        for place, (run, simulation, metrics) in enumerate(zip(runs, simulations, found, strict=True)):
            shares = simulation.server_weights
            summed = before[place] if shares is None else shares * round
            row = {"round": round, **measured(simulation.problem, metrics)}
            accuracy = row.pop("_global", None)
            if task.every == 1:
                row |= _participants(simulation, run, round, summed - before[place], accuracy)
            before[place] = summed
            rows[place].append(row)
    return [
        Record(tuple(mine), np.asarray(s.problem.federation.train.sizes), s.server_weights, multipliers)
        for mine, s, multipliers in zip(rows, simulations, kept, strict=True)
    ]


def _metrics(lockstep: Lockstep, runs: Sequence[Run], last: bool) -> list[Metrics]:
    found, contender = lockstep.measure(), runs[0].contender
    if contender.judged == "finetuned":
        tuned = lockstep.measure([FineTune(1, float(run.method.lr), run.task.batch) for run in runs])
        found = [mine | theirs for mine, theirs in zip(found, tuned, strict=True)]
    if last and contender.adapts:
        leaking = lockstep.measure(adapt_on_test=True)
        found = [mine | {LEAKING: theirs["personal"]} for mine, theirs in zip(found, leaking, strict=True)]
    return found


def measured(problem: Problem, metrics: Metrics) -> Row:
    """Global accuracy over all test rows, local accuracy as the mean over clients, the variance, and losses."""
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
    row["_global"] = metrics["global"]["test"]["accuracy"] if "global" in metrics else None
    return row


@lru_cache
def _cohorts(plan: Sampling, seed: int, rounds: int) -> np.ndarray:
    """Who takes part, a row for each round."""
    slots = jnp.arange(plan.capacity)
    drawn = jax.jit(jax.vmap(lambda number: plan.cohort(jnp.uint32(seed), number, slots)[0]))
    return np.sort(np.asarray(drawn(jnp.arange(rounds, dtype=jnp.int32))), axis=1)


def _participants(simulation: Simulation, run: Run, round: int, shares: np.ndarray, accuracy: np.ndarray | None) -> Row:
    """Of the round's smallest and largest participant: accuracy of the global model, weight, and share of the data."""
    if accuracy is None or simulation.sampling.full:
        return {}
    problem = simulation.problem
    here = _cohorts(simulation.sampling, run.seed, run.task.rounds)[round - 1]
    sizes = np.asarray(problem.federation.train.sizes)[here]
    found: Row = {}
    for name, client in (("smallest", here[np.argmin(sizes)]), ("largest", here[np.argmax(sizes)])):
        found[f"{name}_accuracy"] = float(accuracy[client])
        found[f"{name}_weight"] = float(shares[client])
        found[f"{name}_data"] = float(problem.federation.train.sizes[client] / sizes.sum())
    return found


@cache
def choose(task: Task, label: str, judged: str, budget: int) -> Options:
    """The candidate whose judged model is best on validation rows (seed 0), of as many for every method."""
    contender = (GLOBAL if judged == "global" else LOCAL)[label]
    kind = get_algorithm(contender.algorithm)
    space = contender.candidates(task)
    points = math.prod(len(values) for values in space.values())
    search = "grid" if points <= budget else "random"
    plan = tune_plan({"budget": budget, "search": search, "space": {label: space}}, {label: kind}, "fedbc")
    quiet = replace(task, every=task.rounds)
    runs = [Run(quiet, label, judged, options(**values), 0) for _, values in plan.candidates(label)]
    column = f"{contender.judged}_validation_{_way(judged)}"
    scores = np.array([record.last(column) for record in trace(runs)])
    assert np.isfinite(scores).any(), f"every candidate of {label} diverged"
    return runs[int(np.argmax(np.where(np.isfinite(scores), scores, -np.inf)))].chosen


def _way(judged: str) -> str:
    """How accuracies of clients become one number: the global model is judged on all rows, local ones by client."""
    return "pooled" if judged == "global" else "mean"


Found = dict[tuple[Task, str], list[Record]]
"""The runs of (task, method), one for each seed."""


def collect(
    tasks: Sequence[Task],
    contenders: Mapping[str, Contender],
    progress: Progress,
    *,
    seeds: int = SEEDS,
    budget: int = BUDGET,
    judged: str = "global",
    tuned_on: Task | None = None,
) -> tuple[Found, dict[str, Any]]:
    """Every method on every task with every seed, tuned on each task or, for all of them, on `tuned_on`."""
    settings: dict[str, Any] = {"seeds": seeds, "candidates per method": budget}
    todo: dict[tuple[Task, str], list[Run]] = {}
    total, done = len(tasks) * len(contenders), 0
    crowds = len({dict(task.data).get("clients") for task in tasks}) > 1
    for task in tasks:
        for label in contenders:
            progress(f"tuning for {task.source}, E = {task.epochs}: {label}", done, total)
            tuned = tuned_on or task
            chosen = choose(tuned, label, judged, budget)
            place = f"E = {task.epochs}" + (f", {dict(task.data)['clients']} devices" if crowds else "")
            settings[f"{label}, {place}"] = told(chosen, contenders[label].candidates(tuned))
            todo[task, label] = [Run(task, label, judged, chosen, seed) for seed in range(seeds)]
            done += 1
    alike: dict[Any, list[Run]] = {}
    for run in (run for runs in todo.values() for run in runs):
        alike.setdefault(run.shape, []).append(run)
    for done, group in enumerate(sorted(alike.values(), key=lambda group: str(group[0].shape[0]))):
        progress(f"{group[0].task.source}, E = {group[0].task.epochs}: {group[0].label}", done, len(alike))
        trace(group)
    found = {place: trace(runs) for place, runs in todo.items()}
    progress("done", total, total)
    return found, settings


def told(chosen: Options, space: Mapping[str, Sequence[float]]) -> str:
    """What was chosen, in words; a value at the end of its range is called so, as a better one may lie beyond."""
    words = []
    for name, value in chosen:
        extremes = {max(space[name]): " (the largest)", min(space[name]): " (the smallest)"}
        words.append(f"{name} {value:g}{extremes.get(value, '')}")
    return ", ".join(words)


def ends(records: Sequence[Record], name: str) -> np.ndarray:
    """The last value of a column, one for each seed."""
    return np.array([record.last(name) for record in records])


def curve(records: Sequence[Record], name: str) -> tuple[np.ndarray, np.ndarray]:
    """(rounds, mean over seeds) of a column."""
    rounds = np.array([row["round"] for row in records[0].rows], float)
    return rounds, np.mean([[row[name] for row in record.rows] for record in records], axis=0)


def accuracy(label: str, contenders: Mapping[str, Contender]) -> str:
    """The column that a method is judged by."""
    judged = contenders[label].judged
    return f"{judged}_test_{_way(judged)}"
