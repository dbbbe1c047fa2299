"""The comparison table: a row per method, as a paper would print it, in CSV, Markdown, LaTeX or on a terminal."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polyfed.report.methods import Method, Task, group
from polyfed.report.numbers import MISSING, like, minus, strict_average
from polyfed.studies.run_directory import RunRecord


@dataclass(frozen=True)
class Column:
    """One measured quantity: its heading, its key in the CSV file, and how it is printed."""

    key: str
    header: str
    scale: float = 1.0  # what the number is multiplied by where people read it; the CSV file keeps it as measured
    decimals: int | None = None  # None: as many as `digits` significant ones take
    digits: int = 4
    best: str | None = None  # "high" or "low" where the best method is printed in bold


@dataclass(frozen=True)
class Cell:
    """A mean over seeds and the sample standard deviation over them (None with a single seed)."""

    mean: float | None
    spread: float | None = None

    @staticmethod
    def over(values: Sequence[float | None]) -> Cell:
        mean = strict_average(values)
        there = [value for value in values if value is not None]
        if mean is None or len(there) < 2:
            return Cell(mean)
        return Cell(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in there) / (len(there) - 1)))


@dataclass(frozen=True)
class Table:
    """Methods against what was measured of them. `headers` and `rows` are ready for a terminal."""

    columns: tuple[Column, ...]
    labels: tuple[str, ...]
    seeds: tuple[int, ...]
    diverged: tuple[bool, ...]
    leaking: tuple[bool, ...]
    cells: tuple[tuple[Cell, ...], ...]

    @property
    def headers(self) -> list[str]:
        return ["Method", *(column.header for column in self.columns)]

    @property
    def rows(self) -> list[list[str]]:
        return [
            [self._label(i), *(_text(cell, column) for cell, column in zip(row, self.columns, strict=True))]
            for i, row in enumerate(self.cells)
        ]

    def is_best(self, row: int, column: int) -> bool:
        """Whether this cell holds the best printed value of its column, among two or more that count.

        Methods that diverged do not, nor those into which test labels leak.
        """
        spec = self.columns[column]
        printed = {
            i: float(_number(mean, spec).replace("−", "-"))
            for i, cells in enumerate(self.cells)
            if (mean := cells[column].mean) is not None and not (self.diverged[i] or self.leaking[i])
        }
        if spec.best is None or row not in printed or len(printed) < 2 or len(set(printed.values())) == 1:
            return False
        return printed[row] == (max if spec.best == "high" else min)(printed.values())

    def to_csv(self) -> str:
        """Plain numbers as they were measured (shares from 0 to 1, bits, seconds), for other programs."""
        several = any(count > 1 for count in self.seeds)
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        keys = [key for column in self.columns for key in (column.key, f"{column.key}_seed_std")[: 1 + several]]
        writer.writerow(["method", "seeds", "diverged", *keys])
        for label, seeds, diverged, row in zip(self.labels, self.seeds, self.diverged, self.cells, strict=True):
            numbers = [value for cell in row for value in (cell.mean, cell.spread)[: 1 + several]]
            texts = ["" if value is None else repr(value) for value in numbers]
            writer.writerow([label, seeds, str(diverged).lower(), *texts])
        return out.getvalue()

    def to_markdown(self) -> str:
        lines = [[_markdown(text) for text in self.headers], ["---", *("---:" for _ in self.columns)]]
        for i, row in enumerate(self.rows):
            bold = [False, *(self.is_best(i, j) for j in range(len(self.columns)))]
            lines.append([f"**{_markdown(t)}**" if b else _markdown(t) for t, b in zip(row, bold, strict=True)])
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def to_latex(self) -> str:
        """A `tabular` for the booktabs package; the best value of each quality column is bold."""
        lines = [rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}", r"\toprule"]
        lines.append(" & ".join(_latex(text) for text in self.headers) + r" \\")
        lines.append(r"\midrule")
        for i, row in enumerate(self.rows):
            bold = [False, *(self.is_best(i, j) for j in range(len(self.columns)))]
            cells = [_latex(text, bold=b) for text, b in zip(row, bold, strict=True)]
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])

    def _label(self, row: int) -> str:
        return self.labels[row] + (" (diverged)" if self.diverged[row] else "")


def comparison_table(runs: Sequence[RunRecord]) -> Table:
    """A row per label: the deployed model's metric over the clients, who is better off, and what it cost."""
    methods = group(runs)
    columns = _columns(methods[0].task, any(method.privacy for method in methods))
    return Table(
        columns,
        tuple(method.marked for method in methods),
        tuple(len(method.runs) for method in methods),
        tuple(method.diverged for method in methods),
        tuple(method.leaks for method in methods),
        tuple(tuple(_cell(method, column.key) for column in columns) for method in methods),
    )


def write_table(runs: Sequence[RunRecord], folder: str | Path) -> list[Path]:
    """Write `table.csv`, `table.md` and `table.tex` into `folder` and return their paths."""
    return write_files(comparison_table(runs), folder, "table")


def write_files(table: Table, folder: str | Path, name: str) -> list[Path]:
    """Write a table in the three formats, and return the paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {".csv": table.to_csv(), ".md": table.to_markdown(), ".tex": table.to_latex()}
    for ending, text in texts.items():
        (folder / f"{name}{ending}").write_text(text, encoding="utf-8", newline="\n")
    return [folder / f"{name}{ending}" for ending in texts]


def _columns(task: Task, private: bool) -> tuple[Column, ...]:
    prefix = task.prefix
    best = "low" if task.lower_is_better else "high"
    scale, decimals, unit = (100.0, 1, ", %") if task.is_share else (1.0, None, "")
    quality = [
        Column(f"{prefix}mean", f"{task.name.capitalize()} (mean{unit})", scale, decimals, best=best),
        Column(f"{prefix}size_weighted_mean", "Size-weighted", scale, decimals, best=best),
        Column(f"{prefix}std", "Std over clients", scale, decimals),
        Column(f"{prefix}worst10", "Worst 10%", scale, decimals, best=best),
        Column(f"{prefix}best10", "Best 10%", scale, decimals, best=best),
    ]
    who = [
        Column("better_than_alone", "Better than alone (%)", 100.0, 1, best="high"),
        Column("better_than_global", "Better than global (%)", 100.0, 1, best="high"),
    ]
    cost = [
        Column("bits_up", "Mbit up", 1e-6, digits=3),
        Column("bits_down", "Mbit down", 1e-6, digits=3),
        Column("seconds", "Seconds", digits=3),
    ]
    spent = [Column("epsilon", "Epsilon", digits=3)] if private else []
    return tuple(quality + who + spent + cost)


def _cell(method: Method, key: str) -> Cell:
    statistic = key.removeprefix(method.task.prefix)
    if statistic == key:
        return Cell.over(method.figures(key))
    return Cell.over(method.seed_statistics(method.deployed, statistic))


def _number(value: float, column: Column, model: float | None = None) -> str:
    """The value as printed; a spread is printed to the decimals of its mean, the `model`."""
    scaled, pattern = value * column.scale, (value if model is None else model) * column.scale
    if column.decimals is None:
        return like(scaled, pattern, column.digits)
    return minus(f"{scaled:.{column.decimals}f}")


def _text(cell: Cell, column: Column) -> str:
    if cell.mean is None:
        return MISSING
    text = _number(cell.mean, column)
    same = cell.spread is None or (cell.spread == 0 and column.best is None)
    return text if same or cell.spread is None else f"{text} ± {_number(cell.spread, column, cell.mean)}"


def _markdown(text: str) -> str:
    """Text that Markdown shows as it is written."""
    for character in "\\`*_|<>[]~":
        text = text.replace(character, "\\" + character)
    return text.replace("\n", " ")


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "−": r"$-$", "–": "--", "\n": " ",
}  # fmt: skip


def _latex(text: str, *, bold: bool = False) -> str:
    """Text that LaTeX prints as it is written."""
    value, plus_minus, spread = text.partition(" ± ")
    first = "".join(_LATEX.get(character, character) for character in value)
    rest = "".join(_LATEX.get(character, character) for character in plus_minus + spread)
    return (rf"\textbf{{{first}}}" if bold else first) + rest
