"""The table of fairness: how evenly each method serves its clients, and whose data its averages listen to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from polyfed.report.methods import Method, Task, group
from polyfed.report.numbers import finite
from polyfed.report.table import Cell, Column, Table, row_of, write_files
from polyfed.studies.run_directory import RunRecord

Line = tuple[Method, str]
"""A method, and which of its models: its clients' own, or the global one."""


def lines(methods: Sequence[Method]) -> list[Line]:
    """The models to judge: the deployed one and, where that differs from it, the global one."""
    return [
        (method, model)
        for method in methods
        for model in (method.deployed, *(["global"] if method.personalizes else []))
        if any(value is not None for value in method.run_statistics(model, "jain"))
    ]


def fairness_table(runs: Sequence[RunRecord]) -> Table | None:
    """A row per method and model; None where no run has such figures."""
    methods = group(runs)
    judged = lines(methods)
    if not judged:
        return None
    columns = _columns(methods[0].task)
    rows = [
        row_of(method, model, label(method, model), [_cell(method, model, column.key) for column in columns])
        for method, model in judged
    ]
    return Table(columns, tuple(rows), methods[0].task.is_share)


def write_fairness(runs: Sequence[RunRecord], folder: str | Path) -> list[Path]:
    """Write `fairness.csv`, `fairness.md` and `fairness.tex` into `folder` and return their paths."""
    table = fairness_table(runs)
    return [] if table is None else write_files(table, folder, "fairness")


def label(method: Method, model: str) -> str:
    """The method's name, and which of its models this is if there are two."""
    return f"{method.label}, {model} model" if method.personalizes else method.label


def _columns(task: Task) -> tuple[Column, ...]:
    best = "high" if task.higher_is_better else "low"
    scale, decimals, unit, squared = (100.0, 1, " (%)", " (points²)") if task.is_share else (1.0, None, "", "")
    prefix = task.prefix
    return (
        Column(f"{prefix}variance", f"Variance over clients{squared}", scale**2, decimals, best="low"),
        Column(f"{prefix}worst10", f"Worst 10%{unit}", scale, decimals, best=best),
        Column(f"{prefix}smallest", f"Smallest client{unit}", scale, decimals, best=best),
        Column(f"{prefix}largest", f"Largest client{unit}", scale, decimals, best=best),
        Column(f"{prefix}gini", "Gini index", 1.0, 3, best="low"),
        Column(f"{prefix}jain", "Jain index", 1.0, 3, best="high"),
        Column("smallest_weight", "Weight of the smallest (%)", 100.0, 2),
        Column("smallest_data", "Data of the smallest (%)", 100.0, 2),
        Column("largest_weight", "Weight of the largest (%)", 100.0, 2),
        Column("largest_data", "Data of the largest (%)", 100.0, 2),
        Column("weight_jain", "Jain index of the weights", 1.0, 3),
    )


def _cell(method: Method, model: str, key: str) -> Cell:
    statistic = key.removeprefix(method.task.prefix)
    if statistic == key:
        return Cell(tuple(finite((run.summary.get("attention") or {}).get(key)) for run in method.runs))
    return Cell(tuple(method.run_statistics(model, statistic)))
