"""The comparison table: a row per method, as a paper would print it, in CSV, Markdown, LaTeX or on a terminal."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from polyfed.core.files import safe_cell, write_text
from polyfed.report.gains import GAINS, LOSES, UNDECIDED
from polyfed.report.methods import WORSE, Method, Task, group
from polyfed.report.numbers import MISSING, between, gained, like, minus, strict_average
from polyfed.studies.run_directory import RunRecord
from polyfed.studies.verdicts.intervals import Interval, student

FEWER = "mean gain over"  # begins the mark of a method whose mean gain is not over all clients
VERDICTS = {"helped": GAINS, "harmed": LOSES, "undecided": UNDECIDED}


@dataclass(frozen=True)
class Column:
    """One measured quantity: its heading, its key in the CSV file, and how it is printed."""

    key: str
    header: str
    scale: float = 1.0  # what the number is multiplied by where people read it; the CSV file keeps it as measured
    decimals: int | None = None  # None: as many as `digits` significant ones take
    digits: int = 4
    best: str | None = None  # "high" or "low" where the best methods are printed in bold
    brief: str = ""  # the heading on a terminal, of two lines


@dataclass(frozen=True)
class Cell:
    """A value of each run, or one that was judged over all runs together, with its interval where it has one."""

    values: tuple[float | None, ...] = ()
    interval: Interval | None = None

    @property
    def mean(self) -> float | None:
        """The mean over the runs; None as soon as one is missing."""
        return self.interval.estimate if self.interval else strict_average(self.values)

    @property
    def spread(self) -> float | None:
        """The sample standard deviation over the runs; None with a single one."""
        mean = self.mean
        there = [value for value in self.values if value is not None]
        if mean is None or len(there) < 2:
            return None
        if len(set(there)) == 1:  # without what rounding makes of their mean
            return 0.0
        return math.sqrt(math.fsum((value - mean) ** 2 for value in there) / (len(there) - 1))


@dataclass(frozen=True)
class Row:
    """A method, or a yardstick beside the methods."""

    label: str
    cells: tuple[Cell, ...]
    runs: tuple[tuple[int, int | None], ...]
    """seed and split of each run: rows of the same runs can be compared run by run"""
    overlap: float = 0.0
    """test rows for each training row where the runs differ in their split, else 0"""
    marks: tuple[str, ...] = ()
    competes: bool = True
    """whether it can be the best: nothing that diverged, leaks or is worse than the constant predictor"""

    @property
    def name(self) -> str:
        return f"{self.label} ({'; '.join(self.marks)})" if self.marks else self.label


@dataclass(frozen=True)
class Table:
    """Methods against what was measured of them. `headers` and `rows` are ready for a terminal."""

    columns: tuple[Column, ...]
    lines: tuple[Row, ...]
    is_share: bool

    @property
    def headers(self) -> list[str]:
        return ["Method", *(column.header for column in self.columns)]

    @property
    def rows(self) -> list[list[str]]:
        return [[line.name, *(self.text(i, j) for j in range(len(self.columns)))] for i, line in enumerate(self.lines)]

    def text(self, row: int, column: int, *, spread: bool = True) -> str:
        """A cell as people read it; `spread`: with the standard deviation over runs."""
        cell, spec = self.lines[row].cells[column], self.columns[column]
        if cell.interval is not None:
            return f"{gained(cell.interval, self.is_share)} ({between(cell.interval, self.is_share)})"
        if cell.mean is None:
            return MISSING
        text, off = _number(cell.mean, spec), cell.spread
        if not spread or off is None or (off == 0 and (spec.best is None or not self.lines[row].competes)):
            return text
        return f"{text} ± {_number(off, spec, cell.mean)}"

    def is_best(self, row: int, column: int) -> bool:
        """Whether this row is the best of its column, or cannot be told from it by 95% intervals over paired runs.

        Nobody is where that would be everybody that competes, nor where the rows are not of the same, several runs.
        """
        spec = self.columns[column]
        means = {
            i: mean
            for i, line in enumerate(self.lines)
            if line.competes and (mean := line.cells[column].mean) is not None
        }
        if spec.best is None or row not in means or len({self.lines[i].runs for i in means}) > 1:
            return False
        leader = (max if spec.best == "high" else min)(means, key=lambda i: means[i])
        close = [i for i in means if i == leader or not self._told_apart(i, leader, column)]
        return row in close and len(close) < len(means)

    def _told_apart(self, row: int, other: int, column: int) -> bool:
        a, b = self.lines[row], self.lines[other]
        pairs = zip(a.cells[column].values, b.cells[column].values, strict=True)
        return difference([x - y for x, y in pairs if x is not None and y is not None], a.overlap).sign != "undecided"

    def to_csv(self) -> str:
        """Plain numbers as they were measured (shares from 0 to 1, bits, seconds), for other programs."""
        several = any(len(line.runs) > 1 for line in self.lines)
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        endings = [_endings(column, several) for column in self.columns]
        keys = [f"{column.key}{end}" for column, ends in zip(self.columns, endings, strict=True) for end in ends]
        writer.writerow(["method", "runs", "diverged", "worse_than_constant", *keys])
        for line in self.lines:
            marks = [str(mark in line.marks).lower() for mark in ("diverged", WORSE)]
            numbers = [v for cell, ends in zip(line.cells, endings, strict=True) for v in _plain(cell, ends)]
            texts = ["" if value is None or math.isinf(value) else repr(value) for value in numbers]
            writer.writerow([safe_cell(line.label), len(line.runs), *marks, *texts])
        return out.getvalue()

    def to_markdown(self) -> str:
        lines = [[_markdown(text) for text in self.headers], ["---", *("---:" for _ in self.columns)]]
        for i, row in enumerate(self.rows):
            bold = [False, *(self.is_best(i, j) for j in range(len(self.columns)))]
            lines.append([f"**{_markdown(t)}**" if b else _markdown(t) for t, b in zip(row, bold, strict=True)])
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def to_latex(self) -> str:
        """A `tabular` for the booktabs package; what `is_best` holds of is bold."""
        lines = [rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}", r"\toprule"]
        lines.append(" & ".join(_latex(text) for text in self.headers) + r" \\")
        lines.append(r"\midrule")
        for i, row in enumerate(self.rows):
            bold = [False, *(self.is_best(i, j) for j in range(len(self.columns)))]
            cells = [_latex(text, bold=b) for text, b in zip(row, bold, strict=True)]
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def difference(values: Sequence[float], overlap: float) -> Interval:
    """Student's interval for the mean of paired differences over runs.

    Runs on several splits of the same rows are not independent: with R of them the squared error of the mean is
    (1 / R + overlap) times the variance, `overlap` the test rows for each training row (Nadeau and Bengio, 2003).
    """
    count = len(values)
    if count < 2:
        return Interval(math.nan, -math.inf, math.inf)
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return student(mean, math.sqrt(variance * (1 / count + overlap)), count - 1)


def comparison_table(runs: Sequence[RunRecord]) -> Table:
    """A row per label: the deployed model's metric over the clients, whom it helps, and what it cost.

    Below them the yardsticks: predicting the same for every row of a client and, unless a method does, going alone.
    """
    methods = group(runs)
    columns = _columns(methods[0].task, any(method.privacy for method in methods))
    lines = [_method_row(method, columns) for method in methods]
    yardsticks = [("Constant", "constant"), ("Alone", "alone")]
    for label, model in yardsticks[: 1 if any(method.alone_itself for method in methods) else 2]:
        measured = next((method for method in methods if method.mean(model) is not None), None)
        if measured is not None:
            cells = tuple(_yardstick_cell(measured, model, column.key) for column in columns)
            lines.append(Row(label, cells, run_names(measured), competes=False))
    return Table(columns, tuple(lines), methods[0].task.is_share)


def _method_row(method: Method, columns: Sequence[Column]) -> Row:
    row = row_of(method, method.deployed, method.label, [_cell(method, column.key) for column in columns])
    fewer = method.gains.mean_over if method.gains and method.gains.mean else ""
    return replace(row, marks=(*row.marks, f"{FEWER} {fewer}")) if fewer else row


def row_of(method: Method, model: str, label: str, cells: Sequence[Cell]) -> Row:
    """The row of one of a method's models."""
    marks = method.marks_of(model)
    sound = not method.diverged and not {WORSE, "test labels leak"} & set(marks)
    return Row(label, tuple(cells), run_names(method), method.overlap, tuple(marks), sound)


def run_names(method: Method) -> tuple[tuple[int, int | None], ...]:
    return tuple((run.seed, run.summary.get("split")) for run in method.runs)


def write_table(runs: Sequence[RunRecord], folder: str | Path) -> list[Path]:
    """Write `table.csv`, `table.md` and `table.tex` into `folder` and return their paths."""
    return write_files(comparison_table(runs), folder, "table")


def write_files(table: Table, folder: str | Path, name: str) -> list[Path]:
    """Write a table in the three formats, and return the paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {".csv": table.to_csv(), ".md": table.to_markdown(), ".tex": table.to_latex()}
    for ending, text in texts.items():
        write_text(folder / f"{name}{ending}", text)
    return [folder / f"{name}{ending}" for ending in texts]


def _columns(task: Task, private: bool) -> tuple[Column, ...]:
    """In the order in which a terminal that is too narrow drops them from the end."""
    best = "high" if task.higher_is_better else "low"
    scale, decimals, unit, units, points = 1.0, None, "", "", ""
    if task.is_share:
        scale, decimals, unit, units, points = 100.0, 1, ", %", " (%)", ", points"

    def quality(statistic: str, header: str, brief: str, best: str | None = best) -> Column:
        return Column(f"{task.prefix}{statistic}", header, scale, decimals, best=best, brief=brief)

    return (
        quality("mean", f"{task.title} (mean{unit})", f"{task.name}\nmean{units}"),
        Column("gain", f"Gain over alone (95% interval{points})", brief=f"gain over alone\n(95%{points})"),
        Column("helped", "Helps", decimals=0, brief="\nhelps"),
        Column("harmed", "Harms", decimals=0, brief="\nharms"),
        Column("undecided", "Cannot tell", decimals=0, brief="cannot\ntell"),
        *([Column("epsilon", "Epsilon", digits=3, brief="\nepsilon")] if private else []),
        quality("worst10", "Worst 10%", "\nworst 10%"),
        Column("bits_up", "Mbit up", 1e-6, digits=3, brief="\nMbit up"),
        Column("seconds", "Seconds", digits=3, brief="\nseconds"),
        quality("best10", "Best 10%", "\nbest 10%"),
        quality("size_weighted_mean", "Size-weighted", "\nby size"),
        quality("pooled", "Pooled", "\npooled"),
        quality("std", "Std over clients", "std over\nclients", None),
        Column("bits_down", "Mbit down", 1e-6, digits=3, brief="\nMbit down"),
    )


def _cell(method: Method, key: str) -> Cell:
    gains = method.gains
    if key == "gain":
        return Cell(interval=gains.mean if gains else None)
    if key in VERDICTS:
        return Cell((float(gains.count(VERDICTS[key])),) if gains and gains.judged else ())
    statistic = key.removeprefix(method.task.prefix)
    if statistic == key:
        return Cell(tuple(method.figures(key)))
    return Cell(tuple(method.run_statistics(method.deployed, statistic)))


def _yardstick_cell(method: Method, model: str, key: str) -> Cell:
    statistic = key.removeprefix(method.task.prefix)
    return Cell() if statistic == key else Cell(tuple(method.run_statistics(model, statistic)))


def _endings(column: Column, several: bool) -> tuple[str, ...]:
    """What the column's keys in the CSV file end with: intervals have three, counts over all runs one."""
    if column.key == "gain":
        return "", "_low", "_high"
    return ("", "_run_std") if several and column.key not in VERDICTS else ("",)


def _plain(cell: Cell, endings: Sequence[str]) -> list[float | None]:
    low, high = (None, None) if cell.interval is None else (cell.interval.low, cell.interval.high)
    numbers = {"": cell.mean, "_low": low, "_high": high, "_run_std": cell.spread}
    return [numbers[end] for end in endings]


def _number(value: float, column: Column, model: float | None = None) -> str:
    """The value as printed; a spread is printed to the decimals of its mean, the `model`."""
    scaled, pattern = value * column.scale, (value if model is None else model) * column.scale
    if column.decimals is None:
        return like(scaled, pattern, column.digits)
    return minus(f"{scaled:.{column.decimals}f}")


def _markdown(text: str) -> str:
    """Text that Markdown shows as it is written."""
    for character in "\\`*_|<>[]~":
        text = text.replace(character, "\\" + character)
    return text.replace("\n", " ")


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "−": r"$-$", "–": "--", "²": r"\textsuperscript{2}", "\n": " ",
}  # fmt: skip


def _latex(text: str, *, bold: bool = False) -> str:
    """Text that LaTeX prints as it is written."""
    value, plus_minus, spread = text.partition(" ± ")
    first = "".join(_LATEX.get(character, character) for character in value)
    rest = "".join(_LATEX.get(character, character) for character in plus_minus + spread)
    return (rf"\textbf{{{first}}}" if bold else first) + rest
