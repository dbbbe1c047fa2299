"""Methods side by side on the columns of a figure: each at its best candidate, with every seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from polyfed.papers.shared import claims, held_out, style, tuned
from polyfed.papers.shared.claims import Claim, better, every
from polyfed.papers.shared.experiment import ExperimentProgress, Row
from polyfed.papers.shared.held_out import HeldOutCurve, against, plus_minus
from polyfed.papers.shared.rows import distinct, ends, mean_curve, rounded
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
    def rows(self) -> list[Row]:
        """The judged models' curves in long form, a row per point, to six digits; with the last, the mean own share."""
        return self.rows_with()

    def rows_with(self, *more: str) -> list[Row]:
        """The same with more columns of the history, such as "iterations"."""
        return [
            {"column": column, "label": label, "seed": seed, "round": row["round"]}
            | {name: row[name] for name in more}
            | rounded({k.removeprefix(f"{judged}_"): v for k, v in row.items() if k.startswith(judged)})
            | _share(curve, row)
            for (column, label), curves in self.curves.items()
            for judged in (self.entries[label].judged,)
            for seed, curve in enumerate(curves)
            for row in curve.rows
        ]


def _share(curve: HeldOutCurve, row: Row) -> Row:
    if curve.own_share is None or row is not curve.rows[-1]:
        return {}
    return {"share": float(np.mean(curve.own_share))}


class Compared:
    """A comparison's rows, judged and drawn."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.columns: list[str] = distinct(rows, "column")
        self.labels: list[str] = distinct(rows, "label")

    def ends(self, column: str, label: str, metric: str = "test_accuracy") -> np.ndarray:
        """The last value of a method's judged model, one for each seed."""
        return ends(self.rows, metric, column=column, label=label)

    def mean(self, column: str, label: str, metric: str = "test_accuracy") -> float:
        return float(np.mean(self.ends(column, label, metric)))

    def best(self, column: str, start: str) -> str:
        """Of the methods whose labels begin so, the one with the highest mean on validation rows."""
        labels = [label for label in self.labels if label.startswith(start)]
        return max(labels, key=lambda label: self.mean(column, label, "validation_accuracy"))

    def share(self, column: str, label: str) -> np.ndarray:
        """The mean weight of the clients' own models at the end, one for each seed."""
        return self.ends(column, label, "share")

    def words(self, column: str, labels: Sequence[str], metric: str = "test_accuracy") -> str:
        """The ends of several methods, for people."""
        percent = metric.endswith("accuracy")
        return ", ".join(f"{plus_minus(self.ends(column, label, metric), percent)} ({label})" for label in labels)

    def beats(self, column: str, first: str, second: str, metric: str = "test_accuracy", say: str = "") -> Claim:
        """The claim that one method ends better than another."""
        percent = metric.endswith("accuracy")
        ours, theirs = self.ends(column, first, metric), self.ends(column, second, metric)
        what = "is more accurate" if percent else "has a lower training loss"
        where = f"{column}: " if column else ""
        text = say or f"{where}{first} {what} than {second}."
        unit = claims.POINTS if percent else claims.PLAIN
        return better(text, ours, theirs, against(ours, theirs, percent), unit, lower=not percent)

    def beats_all(self, column: str, first: str, others: Sequence[str], text: str) -> Claim:
        """The claim that a method ends more accurate than each of several."""
        differences = {other: self.ends(column, first) - self.ends(column, other) for other in others}
        return every(text, differences, self.words(column, [first, *others]), claims.POINTS)

    def lines(self, column: str, metric: str) -> list[style.Curve]:
        """A line per method: one colour per family, its global model dashed."""
        families = style.colours(list(dict.fromkeys(map(_family, self.labels))))
        curves = []
        for label in self.labels:
            x, y = mean_curve(self.rows, metric, column=column, label=label)
            line = style.BASELINE if label.endswith("global") else style.METHOD
            curves.append(style.Curve(label, x[1:], y[1:], families[_family(label)], line))
        return curves

    def panels(self) -> list[list[style.Panel]]:
        """Training losses above accuracies, a column for each dataset."""
        return [
            [style.Panel(column, self.lines(column, metric), title) for column in self.columns]
            for metric, title in METRICS.items()
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
