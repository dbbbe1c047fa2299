"""What a method's runs say together of every client's gain over another model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from polyfed.core.files import JsonObject
from polyfed.problem.metrics import Metric
from polyfed.studies.verdicts import (
    Interval,
    RowEvidence,
    auc_evidence,
    clients_in_mean,
    count_verdicts,
    interval_on_rows,
    mean_evidence,
    mean_gain_on_rows,
    mean_over_evidence,
    over_evidence,
    over_seeds,
    row_evidence,
    row_kind,
    unknown,
)
from polyfed.studies.verdicts.rows import FEWEST_ROWS

REFERENCES = ("alone", "global", "constant")
"""What the deployed model is compared with."""
Basis = Literal["splits", "rows", "seeds"]
"""What intervals come from: several splits; the test rows of one split; the same, of models with several seeds."""
Pair = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The scores of the deployed model and of the reference for a client's test rows, and their labels."""


@dataclass(frozen=True)
class Gains:
    """The gains of all measured clients over one reference, positive where they are for the better."""

    clients: tuple[Interval, ...]
    mean: Interval
    """over the clients that count in it"""
    basis: Basis
    mean_clients: int
    """how many these are: all that have a gain, and whose rows tell how sure it is"""
    largest: float
    """The largest gain that there can be. Intervals are shown within it; their errors stay what they are."""

    def as_dict(self) -> JsonObject:
        """As summary.json has it: how many clients are helped, harmed or undecided is after Holm's correction."""
        counts = count_verdicts(self.clients)
        mean = self.mean.within(self.largest)
        ends = (mean.low, mean.high) if mean.known else (None, None)
        return {
            "clients": counts.clients,
            "helped": counts.gains,
            "harmed": counts.loses,
            "undecided": counts.cannot_tell,
            "mean": {"estimate": self.mean.estimate, "low": ends[0], "high": ends[1]},
            "mean_clients": self.mean_clients,
            "basis": self.basis,
        }


def evidence(
    metric: Metric, scores: np.ndarray, reference: np.ndarray, labels: np.ndarray, rows: np.ndarray | None = None
) -> RowEvidence:
    """What the test rows say of a gain; by a short cut where the metric allows one, to the same numbers.

    `rows`: which of the client's rows these are, where that is known.
    """
    higher, kind = metric.higher_is_better, row_kind(metric.name)
    if metric.by_row is not None:
        difference = metric.by_row(scores, labels) - metric.by_row(reference, labels)
        return mean_evidence(difference if higher else -difference, kind, rows)
    if metric.name == "auc" and scores.ndim == 1:
        return auc_evidence(scores, reference, labels)
    return row_evidence(metric, scores, reference, labels, higher_is_better=higher, kind=kind, rows=rows)


class GainsInTheMaking:
    """Takes clients as they come, each with its test rows in all runs of a method, and holds none of these rows."""

    def __init__(self, metric: Metric, clients: int, basis: Basis, outside: np.ndarray) -> None:
        """`outside`: the rows of each client that are not test rows."""
        self.metric, self.outside = metric, outside
        self.basis: Basis = basis
        self.intervals: list[Interval | None] = [None] * clients
        self.evidence: list[list[RowEvidence]] = [[] for _ in range(clients)]

    def add(
        self, place: int, runs: Sequence[Pair], rows: Sequence[np.ndarray] | None = None, rarest: float = np.inf
    ) -> None:
        """A client's scores, those of the reference, and its labels, in each run; of several splits, which `rows`.

        `rarest`: how many of all its rows are of the class that fewest are of. Several splits test the same few again
        and again, so that they say no more of ranks than these rows do.
        """
        if self.basis == "splits":
            tested = [None] * len(runs) if rows is None else rows
            splits = [evidence(self.metric, *pair, own) for pair, own in zip(runs, tested, strict=True)]
            whole = over_evidence(splits, self.outside[place])
            few = row_kind(self.metric.name) == "ranks" and rarest < FEWEST_ROWS
            self.intervals[place] = unknown(whole.estimate) if few else whole
            kept = [replace(split, gain=float("nan")) for split in splits] if few else splits  # the mean leaves it out
            self.evidence[place] = [split.without_rows() for split in kept]
        elif self.basis == "rows":
            self.intervals[place] = interval_on_rows(evidence(self.metric, *runs[0]))
        else:
            ours, theirs, labels = zip(*runs, strict=True)
            kind, higher = row_kind(self.metric.name), self.metric.higher_is_better
            self.intervals[place] = over_seeds(self.metric, ours, theirs, labels[0], higher_is_better=higher, kind=kind)

    def finished(self) -> Gains:
        """The gains, when every client has come."""
        clients = tuple(interval for interval in self.intervals if interval is not None)
        assert len(clients) == len(self.intervals)
        if self.basis == "splits":
            mean = mean_over_evidence(self.evidence, self.outside)
            gains = np.array([[split.gain for split in splits] for splits in self.evidence])
            return Gains(clients, mean, self.basis, int(clients_in_mean(gains.T).sum()), self.metric.largest)
        mean = mean_gain_on_rows(clients)
        counted = [own.known if mean.known else np.isfinite(own.estimate) for own in clients]
        return Gains(clients, mean, self.basis, sum(map(bool, counted)), self.metric.largest)
