"""Every method on every task with every seed, after the same amount of tuning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from polyfed.algorithms.contract import get_algorithm
from polyfed.papers.fedbc.contenders import Contender, FedbcTask, contender_of
from polyfed.papers.fedbc.runs import ContenderRun, Record, Shape, trace
from polyfed.papers.shared.experiment import ExperimentProgress
from polyfed.papers.shared.held_out import Options, options
from polyfed.studies.search_space import tune_plan

SEEDS, BUDGET = 5, 12


@cache
def choose(task: FedbcTask, label: str, judged: str, budget: int) -> Options:
    """Of `budget` candidates, the one whose judged model is best on the validation rows of seed 0."""
    contender = contender_of(label, judged)
    kind = get_algorithm(contender.algorithm)
    space = contender.candidates(task)
    points = math.prod(len(values) for values in space.values())
    search = "grid" if points <= budget else "random"
    plan = tune_plan({"budget": budget, "search": search, "space": {label: dict(space)}}, {label: kind}, "fedbc")
    quiet = replace(task, every=task.rounds)
    runs = [ContenderRun(quiet, label, judged, options(**values), 0) for _, values in plan.candidates(label)]
    column = f"{contender.judged}_validation_{_mean_over(judged)}"
    scores = np.array([record.last(column) for record in trace(runs)])
    assert np.isfinite(scores).any(), f"every candidate of {label} diverged"
    return runs[int(np.argmax(np.where(np.isfinite(scores), scores, -np.inf)))].chosen


def _mean_over(judged: str) -> str:
    """What accuracies are averaged over: all rows for the global model, clients for their own models."""
    return "pooled" if judged == "global" else "mean"


Recorded = dict[tuple[FedbcTask, str], list[Record]]
"""The runs of (task, method), one for each seed."""


def collect(
    tasks: Sequence[FedbcTask],
    contenders: Mapping[str, Contender],
    progress: ExperimentProgress,
    *,
    seeds: int = SEEDS,
    budget: int = BUDGET,
    judged: str = "global",
    tuned_on: FedbcTask | None = None,
) -> tuple[Recorded, dict[str, object]]:
    """Every method on every task with every seed. It is tuned on each task, or once for all tasks on `tuned_on`.

    Also returns the settings, with what tuning chose.
    """
    settings: dict[str, object] = {"seeds": seeds, "candidates per method": budget}
    todo: dict[tuple[FedbcTask, str], list[ContenderRun]] = {}
    total, done = len(tasks) * len(contenders), 0
    crowds = len({task.clients for task in tasks}) > 1
    for task in tasks:
        for label in contenders:
            progress(f"tuning for {task.source}, E = {task.epochs}: {label}", done, total)
            tuned = tuned_on or task
            chosen = choose(tuned, label, judged, budget)
            place = f"E = {task.epochs}" + (f", {task.clients} devices" if crowds else "")
            settings[f"{label}, {place}"] = choice_words(chosen, contenders[label].candidates(tuned))
            todo[task, label] = [ContenderRun(task, label, judged, chosen, seed) for seed in range(seeds)]
            done += 1
    alike: dict[Shape, list[ContenderRun]] = {}
    for run in (run for runs in todo.values() for run in runs):
        alike.setdefault(run.shape, []).append(run)
    for done, group in enumerate(sorted(alike.values(), key=lambda group: str(group[0].shape.work))):
        progress(f"{group[0].task.source}, E = {group[0].task.epochs}: {group[0].label}", done, len(alike))
        trace(group)
    recorded = {place: trace(runs) for place, runs in todo.items()}
    progress("done", total, total)
    return recorded, settings


def choice_words(chosen: Options, space: Mapping[str, Sequence[float]]) -> str:
    """What was chosen, in words. A value at the end of its range is marked: a better one may lie beyond."""
    words = []
    for name, value in chosen:
        extremes = {max(space[name]): " (the largest)", min(space[name]): " (the smallest)"}
        words.append(f"{name} {value:g}{extremes.get(value, '')}")
    return ", ".join(words)


def accuracy(label: str, contenders: Mapping[str, Contender]) -> str:
    """The column that a method is judged by."""
    judged = contenders[label].judged
    return f"{judged}_test_{_mean_over(judged)}"
