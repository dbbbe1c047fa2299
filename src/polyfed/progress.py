"""The progress bar: round, loss, bits, time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from polyfed.engine.simulation import Simulation

Report = Callable[[str, int, Simulation, dict[str, Any] | None], None]


@contextmanager
def progress_bars(console: Console, silent: bool) -> Iterator[Report | None]:
    """A bar for each run, drawn on `console`; None where nothing is to be shown."""
    if silent:
        yield None
        return
    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console) as bars:
        tasks: dict[tuple[str, int], TaskID] = {}
        facts: dict[TaskID, str] = {}

        def report(label: str, rounds: int, simulation: Simulation, row: dict[str, Any] | None) -> None:
            key = (label, simulation.seed)
            if key not in tasks:
                for other in tasks.values():
                    bars.stop_task(other)
                tasks[key] = bars.add_task(label, total=rounds, facts="")
            task = tasks[key]
            if row is not None:
                facts[task] = f"loss {row['objective']:.4g}"
            text = f"{facts.get(task, '')}  {bits(simulation.bits_up)} up"
            bars.update(task, completed=simulation.round, facts=text)

        yield report


def bits(count: float) -> str:
    """A number of bits for people: 12.3 Mbit."""
    for unit in ("bit", "kbit", "Mbit", "Gbit"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} Tbit"
