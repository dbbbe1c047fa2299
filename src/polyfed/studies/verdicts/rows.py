"""What the test rows of one split say of a gain: how far it may be off because the rows are few."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy import stats

from polyfed.core.errors import PolyfedError
from polyfed.studies.verdicts.intervals import Interval, student, unknown
from polyfed.studies.verdicts.words import oriented

Function = Callable[[np.ndarray, np.ndarray], float]
"""(scores, labels) of some rows -> number; NaN where it is undefined."""
RowKind = Literal["steps", "ranks", "values"]
"""What a row does to a metric: it is right or wrong (accuracy); it stands above or below others (AUC); or it has a
value of its own, however large (log-loss)."""
GROUPS = 100
"""Into how many groups more rows than that are put, each left out once."""
FEWEST_ROWS = 3
"""Rows, of ranks those of the smaller class, below which nothing is said."""
UNSEEN_ROWS = 2.0
"""Rows that count as not yet seen. With two, n rows on which two models never differ leave -+2.8 / n, the rule of three
for a share."""

ROWS_OF_A_TAIL = 10.0
"""Rows up to which the most extreme one says little of a tail: with n, two such rows count as 2 (1 + 10 / n)."""


@dataclass(frozen=True)
class RowEvidence:
    """The gain on the test rows of one split, and what its rows say of its error."""

    gain: float
    error: float
    """The standard error of the gain of these very models on fresh rows; NaN where a class has too few rows."""
    floor: float
    """The least that the rows not yet seen may do."""
    tail: float
    """What the rows not yet seen may do beside the error."""
    test_rows: int
    counted_rows: int
    """The rows that carry the metric: of ranks those of the smaller class, else all."""
    kind: RowKind = "values"
    values: np.ndarray | None = field(default=None, compare=False, repr=False)
    """What each test row says of the gain, which is their mean; None where rows were left out in groups."""
    rows: np.ndarray | None = field(default=None, compare=False, repr=False)
    """Which of the client's rows these are; None where that is not known."""

    def without_rows(self) -> RowEvidence:
        """The same, without what takes memory for each row."""
        return replace(self, values=None, rows=None)


def row_kind(metric: str) -> RowKind:
    """What a row does to the metric of this name; "values", the most careful, for one that is not known."""
    if metric in ("auc", "average_precision"):
        return "ranks"
    shares = ("accuracy", "balanced_accuracy", "f1", "micro_f1", "macro_f1", "recall_at", "precision_at")
    return "steps" if metric.startswith(shares) else "values"


def row_evidence(
    metric: Function,
    scores: np.ndarray,
    reference_scores: np.ndarray,
    labels: np.ndarray,
    *,
    higher_is_better: bool = True,
    kind: RowKind = "values",
    rows: np.ndarray | None = None,
) -> RowEvidence:
    """The gain of `scores` over `reference_scores` by a metric, paired on the same rows, and the rows' jackknife.

    With g the gain on all n rows and g_i that without row i, row i has the value v_i = n g - (n - 1) g_i, and the
    error is sd(v) / sqrt(n). For a mean over rows (accuracy, log-loss, squared error) v_i is the row's own difference
    and the error that of the paired t-test. For AUC, with p positives and q negatives, it is that of DeLong et al.
    (1988) with p - 1 and q - 1 in place of p and q. More than `GROUPS` rows are left out in groups, drawn with a fixed
    seed. `rows` says which of the client's rows these are, by numbers that mean the same in all splits.
    """
    scores, reference_scores, labels = np.asarray(scores), np.asarray(reference_scores), np.asarray(labels)
    if not len(scores) == len(reference_scores) == len(labels):
        counts = f"{len(scores)} and {len(reference_scores)} scores for {len(labels)} labels"
        raise PolyfedError(f"test rows: found {counts}, expected as many of each")

    def gain(some: np.ndarray) -> float:
        difference = float(metric(scores[some], labels[some])) - float(metric(reference_scores[some], labels[some]))
        return oriented(difference, higher_is_better)

    return _numbered(_jackknife(gain, labels, kind), rows)


def on_rows(
    metric: Function,
    scores: np.ndarray,
    reference_scores: np.ndarray,
    labels: np.ndarray,
    *,
    higher_is_better: bool = True,
    kind: RowKind = "values",
    confidence: float = 0.95,
) -> Interval:
    """One split: an interval for the gain of these very two models on fresh rows of this client.

    Estimand: the gain on fresh rows from the client's law, of the two models at hand; how another training set or seed
    would have done is no part of it. Method: Student's interval with the jackknife's error (see `row_evidence`), and
    with `UNSEEN_ROWS` for what few rows have not shown: where each row is right or wrong, the error is at least that
    of two rows; where rows have values, two more rows like the most extreme one are allowed for, and a
    few more where rows are few (`ROWS_OF_A_TAIL`). Assumptions: the rows
    are independent draws from the client's law, and were used neither to train nor to choose.
    """
    evidence = row_evidence(metric, scores, reference_scores, labels, higher_is_better=higher_is_better, kind=kind)
    return interval_on_rows(evidence, confidence)


def interval_on_rows(evidence: RowEvidence, confidence: float = 0.95) -> Interval:
    """The interval of `on_rows`, from evidence that is at hand."""
    if not np.isfinite(evidence.gain) or not np.isfinite(evidence.error) or evidence.counted_rows < FEWEST_ROWS:
        return unknown(evidence.gain, confidence)
    error = np.hypot(max(evidence.error, evidence.floor), widened(evidence.tail, evidence.counted_rows))
    freedom = min(evidence.counted_rows, GROUPS) - 1
    return student(evidence.gain, float(error), freedom, confidence)


def widened(tail: float, rows: float) -> float:
    """A tail, wider the fewer rows it was estimated from."""
    return tail * float(np.sqrt(1 + ROWS_OF_A_TAIL / rows))


def over_seeds(
    metric: Function,
    scores: Sequence[np.ndarray],
    reference_scores: Sequence[np.ndarray],
    labels: np.ndarray,
    *,
    higher_is_better: bool = True,
    kind: RowKind = "values",
    confidence: float = 0.95,
) -> Interval:
    """One split, several seeds: an interval for the gain expected over seeds, for this training set, on fresh rows.

    The k-th scores are paired with the k-th reference scores, all on the same rows. The error is that of the rows for
    the gain averaged over the S seeds (as in `on_rows`), and beside it sd over seeds / sqrt(S). As seeds share their
    rows, more of them do not make the first part smaller. Degrees of freedom: Welch and Satterthwaite's.
    """
    pairs = list(zip(scores, reference_scores, strict=True))
    labels = np.asarray(labels)

    def gains(rows: np.ndarray) -> list[float]:
        differences = (
            metric(np.asarray(own)[rows], labels[rows]) - metric(np.asarray(other)[rows], labels[rows])
            for own, other in pairs
        )
        return [oriented(float(difference), higher_is_better) for difference in differences]

    evidence = _jackknife(lambda rows: float(np.mean(gains(rows))), labels, kind)
    rows = interval_on_rows(evidence, confidence)
    if len(pairs) < 2 or not rows.known:
        return rows
    seeds = float(np.std(gains(np.arange(len(labels))), ddof=1)) / np.sqrt(len(pairs))
    error = np.hypot(rows.error, seeds)
    freedom = error**4 / (rows.error**4 / rows.freedom + seeds**4 / (len(pairs) - 1))
    return student(evidence.gain, float(error), float(freedom), confidence)


def mean_evidence(row_gains: np.ndarray, kind: RowKind = "values", rows: np.ndarray | None = None) -> RowEvidence:
    """`row_evidence` for a metric that is a mean over rows, from each row's gain: the same without a jackknife."""
    gains = np.asarray(row_gains, np.float64)
    gain = float(np.mean(gains)) if len(gains) else float("nan")
    return _numbered(_evidence(gain, gains, len(gains), len(gains), kind), rows)


def auc_evidence(scores: np.ndarray, reference_scores: np.ndarray, labels: np.ndarray) -> RowEvidence:
    """`row_evidence` for the AUC of two classes, without leaving out one row after another.

    Without positive i of p, with its share V_i of negatives that are below it, the AUC A is (p A - V_i) / (p - 1); so
    the row's value is A + (n - 1) (V_i - A) / (p - 1), and likewise for negatives.
    """
    labels = np.asarray(labels) == 1
    rows, positives = len(labels), int(labels.sum())
    smaller = min(positives, rows - positives)
    if smaller < 1:
        return _evidence(float("nan"), np.zeros(0), rows, smaller, "ranks")
    shares = _shares_below(scores, labels) - _shares_below(reference_scores, labels)
    gain = float(np.mean(shares[labels]))
    if smaller < 2:
        return _evidence(gain, np.zeros(0), rows, smaller, "ranks")
    others = np.where(labels, positives, rows - positives) - 1
    return _evidence(gain, gain + (rows - 1) * (shares - gain) / others, rows, smaller, "ranks")


def _shares_below(scores: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Of each positive, the share of negatives with a lower score; of each negative, that of positives with a higher.

    Equal scores count half. With rank r among all rows and s within its class, r - s rows of the other class are below.
    """
    scores = np.asarray(scores, np.float64)
    below = stats.rankdata(scores)
    below[positive] -= stats.rankdata(scores[positive])
    below[~positive] -= stats.rankdata(scores[~positive])
    positives = int(positive.sum())
    return np.where(positive, below / (len(scores) - positives), 1 - below / positives)


def _jackknife(gain: Callable[[np.ndarray], float], labels: np.ndarray, kind: RowKind) -> RowEvidence:
    """The gain on all rows, and the values of rows, or groups of rows, from the gains without them."""
    rows = len(labels)
    counted = rows
    if kind == "ranks" and rows and labels.ndim == 1:
        classes = np.unique(labels, return_counts=True)[1]
        counted = int(classes.min()) if len(classes) > 1 else 0
    everything = np.arange(rows)
    whole = gain(everything) if rows else float("nan")
    groups = min(rows, GROUPS)
    if not np.isfinite(whole):
        return _evidence(whole, np.zeros(0), rows, counted, kind)
    member = everything if rows <= GROUPS else np.random.default_rng(0).permutation(rows) % groups
    left_out = [everything[member != group] for group in range(groups)] if rows > 1 else []
    values = np.array([groups * whole - (groups - 1) * gain(rest) for rest in left_out])
    return _evidence(whole, values, rows, counted, kind)


def _evidence(gain: float, values: np.ndarray, rows: int, counted: int, kind: RowKind) -> RowEvidence:
    """The evidence of a gain, from the values of its rows or of groups of them; with too few, it has no error."""
    if counted < 1 or len(values) < 2 or not np.isfinite(values).all():
        return RowEvidence(gain, float("nan"), float("nan"), float("nan"), rows, counted, kind)
    error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
    most = float(np.max(np.abs(values - values.mean()))) / len(values)
    most = most if most > 1e-12 * max(1, abs(gain)) else 0.0  # rounding
    one = 1 / counted  # what a row does to a share
    floor = max(most, one) if kind == "steps" else one if most == 0 else 0.0
    unseen = float(np.sqrt(UNSEEN_ROWS))
    tail = unseen * most if kind == "values" else 0.0
    by_row = values if len(values) == rows else None
    return RowEvidence(gain, error, unseen * floor, tail, rows, counted, kind, by_row)


def _numbered(evidence: RowEvidence, rows: np.ndarray | None) -> RowEvidence:
    """The evidence, with the numbers of its rows where they are given and each has a value."""
    if rows is None or evidence.values is None:
        return evidence
    if len(rows) != evidence.test_rows:
        raise PolyfedError(f"test rows: found {len(rows)} numbers for {evidence.test_rows} rows, expected as many")
    return replace(evidence, rows=np.asarray(rows))
