"""A reproduced figure: what it is, what running it gives, and what of the paper it confirms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from polyfed.core.errors import PolyfedError, suggestion

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[str, int, int], None]
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
    """What an experiment found."""

    rows: list[dict[str, Any]]
    """The figure's data in long form: a dictionary per point."""
    claims: list[Claim]
    figure: Figure | list[Figure]
    settings: dict[str, Any] = field(default_factory=dict)
    """The hyper-parameters that were used."""
    notes: list[str] = field(default_factory=list)

    @property
    def figures(self) -> list[Figure]:
        return self.figure if isinstance(self.figure, list) else [self.figure]

    @property
    def passed(self) -> bool:
        return all(claim.passed for claim in self.claims)


Run = Callable[[bool, Progress], Outcome]


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
    run: Run
    """`run(quick, progress)`: a quick run is small enough for a test, and checks what it can."""


REGISTRY: dict[str, Experiment] = {}


def experiment(
    name: str, *, paper: str, title: str, caption: str, data: str, differences: str
) -> Callable[[Run], Experiment]:
    """Register a function `run(quick, progress) -> Outcome` as the experiment `name`."""

    def register(run: Run) -> Experiment:
        found = Experiment(name, paper, title, caption, data, differences, run)
        REGISTRY[name] = found
        return found

    return register


def load_all() -> dict[str, Experiment]:
    """The registry, with every paper's experiments in it."""

    return REGISTRY


def get(name: str) -> Experiment:
    """The experiment of this name; another is refused with the nearest one."""
    known = load_all()
    if name not in known:
        raise PolyfedError(f"unknown experiment '{name}'{suggestion(name, known)}")
    return known[name]


def silent(what: str, done: int, total: int) -> None:
    """A progress that tells nobody."""
