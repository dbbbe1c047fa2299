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

FIRST = 5  # columns of the final table that have to be seen: metric, gain and verdicts


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
    """The comparison table with the columns that fit into `width`.

    Where metric, gain and verdicts do not, spreads over runs are left out first, then long labels are folded.
    """
    names = [line.name for line in table.lines]
    longest = max(map(len, ["method", *names]))
    for spread, label in ((True, longest), (False, longest), (False, min(longest, width // 4))):
        cells = [[table.text(i, j, spread=spread) for i in range(len(names))] for j in range(len(table.columns))]
        wide = [max(map(len, [*c.brief.splitlines(), *cells[j]])) for j, c in enumerate(table.columns)]
        chosen = [j for j in range(len(wide)) if label + sum(2 + size for size in wide[: j + 1]) <= width] or [0]
        if len(chosen) >= FIRST:
            break
    drawn = rich_table.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    drawn.add_column("\nmethod", style="bold", max_width=label, overflow="fold")
    for j in chosen:
        drawn.add_column(table.columns[j].brief, justify="right", no_wrap=True, vertical="bottom")
    for i, name in enumerate(names):
        row = [f"[bold]{escape(cells[j][i])}[/]" if table.is_best(i, j) else escape(cells[j][i]) for j in chosen]
        drawn.add_row(escape(name), *row)
    return drawn


def bits(count: float) -> str:
    """A number of bits for people: 12.3 Mbit."""
    for unit in ("bit", "kbit", "Mbit", "Gbit"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} Tbit"


@contextmanager
def advice_bar(console: Console, silent: bool) -> Iterator[Callable[[str, float], None] | None]:
    """One bar, for the part that is at work. Yields the function to call; None if `silent`."""
    if silent:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.percentage:>3.0f}%"))
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("", total=1.0)
        yield lambda what, share: bars.update(task, description=escape(f"{what:<48}"), completed=share)
