"""A reproduced figure: what it is, how its rows are measured, and how they are judged and drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from polyfed.papers.shared.claims import Claim

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
"""A point of a figure: numbers and labels by the names of their columns."""
ExperimentProgress = Callable[[str, int, int], None]
"""Called as an experiment goes: what is running, how many of its runs are done, of how many."""


@dataclass
class Measured:
    """What running an experiment gives."""

    rows: list[Row]
    """The figure's data in long form, with every seed: claims and pictures are made of them alone."""
    settings: dict[str, object] = field(default_factory=dict)
    """The hyper-parameters that were used."""
    notes: list[str] = field(default_factory=list)
    """What the rows do not say, such as how hyper-parameters were chosen."""
    scope: str = ""
    """What part of the paper's experiment this is, in sentences, where it is not the whole."""


@dataclass
class Outcome:
    """What is shown of an experiment."""

    measured: Measured
    claims: list[Claim]
    figures: list[Figure]
    tables: list[str] = field(default_factory=list)
    """The rows as tables and sentences of the page."""


Procedure = Callable[[bool, ExperimentProgress], Measured]
"""`procedure(quick, progress)`: a quick run is small enough for a test, and checks what it can."""
Judge = Callable[[list[Row]], list[Claim]]
Draw = Callable[[list[Row]], "Figure | list[Figure]"]
Tell = Callable[[list[Row]], list[str]]


def _nothing(rows: list[Row]) -> list[str]:
    return []


@dataclass(frozen=True)
class Experiment:
    """A figure or table of a paper, by the name that the command line knows it by."""

    name: str
    """PAPER/FIGURE, such as flix/fig2."""
    paper: str
    title: str
    caption: str
    data: str
    differences: str
    """What here is not as in the paper."""
    run: Procedure
    judge: Judge
    draw: Draw
    tell: Tell = _nothing

    def outcome(self, measured: Measured) -> Outcome:
        """The claims, the figures and the tables of rows that were just measured, or stored."""
        drawn = self.draw(measured.rows)
        figures = drawn if isinstance(drawn, list) else [drawn]
        return Outcome(measured, self.judge(measured.rows), figures, self.tell(measured.rows))


EXPERIMENTS: dict[str, Experiment] = {}
"""By name. A paper's modules add theirs when they are imported; `papers.catalogue` imports them all."""


def experiment(
    name: str,
    *,
    paper: str,
    title: str,
    caption: str,
    data: str,
    differences: str,
    judge: Judge,
    draw: Draw,
    tell: Tell = _nothing,
) -> Callable[[Procedure], Experiment]:
    """Register a function `run(quick, progress) -> Measured` as the experiment `name`."""

    def register(run: Procedure) -> Experiment:
        EXPERIMENTS[name] = Experiment(name, paper, title, caption, data, differences, run, judge, draw, tell)
        return EXPERIMENTS[name]

    return register


def silent(what: str, done: int, total: int) -> None:
    """A progress that tells nobody."""
