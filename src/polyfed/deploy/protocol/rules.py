"""How a server conducts a run, and what it keeps of it between two rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Conduct:
    """How long the server waits, and for whom; the section [federation] of its config."""

    deadline: float = 600.0
    """seconds that a round waits for answers"""
    minimum: int | None = None
    """the fewest uploads that a round needs; by default all that were asked"""
    patience: int = 3
    """how many deadlines a round below the minimum may take before the run stops"""
    gather: float = 600.0
    """seconds that the start waits for every site"""
    poll: float = 0.2
    """seconds between looks for answers"""
    secure: bool = False
    """masks on the uploads, so that the server learns their sum alone"""
    bound: float = 1e6
    """with `secure`: the largest number that an upload may have, weight included"""


@dataclass
class Ledger:
    """What the server knows of the run between two rounds, apart from the method's own state."""

    round: int = 0
    counted: dict[str, int] = field(default_factory=dict)
    """per site: the last round whose upload is in the sum"""
    refused: dict[str, int] = field(default_factory=dict)
    missed: dict[str, int] = field(default_factory=dict)
    bits_up: int = 0
    bits_down: int = 0
    seconds: float = 0.0
    epsilon: float | None = None
    """the privacy spent, where the run has any"""

    def count(self, what: dict[str, int], site: str) -> None:
        what[site] = what.get(site, 0) + 1


Progress = Callable[[Ledger, list[str]], None]
"""Called after every round, with the sites whose uploads are in it."""
