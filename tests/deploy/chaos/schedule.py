"""What happens in a history, and when: a function of its seed alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

Kind = Literal["kill", "restart", "pause", "cut", "hold", "slow", "clock", "full disk"]
"""Kill with signal 9 and start again; end as a service is ended, and start again; stop and continue; drop, hold up or
slow down connections; a clock that jumps and is put right again; no room left where states are written."""
KINDS: tuple[Kind, ...] = get_args(Kind)
SITES = ("north", "south", "west", "east", "centre")
METHODS: tuple[dict[str, Any], ...] = (
    {"name": "scaffnew", "lr": 0.1, "p": 0.3, "batch": 4, "trust": "never"},
    {"name": "scaffold", "lr": 0.1, "local_steps": 3, "batch": 4, "trust": "never"},
    {"name": "apfl", "lr": 0.1, "local_steps": 3, "batch": 4},
    {"name": "fedbc", "lr": 0.1, "local_steps": 3, "batch": 4},
    {"name": "ditto", "lr": 0.1, "local_steps": 3, "batch": 4},
)


@dataclass(frozen=True)
class Fault:
    """One fault: so many seconds after the one before, what happens to whom, and for how long."""

    after: float
    kind: Kind
    target: str
    lasts: float
    shift: int = 0
    """the clock's jump in seconds"""


@dataclass(frozen=True)
class Schedule:
    """A history before it happens."""

    seed: int
    method: dict[str, Any]
    secure: bool
    minimum: int
    """the fewest sites in a round; below all, rounds count without those that are away"""
    rounds: int
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        masked = ", masked" if self.secure else ""
        few = "" if self.minimum == len(SITES) else f" with {self.minimum} sites or more"
        lines = [f"history {self.seed}: {self.method['name']}{masked}, {self.rounds} rounds{few}"]
        for fault in self.faults:
            clock = f", {fault.shift:+d} s" if fault.kind == "clock" else ""
            lines.append(f"  +{fault.after:.1f} s  {fault.kind} {fault.target} for {fault.lasts:.1f} s{clock}")
        return "\n".join(lines)


def schedule(seed: int, kinds: tuple[Kind, ...] = KINDS, rounds: int = 30) -> Schedule:
    """The history with this seed; `kinds` are those that the machine allows."""
    draw = np.random.default_rng([seed, 20201])
    method = METHODS[draw.integers(len(METHODS))]
    secure = bool(draw.random() < 0.25)
    minimum = len(SITES) if draw.random() < 0.4 else 3
    faults = tuple(_fault(draw, kinds) for _ in range(draw.integers(4, 9)))
    return Schedule(seed, method, secure, minimum, rounds, faults)


def _fault(draw: np.random.Generator, kinds: tuple[Kind, ...]) -> Fault:
    kind = kinds[draw.integers(len(kinds))]
    anybody = kind in ("kill", "restart", "pause", "clock", "full disk")
    target = "server" if anybody and draw.random() < 0.3 else SITES[draw.integers(len(SITES))]
    after, lasts = float(draw.uniform(0.3, 4)), float(draw.uniform(0.2, 5))
    shift = int(draw.choice([-86400, -3600, -60, 60, 3600, 86400])) if kind == "clock" else 0
    return Fault(after, kind, target, lasts, shift)
