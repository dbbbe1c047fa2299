"""A reproduced figure: what it is, what running it gives, and which of the paper's claims it confirms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
"""A point of a figure: numbers and labels by the names of their columns."""
ExperimentProgress = Callable[[str, int, int], None]
"""Called as an experiment goes: what is running, how many of its runs are done, of how many."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that a number can refute."""

    text: str
    measured: str
    """The number, in a sentence or a phrase."""
    passed: bool


@dataclass
class Outcome:
    """What an experiment gave."""

    rows: list[Row]
    """The figure's data in long form, a row per point."""
    claims: list[Claim]
    figure: Figure | list[Figure]
    settings: dict[str, object] = field(default_factory=dict)
    """The hyper-parameters that were used."""
    notes: list[str] = field(default_factory=list)

    @property
    def figures(self) -> list[Figure]:
        return self.figure if isinstance(self.figure, list) else [self.figure]

    @property
    def passed(self) -> bool:
        return all(claim.passed for claim in self.claims)


Procedure = Callable[[bool, ExperimentProgress], Outcome]
"""`procedure(quick, progress)`: a quick run is small enough for a test, and checks what it can."""


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


EXPERIMENTS: dict[str, Experiment] = {}
"""By name. A paper's modules add theirs when they are imported; `papers.catalogue` imports them all."""


def experiment(
    name: str, *, paper: str, title: str, caption: str, data: str, differences: str
) -> Callable[[Procedure], Experiment]:
    """Register a function `run(quick, progress) -> Outcome` as the experiment `name`."""

    def register(run: Procedure) -> Experiment:
        EXPERIMENTS[name] = Experiment(name, paper, title, caption, data, differences, run)
        return EXPERIMENTS[name]

    return register


def silent(what: str, done: int, total: int) -> None:
    """A progress that tells nobody."""
