"""Runs as methods: runs that share a label are one method, and a method is what the report compares."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject
from polyfed.problem.metrics.metric import FROM_0_TO_1
from polyfed.report.constant import shortfall
from polyfed.report.gains import Gains, for_certain, merged, merged_client, stored_interval
from polyfed.report.numbers import average, finite, strict_average
from polyfed.report.same_data import check_same_data
from polyfed.studies.run_directory import RunRecord
from polyfed.studies.verdicts.intervals import Interval

MODELS = ("personal", "global", "finetuned", "alone")
SPLITS = ("test", "validation", "train")
WORSE = "worse than constant"
"""Metrics that lie between 0 and 1, besides shares."""


@dataclass(frozen=True)
class Task:
    """What the runs were judged by: the metric and the split that every headline figure refers to."""

    metric: str
    label: str
    higher_is_better: bool
    is_share: bool  # shown in per cent, and differences in percentage points; others are plain numbers
    split: str

    @property
    def name(self) -> str:
        return f"{self.split} {self.label}"

    @property
    def title(self) -> str:
        """The name as a heading begins."""
        return self.name[0].upper() + self.name[1:]

    @property
    def prefix(self) -> str:
        """What the keys of a table's columns begin with where they are statistics of the metric."""
        return f"{self.split}_{self.metric}_"

    @property
    def largest(self) -> float:
        """The largest difference that there can be between two values."""
        return 1.0 if self.is_share or self.metric in FROM_0_TO_1 else math.inf

    def gain(self, value: float, reference: float) -> float:
        """How much better `value` is than `reference`; negative where it is worse."""
        return value - reference if self.higher_is_better else reference - value


@dataclass(frozen=True)
class Method:
    """All the runs of one label, in the order of their seeds and splits."""

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

    def marks_of(self, model: str) -> list[str]:
        """What to know of a model's figures: that they are no result, not of unseen rows, or not of all clients.

        Test labels leak into what is adapted before it is deployed, and into nothing else.
        """
        marks = {
            "diverged": self.diverged,
            "test labels leak": self.leaks and model == self.deployed,
            WORSE: self.worse_than_constant(model),
            self.sample: bool(self.sample),
        }
        return [mark for mark, holds in marks.items() if holds]

    def worse_than_constant(self, model: str | None = None) -> bool:
        """Whether it is worse than predicting the same for every row of a client, by its metric or by its loss."""
        return bool(shortfall(self, model or self.deployed))

    @property
    def validation_loss(self) -> float | None:
        """The mean over clients of what it deploys; with weighed classes, of the loss that training aims at."""
        weighted = self.mean(self.deployed, "validation", "weighted_loss")
        return self.mean(self.deployed, "validation", "loss") if weighted is None else weighted

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
        """A column of `clients.csv`, averaged over the runs, a value per client."""
        return [
            average(finite(rows[client].get(name)) for rows in self._rows if client in rows) for client in self.clients
        ]

    def values(self, model: str, split: str | None = None, metric: str | None = None) -> list[float | None]:
        """A model's metric on each client, averaged over the runs."""
        return self.column(f"{model}_{split or self.task.split}_{metric or self.task.metric}")

    def run_statistics(
        self, model: str, statistic: str, split: str | None = None, metric: str | None = None
    ) -> list[float | None]:
        """A statistic over the clients (mean, std, worst10, ...) as `summary.json` has it, a value per run."""
        path = (model, split or self.task.split, metric or self.task.metric, statistic)
        return [finite(_dig(run.summary.get("models"), path)) for run in self.runs]

    def mean(self, model: str, split: str | None = None, metric: str | None = None) -> float | None:
        """The mean over clients and runs."""
        return strict_average(self.run_statistics(model, "mean", split, metric))

    def figures(self, name: str) -> list[float | None]:
        """A plain number of the summary, such as `bits_up`, a value per run."""
        return [finite(run.summary.get(name)) for run in self.runs]

    @cached_property
    def gains(self) -> Gains | None:
        """What it deploys against going alone; None where nobody trained alone."""
        return self._gains("alone", "")

    @cached_property
    def gains_over_global(self) -> Gains | None:
        """What it deploys against the one global model; None where that is what it deploys."""
        return self._gains("global", "global_")

    def gain_over_constant(self) -> Interval | None:
        """The mean over clients of what it deploys against the constant predictor."""
        stored = merged([stored_interval(stored.get("mean")) for stored in self._stored("constant")])
        return stored and stored.within(self.task.largest)

    def _stored(self, reference: str) -> list[JsonObject]:
        """What the summaries say of gains over a reference, once for runs that were made, and judged, together."""
        stored: list[JsonObject | None] = [(run.summary.get("gains") or {}).get(reference) for run in self.runs]
        there = {repr(gains): gains for gains in stored if gains is not None}
        return [] if None in stored else list(there.values())

    def _gains(self, reference: str, prefix: str) -> Gains | None:
        stored = self._stored(reference)
        if not stored:
            return None
        apart: list[dict[str, dict[str, str | float]]] = [{} for _ in stored]
        for run, rows in zip(self.runs, self._rows, strict=True):
            apart[stored.index(run.summary["gains"][reference])].update(rows)
        largest = self.task.largest
        own = [[rows[name] for rows in apart if name in rows] for name in self.clients]
        clients = [merged_client(rows, prefix, largest) for rows in own]
        mean = merged([stored_interval(gains.get("mean")) for gains in stored])
        counts = [int(gains["mean_clients"]) for gains in stored if gains.get("mean_clients") is not None]
        basis = str(stored[0].get("basis", ""))
        return Gains(for_certain(clients), mean and mean.within(largest), basis, len(stored), min(counts, default=None))

    @cached_property
    def personalizes(self) -> bool:
        """Whether any client deploys something other than the global model."""
        over_global = self.gains_over_global
        return over_global is not None and any(client.gain not in (None, 0.0) for client in over_global.clients)

    @property
    def splits(self) -> int:
        """How many times the rows were split into training, validation and test rows."""
        return int(self.runs[0].summary.get("splits") or 1)

    @property
    def overlap(self) -> float:
        """Test rows for each training row where its runs are on several splits of the same rows, else 0."""
        train, test = (sum(v or 0.0 for v in self.column(f"{split}_rows")) for split in ("train", "test"))
        return test / train if self.splits > 1 and train else 0.0

    @cached_property
    def undefined(self) -> dict[str, int]:
        """The clients on whose rows the metric is not defined, as an AUC is not where there is one class: in how many
        of the runs."""
        return dict(Counter(name for names in self._undefined for name in names))

    @cached_property
    def _undefined(self) -> list[list[str]]:
        lists = [(run.summary.get("undefined") or {}).get(self.task.metric) or [] for run in self.runs]
        return [[str(name) for name in names] for names in lists]

    @property
    def over(self) -> str:
        """Which clients a mean of the metric is over where not all have it, such as 2 of 5 clients; else empty."""
        if not self.undefined:
            return ""
        counts = sorted({len(run.clients) - len(names) for run, names in zip(self.runs, self._undefined, strict=True)})
        several = f"{counts[0]:,} to {counts[-1]:,}" if len(counts) > 1 else f"{counts[0]:,}"
        return f"{several} of {len(self.clients):,} clients"

    @property
    def figure(self) -> str:
        """The run's own sentence on what was measured, with the clients that have no such figure left out."""
        otherwise = f"the {self.deployed} model on every client's {self.task.split} rows, last round"
        stored = str(self.runs[0].summary.get("figure") or otherwise)
        return stored.replace(f"all {len(self.clients)} clients", self.over) if self.over else stored


def group(runs: Sequence[RunRecord]) -> list[Method]:
    """The methods in the order in which their labels first appear."""
    if not runs:
        raise PolyfedError("a report needs at least one run, and none was given")
    task = _task(runs)
    check_same_data(runs)
    by_label: dict[str, list[RunRecord]] = {}
    for run in runs:
        by_label.setdefault(run.label, []).append(run)
    return [Method(label, tuple(sorted(same, key=_run_order)), task) for label, same in by_label.items()]


def _run_order(run: RunRecord) -> tuple[int, int]:
    return run.seed, int(run.summary.get("split") or 0)


def client_name(value: object) -> str:
    """A client's name as text. A name that was read as a number loses its decimal point again."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)


def _task(runs: Sequence[RunRecord]) -> Task:
    """The metric that the runs show, and the first split on which any of them has it."""
    for run in runs:
        if not isinstance(run.summary.get("metric"), dict):
            raise PolyfedError(
                f"{run.path}: made by an older version of polyfed, which did not say what it is judged by; run it again"
            )
        if run.summary["metric"]["name"] != runs[0].summary["metric"]["name"]:
            raise PolyfedError(
                f"run '{run.label}' shows {run.summary['metric']['label']} and run '{runs[0].label}' "
                f"{runs[0].summary['metric']['label']}; runs in one table need the same run.metric"
            )
    metric = runs[0].summary["metric"]
    name = str(metric["name"])
    split = next((s for s in SPLITS if any(_measured(run, model, s, name) for run in runs for model in MODELS)), "test")
    return Task(name, str(metric["label"]), bool(metric["higher_is_better"]), bool(metric["is_share"]), split)


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
