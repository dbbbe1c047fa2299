"""A paper's claim and its verdict: holds, does not hold, or undecided, from an interval over seeds or a plain number.

better    one method against another, paired by seed
at_least  a quantity against a bound (also `at_most`)
similar   no difference beyond a margin
every     several differences that must all be above zero, such as an order
some      several of which one suffices, such as "there is a k"
most      the cells of a table, counted with Holm's correction
exact     a number that no seed changes
unjudged  what is known of it does not suffice
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from polyfed.papers.shared.holm import Difference, Summary, certain
from polyfed.studies.verdicts.intervals import Interval, paired, student, unknown

Verdict = Literal["holds", "does not hold", "undecided"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "undecided")
Values = Sequence[float] | np.ndarray
"""A quantity's values, one for each seed."""


@dataclass(frozen=True)
class Unit:
    """How a difference is written."""

    scale: float = 1.0
    form: str = ".3g"
    name: str = ""

    def words(self, value: float) -> str:
        return f"{self.scale * value:+{self.form}}"


PLAIN, POINTS = Unit(), Unit(100, ".2f", " points")


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that numbers can refute, and what they say of it."""

    text: str
    measured: str
    """The numbers, in a sentence or a phrase."""
    verdict: Verdict
    basis: str
    """What the verdict follows from: an interval in words, or "exact" for a number that no seed changes."""
    interval: Interval | None = None
    """Of the difference that must be above zero, where the verdict follows from one."""

    @property
    def record(self) -> dict[str, object]:
        """The claim as JSON has it."""
        plain: dict[str, object] = {
            "text": self.text,
            "measured": self.measured,
            "verdict": self.verdict,
            "basis": self.basis,
        }
        if self.interval is not None and np.isfinite(self.interval.low):
            plain["interval"] = [self.interval.estimate, self.interval.low, self.interval.high]
        return plain


def better(text: str, ours: Values, theirs: Values, measured: str, unit: Unit = PLAIN, *, lower: bool = False) -> Claim:
    """Ours is higher (or lower) than theirs: Student's interval over the differences by seed lies above zero."""
    differences = np.subtract(ours, theirs) * (-1 if lower else 1)
    interval = interval_of(differences)
    return Claim(text, measured, _verdict(interval), _basis(interval, len(differences), unit), interval)


def at_least(text: str, values: Values, level: float, measured: str, unit: Unit = PLAIN) -> Claim:
    """The mean over seeds is at least a level."""
    return better(text, values, np.full(len(values), level), measured, unit)


def at_most(text: str, values: Values, level: float, measured: str, unit: Unit = PLAIN) -> Claim:
    """The mean over seeds is at most a level."""
    return better(text, values, np.full(len(values), level), measured, unit, lower=True)


def similar(text: str, ours: Values, theirs: Values, margin: float, measured: str, unit: Unit = PLAIN) -> Claim:
    """No difference beyond the margin: the interval lies within it. Beyond it, the claim does not hold."""
    differences = np.subtract(ours, theirs)
    interval = interval_of(differences)
    verdict: Verdict = "undecided"
    if -margin < interval.low and interval.high < margin:
        verdict = "holds"
    elif interval.low > margin or interval.high < -margin:
        verdict = "does not hold"
    within = f"within {unit.scale * margin:g}{unit.name}?"
    return Claim(text, measured, verdict, f"{within} {_basis(interval, len(differences), unit)}", interval)


def every(text: str, differences: Mapping[str, Difference], measured: str, unit: Unit = PLAIN) -> Claim:
    """All the differences are above zero.

    It holds if every single interval is above zero; that needs no correction, as all must err for the claim to be held
    true by mistake. It does not hold if one is below zero for certain, after Holm's correction.
    """
    intervals = {name: interval_of(values) for name, values in differences.items()}
    signs = certain(list(differences.values()))
    verdict: Verdict = "undecided"
    if all(interval.sign == "above" for interval in intervals.values()):
        verdict = "holds"
    elif "below" in signs:
        verdict = "does not hold"
    return _weakest(text, measured, verdict, intervals, differences, unit)


def some(text: str, differences: Mapping[str, Difference], measured: str, unit: Unit = PLAIN) -> Claim:
    """One of the differences is above zero: for certain after Holm's correction. Not so if all are below it."""
    intervals = {name: interval_of(values) for name, values in differences.items()}
    signs = certain(list(differences.values()))
    verdict: Verdict = "undecided"
    if "above" in signs:
        verdict = "holds"
    elif intervals and all(interval.sign == "below" for interval in intervals.values()):
        verdict = "does not hold"
    best = max(intervals, key=lambda name: _or_lowest(intervals[name].estimate))
    basis = f"{best}: {_basis(intervals[best], _seeds(differences[best]), unit)}; {_counted(signs)}"
    return Claim(text, measured, verdict, basis, intervals[best])


def most(text: str, differences: Sequence[Values], measured: str, unit: Unit = PLAIN) -> Claim:
    """Above zero in more than half of the cells of a table.

    It holds if so many are above for certain, Holm's correction made; it does not if half of them are below for
    certain. The interval is that of the mean over the cells.
    """
    signs, cells = certain(differences), len(differences)
    interval = interval_of(np.asarray(differences, float).mean(axis=0))
    verdict: Verdict = "undecided"
    if 2 * signs.count("above") > cells:
        verdict = "holds"
    elif 2 * signs.count("below") >= cells:
        verdict = "does not hold"
    mean = f"mean over the cells {_basis(interval, len(differences[0]), unit)}"
    return Claim(text, measured, verdict, f"{_counted(signs)}; {mean}", interval)


def exact(text: str, measured: str, holds: bool) -> Claim:
    """A claim about numbers that no seed changes: they decide it."""
    return Claim(text, measured, "holds" if holds else "does not hold", "exact")


def unjudged(text: str, measured: str, why: str) -> Claim:
    """A claim that what is known cannot decide."""
    return Claim(text, measured, "undecided", why)


def interval_of(difference: Difference) -> Interval:
    """Student's interval for the mean over seeds. There is none where a seed has no finite value, as where it diverged:
    leaving that seed out would make its method look better."""
    if isinstance(difference, Summary):
        return student(difference.mean, difference.error, difference.seeds - 1)
    return paired(difference) if np.isfinite(difference).all() else unknown()


def _seeds(difference: Difference) -> int:
    return difference.seeds if isinstance(difference, Summary) else len(difference)


def counts(claims: Sequence[Claim]) -> dict[Verdict, int]:
    """How many claims have each verdict."""
    return {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in VERDICTS}


def _verdict(interval: Interval) -> Verdict:
    verdicts: dict[str, Verdict] = {"above": "holds", "below": "does not hold", "undecided": "undecided"}
    return verdicts[interval.sign]


def _basis(interval: Interval, seeds: int, unit: Unit) -> str:
    """The difference and its interval in words."""
    if not np.isfinite(interval.low):
        return "one seed: no interval" if seeds == 1 else "no interval: a seed has no finite value"
    words = [unit.words(value) for value in (interval.estimate, interval.low, interval.high)]
    return f"{words[0]}{unit.name} [{words[1]}, {words[2]}], {seeds} seeds"


def _weakest(
    text: str,
    measured: str,
    verdict: Verdict,
    intervals: Mapping[str, Interval],
    differences: Mapping[str, Difference],
    unit: Unit,
) -> Claim:
    """A claim of several differences shows the one that is least above zero."""
    worst = min(intervals, key=lambda name: _or_lowest(intervals[name].low))
    basis = f"{worst}: {_basis(intervals[worst], _seeds(differences[worst]), unit)}"
    return Claim(text, measured, verdict, basis, intervals[worst])


def _counted(signs: Sequence[str]) -> str:
    return f"for certain above in {signs.count('above')}, below in {signs.count('below')} of {len(signs)} (Holm)"


def _or_lowest(value: float) -> float:
    return value if np.isfinite(value) else -np.inf
