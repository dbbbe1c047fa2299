"""Runs as methods: runs that share a label are seeds of one method, and a method is what the report compares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from polyfed.core.errors import PolyfedError
from polyfed.report.numbers import average, finite, strict_average
from polyfed.studies.run_directory import JsonObject, RunRecord

MODELS = ("personal", "global", "finetuned", "alone")
SPLITS = ("test", "validation", "train")


@dataclass(frozen=True)
class Task:
    """What the runs were judged by: the metric and the split that every headline figure refers to."""

    metric: str
    split: str

    @property
    def lower_is_better(self) -> bool:
        return self.metric != "accuracy"

    @property
    def is_share(self) -> bool:
        """Accuracies are shares and are shown in percent; losses and errors are plain numbers."""
        return self.metric == "accuracy"

    @property
    def name(self) -> str:
        return f"{self.split} {self.metric}"

    @property
    def prefix(self) -> str:
        """What the keys of a table's columns begin with where they are statistics of the metric."""
        return self.name.replace(" ", "_") + "_"

    def gain(self, value: float, reference: float) -> float:
        """How much better `value` is than `reference`; negative where it is worse."""
        return reference - value if self.lower_is_better else value - reference


@dataclass(frozen=True)
class Method:
    """All the runs of one label, in the order of their seeds."""

    label: str
    runs: tuple[RunRecord, ...]
    task: Task

    @property
    def algorithm(self) -> str:
        return str(self.runs[0].summary.get("algorithm", ""))

    @property
    def alone_itself(self) -> bool:
        """Purely local training: its clients go alone, so it is a reference and not a collaboration."""
        return self.algorithm.lower() == "local"

    @property
    def diverged(self) -> bool:
        return any(bool(run.summary.get("diverged")) for run in self.runs)

    @property
    def leaks(self) -> bool:
        """Whether what it deploys was adapted on the test rows that it is judged by."""
        return any(bool(run.summary.get("adapted_on_test")) for run in self.runs)

    @property
    def privacy(self) -> JsonObject | None:
        """What its clients' differential privacy is worth, from the first run's summary; None without privacy."""
        return self.runs[0].summary.get("privacy")

    @property
    def sample(self) -> str:
        """How many of how many clients were measured; empty where all were."""
        summary = self.runs[0].summary
        measured, population = summary.get("evaluated_clients"), summary.get("clients")
        return f"{measured:,} of {population:,} clients" if measured and population and measured < population else ""

    @property
    def marked(self) -> str:
        """The label, marked where the figures are not of unseen rows, or not of all clients."""
        return self.marked_as(self.leaks)

    def marked_as(self, leaks: bool) -> str:
        """The same for one of its models; `leaks`: whether test labels leak into that one."""
        marks = [*(["test labels leak"] if leaks else []), *([self.sample] if self.sample else [])]
        return f"{self.label} ({'; '.join(marks)})" if marks else self.label

    @cached_property
    def deployed(self) -> str:
        """The model that a client ends up with: its personal one where there is one, else the global one."""
        for model in MODELS:
            if self.mean(model) is not None or any(value is not None for value in self.values(model)):
                return model
        return "personal"

    @cached_property
    def clients(self) -> list[str]:
        """The clients' names in the order of the file."""
        names: dict[str, None] = {}
        for run in self.runs:
            names.update((client_name(row.get("client")), None) for row in run.clients)
        return list(names)

    @cached_property
    def _rows(self) -> list[dict[str, dict[str, str | float]]]:
        return [{client_name(row.get("client")): row for row in run.clients} for run in self.runs]

    def column(self, name: str) -> list[float | None]:
        """A column of `clients.csv`, averaged over the seeds, a value per client."""
        return [
            average(finite(rows[client].get(name)) for rows in self._rows if client in rows) for client in self.clients
        ]

    def values(self, model: str, split: str | None = None, metric: str | None = None) -> list[float | None]:
        """A model's metric on each client, averaged over the seeds."""
        return self.column(f"{model}_{split or self.task.split}_{metric or self.task.metric}")

    def seed_statistics(self, model: str, statistic: str, split: str | None = None) -> list[float | None]:
        """A statistic over the clients (mean, std, worst10, ...) as `summary.json` has it, a value per seed."""
        path = (model, split or self.task.split, self.task.metric, statistic)
        return [finite(_dig(run.summary.get("models"), path)) for run in self.runs]

    def mean(self, model: str, split: str | None = None) -> float | None:
        """The mean over clients and seeds."""
        return strict_average(self.seed_statistics(model, "mean", split))

    def figures(self, name: str) -> list[float | None]:
        """A plain number of the summary, such as `bits_up`, a value per seed."""
        return [finite(run.summary.get(name)) for run in self.runs]

    @cached_property
    def gains(self) -> list[float | None]:
        """Each client's gain of the deployed model over going alone."""
        return self.gains_over("alone")

    def gains_over(self, model: str) -> list[float | None]:
        pairs = zip(self.values(self.deployed), self.values(model), strict=True)
        return [None if a is None or b is None else self.task.gain(a, b) for a, b in pairs]

    @cached_property
    def personalizes(self) -> bool:
        """Whether any client deploys something other than the global model."""
        return self.deployed != "global" and any(gain not in (None, 0.0) for gain in self.gains_over("global"))


def group(runs: Sequence[RunRecord]) -> list[Method]:
    """The methods in the order in which their labels first appear."""
    if not runs:
        raise PolyfedError("a report needs at least one run, and none was given")
    task = _task(runs)
    by_label: dict[str, list[RunRecord]] = {}
    for run in runs:
        by_label.setdefault(run.label, []).append(run)
    return [Method(label, tuple(sorted(same, key=lambda run: run.seed)), task) for label, same in by_label.items()]


def client_name(value: object) -> str:
    """A client's name as text. A name that was read as a number loses its decimal point again."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)


def _task(runs: Sequence[RunRecord]) -> Task:
    """The runs' metric, by the names of what they measured, and the first split on which any run has it."""
    named = {metric: next((run for run in runs if _names(run, metric)), None) for metric in ("accuracy", "error")}
    accuracy, error = named["accuracy"], named["error"]
    if accuracy and error:
        raise PolyfedError(
            f"run '{error.label}' measures the error of a regression and run '{accuracy.label}' "
            "the accuracy of a classification; they cannot stand in one table"
        )
    metric = "accuracy" if accuracy else "error" if error else "loss"
    for split in SPLITS:
        if any(_measured(run, model, split, metric) for run in runs for model in MODELS):
            return Task(metric, split)
    return Task(metric, "test")


def _names(run: RunRecord, metric: str) -> bool:
    """Whether the run recorded a metric of this name, finite or not."""
    columns = {f"{model}_{split}_{metric}" for model in MODELS for split in SPLITS}
    tables = (*run.clients[:1], *run.history[:1], *run.history[-1:])
    models = run.summary.get("models")
    return any(columns & row.keys() for row in tables) or any(
        isinstance(metrics := _dig(models, (model, split)), dict) and metric in metrics
        for model in MODELS
        for split in SPLITS
    )


def _measured(run: RunRecord, model: str, split: str, metric: str) -> bool:
    if finite(_dig(run.summary.get("models"), (model, split, metric, "mean"))) is not None:
        return True
    column = f"{model}_{split}_{metric}"
    return any(finite(row.get(column)) is not None for row in run.clients)


def _dig(tree: object, path: Sequence[str]) -> object:
    """The value at a path of keys in nested dicts; None where a key is missing."""
    for key in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(key)
    return tree
