"""What a method is worth to its clients beside a yardstick, as the runs have judged it: gains, intervals, verdicts.

A run directory holds the verdicts of all runs that were made together. Runs of one method that were made apart each
have their own: then a gain is their mean, its interval reaches as far as the widest of them, and a verdict counts only
where all of them give it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from polyfed.report.numbers import finite
from polyfed.studies.verdicts.intervals import Interval
from polyfed.studies.verdicts.words import holm

GAINS, LOSES, UNDECIDED = "gains", "loses", "cannot tell"


@dataclass(frozen=True)
class ClientGain:
    """One client: how much better it is served (below zero: worse), and what its rows can tell of that."""

    interval: Interval | None
    p: float | None
    verdict: str | None
    detectable: float | None
    """the smallest difference that its rows could have shown; infinite without an interval, None without a verdict"""

    @property
    def gain(self) -> float | None:
        return None if self.interval is None else self.interval.estimate


@dataclass(frozen=True)
class Gains:
    """All clients in the order of the method's, the mean over them, and how the intervals were made."""

    clients: tuple[ClientGain, ...]
    mean: Interval | None
    basis: str
    apart: int
    """how many times runs of this method were judged on their own"""
    mean_clients: int | None = None
    """how many clients the mean is over, where the runs say so"""

    def count(self, verdict: str) -> int:
        return sum(client.verdict == verdict for client in self.clients)

    @property
    def judged(self) -> int:
        return sum(client.verdict is not None for client in self.clients)

    @property
    def detectable(self) -> float | None:
        """The difference that the median client's rows could have shown: infinite where most could show nothing."""
        known = [client.detectable for client in self.clients if client.detectable is not None]
        return median(known) if known else None

    def blind(self, largest: float) -> int:
        """How many clients' rows could not have shown even the largest difference there can be."""
        return sum(client.detectable is not None and client.detectable >= largest for client in self.clients)

    @property
    def mean_over(self) -> str:
        """Which clients the mean is over, in words; empty where it is over all, or not known."""
        count = self.mean_clients
        return "" if count is None or count >= len(self.clients) else f"{count:,} of {len(self.clients):,} clients"


def merged_client(rows: Sequence[Mapping[str, str | float]], prefix: str, largest: float) -> ClientGain:
    """A client's rows of `clients.csv`, one of each time that it was judged. `prefix`: of the yardstick's columns.

    `largest`: the largest difference that there can be; an interval ends there.
    """
    judged = [(row.get(f"{prefix}gain"), row.get(f"{prefix}gain_low"), row.get(f"{prefix}gain_high")) for row in rows]
    interval = merged([_interval(*figures) for figures in judged])
    verdicts = {str(row.get(f"{prefix}verdict") or "") for row in rows}
    verdict = verdicts.pop() if len(verdicts) == 1 else UNDECIDED
    if len(rows) > 1 and (interval is None or interval.sign == "undecided") and verdict:
        verdict = UNDECIDED
    stored = _largest(row.get(f"{prefix}detectable") for row in rows)
    return ClientGain(
        interval and interval.within(largest),
        _largest(row.get(f"{prefix}gain_p") for row in rows),
        verdict or None,
        _detectable(interval, stored) if verdict else None,
    )


def _detectable(interval: Interval | None, stored: float | None) -> float:
    """What is stored or, in older runs, half the width of the interval. Without an interval nothing can be seen."""
    if interval is None or not interval.known:
        return math.inf
    return (interval.high - interval.low) / 2 if stored is None else stored


def for_certain(clients: Sequence[ClientGain], level: float = 0.05) -> tuple[ClientGain, ...]:
    """The same clients with verdicts that hold for all of them together: after Holm's correction over their p-values.

    A client's own interval answers for itself alone, and whoever counts clients would count chance among them.
    """
    tested = [place for place, client in enumerate(clients) if client.interval is not None and client.interval.known]
    chances = [1.0 if (p := clients[place].p) is None else p for place in tested]
    certain = {place for place, p in zip(tested, holm(chances).tolist(), strict=True) if p < level}
    return tuple(
        client if client.verdict is None or place in certain else replace(client, verdict=UNDECIDED)
        for place, client in enumerate(clients)
    )


def merged(intervals: Sequence[Interval | None]) -> Interval | None:
    """The mean of the estimates with the widest reach to either side; None where one is missing."""
    there = [interval for interval in intervals if interval is not None]
    if not there or len(there) < len(intervals):
        return None
    if len(there) == 1:
        return there[0]
    estimate = sum(one.estimate for one in there) / len(there)
    below, above = max(one.estimate - one.low for one in there), max(one.high - one.estimate for one in there)
    return Interval(estimate, estimate - below, estimate + above)


def stored_interval(stored: object) -> Interval | None:
    """An interval of `summary.json`; None where there is none."""
    if not isinstance(stored, dict):
        return None
    return _interval(stored.get("estimate"), stored.get("low"), stored.get("high"))


def _interval(estimate: object, low: object, high: object) -> Interval | None:
    """Ends that are missing are infinitely far: an estimate of which nothing is known."""
    value, below, above = finite(estimate), finite(low), finite(high)
    if value is None:
        return None
    return Interval(value, -math.inf if below is None else below, math.inf if above is None else above)


def _largest(values: Iterable[object]) -> float | None:
    return max((value for value in map(finite, values) if value is not None), default=None)
