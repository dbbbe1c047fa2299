"""What the server notes of a run between two rounds, and the line that it writes after each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import isfinite
from typing import NotRequired, TypedDict

from polyfed.deploy.protocol.terms import DeployedRun

REMEMBERED = 1000
"""The norms of past uploads from which the usual one is taken."""


@dataclass
class Ledger:
    """What the server knows of the run between two rounds, apart from the method's own state."""

    round: int = 0
    counted: dict[str, int] = field(default_factory=dict)
    """per site: the last round whose upload is in the sum"""
    refused: dict[str, int] = field(default_factory=dict)
    """per site: how many of its answers were refused"""
    norms: list[float] = field(default_factory=list)
    """of the uploads that were counted last"""
    medians: list[float] = field(default_factory=list)
    """of the norms of past rounds' uploads, where a rule makes one of them"""
    missed: dict[str, int] = field(default_factory=dict)
    """per site: how many rounds went on without it although it was asked"""
    bits_up: int = 0
    bits_down: int = 0
    seconds: float = 0.0
    senders: list[str] = field(default_factory=list)
    """the sites whose uploads are in the last round"""
    epsilon: float | None = None
    """the privacy spent, in a private run"""

    def note_refusal(self, site: str) -> None:
        self.refused[site] = self.refused.get(site, 0) + 1

    def note_norms(self, norms: Iterable[float]) -> None:
        self.norms = [*self.norms, *norms][-REMEMBERED:]

    def note_absence(self, site: str) -> None:
        self.missed[site] = self.missed.get(site, 0) + 1

    def line(self, run: DeployedRun, sites: list[str]) -> RoundLine:
        """The line on the round that just ended, with the sites whose uploads are in it."""
        line: RoundLine = {
            "round": self.round,
            "of": run.rounds,
            "sites": sites,
            "bits_up": self.bits_up,
            "bits_down": self.bits_down,
            "seconds": self.seconds,
        }
        if run.privacy is not None and self.epsilon is not None:
            line["epsilon"] = self.epsilon if isfinite(self.epsilon) else None
            line["delta"] = run.privacy.delta
        return line


class RoundLine(TypedDict):
    """A line of progress.jsonl."""

    round: int
    of: int
    sites: list[str]
    bits_up: int
    bits_down: int
    seconds: float
    epsilon: NotRequired[float | None]
    delta: NotRequired[float]


AfterRound = Callable[[Ledger, list[str]], None]
"""Called after every round, with the sites whose uploads are in it."""
