"""Methods side by side on the columns of a figure: each at its best candidate, with every seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from polyfed.papers.shared import held_out, style, tuned
from polyfed.papers.shared.experiment import Claim, ExperimentProgress
from polyfed.papers.shared.held_out import HeldOutCurve, against, final, mean_curve
from polyfed.papers.shared.tuned import Choice, Entry, Setting

METRICS = {"train_loss": "training loss", "test_accuracy": "test accuracy"}
Cell = tuple[str, str]
"""A column of the figure, and a method's label."""


@dataclass(frozen=True)
class Comparison:
    """The curves of every method on every column, one for each seed, and how its hyper-parameters were chosen."""

    entries: Mapping[str, Entry]
    choices: Mapping[Cell, Choice]
    curves: Mapping[Cell, list[HeldOutCurve]]

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for column, _ in self.curves))

    def ends(self, column: str, label: str, metric: str = "test_accuracy") -> np.ndarray:
        """The last value of a method's judged model, one for each seed."""
        return final(self.curves[column, label], f"{self.entries[label].judged}_{metric}")

    def mean(self, column: str, label: str, metric: str = "test_accuracy") -> float:
        return float(np.mean(self.ends(column, label, metric)))

    def best(self, column: str, start: str, metric: str = "test_accuracy") -> str:
        """Of the methods whose labels begin with `start`, the one with the highest mean."""
        labels = [label for label in self.entries if label.startswith(start)]
        return max(labels, key=lambda label: self.mean(column, label, metric))

    def share(self, column: str, label: str) -> np.ndarray:
        """The mean weight of the clients' own models at the end, one for each seed."""
        return np.array([np.mean(c.own_share) for c in self.curves[column, label] if c.own_share is not None])

    def beats(self, column: str, first: str, second: str, metric: str = "test_accuracy", say: str = "") -> Claim:
        """The claim that one method ends better than another."""
        percent = metric.endswith("accuracy")
        ours, theirs = self.ends(column, first, metric), self.ends(column, second, metric)
        gap = (np.mean(ours) - np.mean(theirs)) * (1 if percent else -1)
        what = "is more accurate" if percent else "has a lower training loss"
        where = f"{column}: " if column else ""
        text = say or f"{where}{first} {what} than {second}."
        return Claim(text, against(ours, theirs, percent), bool(gap > 0))

    def lines(self, column: str, metric: str) -> list[style.Curve]:
        """A line per method: one colour per family, its global model dashed."""
        families = style.colours(list(dict.fromkeys(map(_family, self.entries))))
        curves = []
        for label, entry in self.entries.items():
            x, y = mean_curve(self.curves[column, label], f"{entry.judged}_{metric}")
            line = style.BASELINE if entry.judged == "global" else style.METHOD
            curves.append(style.Curve(label, x[1:], y[1:], families[_family(label)], line))
        return curves

    def panels(self) -> list[list[style.Panel]]:
        """Training losses above accuracies, a column for each dataset."""
        return [
            [style.Panel(column, self.lines(column, metric), title) for column in self.columns]
            for metric, title in METRICS.items()
        ]

    @property
    def rows(self) -> list[dict[str, object]]:
        """The judged models' curves in long form, a row per point."""
        return [
            {"column": column, "label": label, "seed": seed, "round": row["round"]}
            | {k.removeprefix(f"{judged}_"): v for k, v in row.items() if k.startswith(judged)}
            for (column, label), curves in self.curves.items()
            for judged in (self.entries[label].judged,)
            for seed, curve in enumerate(curves)
            for row in curve.rows
        ]


def compare(
    settings: Mapping[str, Setting],
    entries: Mapping[str, Entry],
    *,
    seeds: int,
    budget: int,
    progress: ExperimentProgress,
) -> Comparison:
    """Every method on every column with every seed, at the best of `budget` candidates; 0: as the paper has it."""
    choices: dict[Cell, Choice] = {}
    for column, setting in settings.items():
        winners = tuned.choose(setting, entries, budget, progress)
        choices |= {(column, label): choice for label, choice in winners.items()}
    todo = {
        (column, label): [settings[column].run(choice, seed) for seed in range(seeds)]
        for (column, label), choice in choices.items()
    }
    curves = held_out.trace_all([run for group in todo.values() for run in group], progress)
    return Comparison(entries, choices, {cell: [curves[run] for run in group] for cell, group in todo.items()})


def _family(label: str) -> str:
    """Labels of one family share a colour: the models of a method, and each of APFL's alphas."""
    return label if "α" in label else label.partition(",")[0]
