"""What the terminal shows: a progress bar while a command runs, and a table that fits the screen when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import table as rich_table
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

if TYPE_CHECKING:
    from polyfed.engine.simulation import Simulation
    from polyfed.report import Table

    RoundReport = Callable[[str, int, Simulation, Mapping[str, float] | None], None]
    """Called with a method's label, the number of rounds, the simulation, and the newest row of its history."""

BRIEF = {
    "_mean": "mean",
    "_worst10": "worst 10%",
    "better_than_alone": "better than\nalone (%)",
    "epsilon": "epsilon",
    "bits_up": "Mbit up",
    "_std": "std over\nclients",
    "better_than_global": "than\nglobal (%)",
    "seconds": "seconds",
    "_best10": "best 10%",
    "_size_weighted_mean": "by size",
    "bits_down": "Mbit down",
}
"""How the table's columns end, and their short headings, the most telling first: a screen shows as many as fit."""


@contextmanager
def progress_bars(console: Console, silent: bool) -> Iterator[RoundReport | None]:
    """A bar for each method, over all its seeds. Yields the function to call after a round; None if `silent`."""
    if silent:
        yield None
        return
    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}
        done: dict[str, dict[int, int]] = {}
        loss: dict[str, str] = {}

        def report(label: str, rounds: int, simulation: Simulation, row: Mapping[str, float] | None) -> None:
            if label not in tasks:
                tasks[label] = bars.add_task(escape(label), total=rounds, facts="")
                done[label] = {}
            done[label][simulation.seed] = simulation.round
            if row is not None:
                loss[label] = f"loss {row['objective']:.4f}  "
            bars.update(
                tasks[label],
                completed=sum(done[label].values()),
                total=rounds * len(done[label]),
                facts=f"{loss.get(label, '')}{bits(simulation.bits_up)} up",
            )

        yield report


@contextmanager
def candidate_bars(console: Console, silent: bool) -> Iterator[Callable[[str, float, int, str], None] | None]:
    """A bar for each method that is tuned: report(label, candidates done, candidates in all, the best so far)."""
    if silent:
        yield None
        return
    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[count]}"),
        TextColumn("{task.fields[best]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def report(label: str, done: float, total: int, best: str) -> None:
            if label not in tasks:
                tasks[label] = bars.add_task(escape(label), total=total, count="", best="")
            bars.update(tasks[label], completed=done, count=f"{int(done)}/{total}", best=best)

        yield report


@contextmanager
def download_bars(console: Console, silent: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each file that is downloaded: report(name, bytes there, bytes in all)."""
    if silent:
        yield lambda name, done, total: None
        return
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(bar_width=20),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def report(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(escape(name), total=total or None)
            bars.update(tasks[name], completed=done, total=total or None)

        yield report


def terminal_table(table: Table, width: int) -> rich_table.Table:
    """The comparison table with the columns that fit into `width`."""
    cells = [row[1:] for row in table.rows]
    labels = [row[0] for row in table.rows]
    headers = {i: _brief(column.key, column.header) for i, column in enumerate(table.columns)}
    wide = {i: max(len(part) for part in [*headers[i].splitlines(), *(row[i] for row in cells)]) for i in headers}
    order = sorted(headers, key=lambda i: _rank(table.columns[i].key))
    left = width - max(map(len, ["method", *labels]))
    chosen = []
    for index in order:
        left -= wide[index] + 2
        if left < 0 and chosen:
            break
        chosen.append(index)
    drawn = rich_table.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    drawn.add_column("\nmethod", style="bold", no_wrap=True)
    for index in sorted(chosen):
        drawn.add_column(headers[index], justify="right", no_wrap=True, vertical="bottom")
    for number, label in enumerate(labels):
        texts = [
            f"[bold]{escape(cells[number][i])}[/]" if table.is_best(number, i) else escape(cells[number][i])
            for i in sorted(chosen)
        ]
        drawn.add_row(escape(label), *texts)
    return drawn


def _rank(key: str) -> int:
    """The place of a column in `BRIEF`."""
    endings = (end for end in BRIEF if end != "_mean" or not key.endswith("_size_weighted_mean"))
    return next((list(BRIEF).index(end) for end in endings if key.endswith(end)), len(BRIEF))


def _brief(key: str, header: str) -> str:
    """A short heading of two lines; the metric's name stands above its mean."""
    if key.endswith("_size_weighted_mean"):
        return "\nby size"
    for end, short in BRIEF.items():
        if key.endswith(end):
            if end == "_mean":
                return header.replace(" (mean, ", "\nmean (").replace(" (mean)", "\nmean")
            return short if "\n" in short else f"\n{short}"
    return header


def bits(count: float) -> str:
    """A number of bits for people: 12.3 Mbit."""
    for unit in ("bit", "kbit", "Mbit", "Gbit"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} Tbit"
