"""A progress bar for `simulate`: in a notebook a line of HTML that is drawn anew, elsewhere one in the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape

from polyfed.engine.history import HistoryRow
from polyfed.engine.simulation import Simulation

Bar = Callable[[Simulation, HistoryRow | None], None]
PAUSE = 0.2
"""Seconds between two drawings; a notebook keeps up with a few of them."""


@contextmanager
def bar(title: str, rounds: int, wanted: bool | None) -> Iterator[Bar | None]:
    """Yields what the loop calls; by default (`wanted` None) there is a bar in notebooks alone."""
    notebook = in_notebook()
    if wanted is False or not rounds or (wanted is None and not notebook):
        yield None
    elif notebook:
        yield _in_notebook(title, rounds)
    else:
        with _in_terminal(title, rounds) as draw:
            yield draw


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def _in_notebook(title: str, rounds: int) -> Bar:
    from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

    drawn = display(HTML(_html(title, 0, rounds, "")), display_id=True)
    latest, loss = 0.0, ""

    def draw(simulation: Simulation, row: HistoryRow | None) -> None:
        nonlocal latest, loss
        loss = loss if row is None else f"loss {row['objective']:.4g}"
        now = time.monotonic()
        if now - latest >= PAUSE or simulation.round == rounds:
            latest = now
            drawn.update(HTML(_html(title, simulation.round, rounds, loss)))

    return draw


def _html(title: str, done: int, rounds: int, loss: str) -> str:
    return f'<div>{escape(title)} <progress value="{done}" max="{rounds}"></progress> {done}/{rounds} {loss}</div>'


@contextmanager
def _in_terminal(title: str, rounds: int) -> Iterator[Bar]:
    from rich.console import Console
    from rich.markup import escape as plain
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(plain(title), total=rounds)

        def draw(simulation: Simulation, row: HistoryRow | None) -> None:
            if row is not None:
                bars.update(task, description=plain(f"{title}, loss {row['objective']:.4g}"))
            bars.update(task, completed=simulation.round)

        yield draw
