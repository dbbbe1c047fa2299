"""Gains on several random splits of the same rows: intervals for the gain that is to be expected."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.studies.verdicts.followed import Followed, follow
from polyfed.studies.verdicts.intervals import Interval, student, unknown
from polyfed.studies.verdicts.rows import FEWEST_ROWS, UNSEEN_ROWS, RowEvidence, widened

Numbers = Sequence[float] | np.ndarray
FEWEST_SPLITS = 3
"""Splits with a gain, below which nothing is said; half of all splits must have one, too."""
ROWS_PER_SPLIT = 0.3
"""The error from rows counts as much as this share of the rows in further splits, at most."""
SHARE_OF_ROWS = 0.75
"""The weight of followed rows' variance, beside that of the splits."""
FEW_ROWS_OF_A_TAIL = 50.0
"""Rows of a client below which a tail is widened further. Every model of a split meets a part of them alone, so that
ten splits of 20 rows do not show the rare, large loss that one of their models has elsewhere."""
FREEDOM_OF_SPLITS = 4.0
"""Degrees of freedom that splits add to those of followed rows, at most: their gains come from the same rows."""


def over_splits(
    gains: Numbers,
    test_rows: float | Numbers,
    train_rows: float | Numbers,
    *,
    errors: Numbers | None = None,
    floors: Numbers | None = None,
    tails: Numbers | None = None,
    followed: Followed | None = None,
    confidence: float = 0.95,
) -> Interval:
    """An interval for one client's expected gain, from its gains on R random holdouts of its n rows.

    Estimand: the gain on fresh rows of the client's law, expected over training sets of this size and over seeds, the
    other clients as they are. Each split has its own draw of test rows, and models trained (with their own seed) on
    rows outside of it; both models of a gain are judged on the same test rows.

    Method: Student's interval with the variance of the mean after Nadeau and Bengio (2003), s^2 (1/R + n2 / n1), for
    n2 test rows and n1 rows outside the test part (training and validation), as splits share rows. With few splits s^2
    is known badly, so that a second estimate of it is pooled with it where `errors` (each split's standard error by
    its rows) are given: with models that do not depend on the split, s^2 would be e^2 n1 / n for the mean e^2 of the
    squared errors. It counts as k further splits: s'^2 = (k e^2 n1 / n + (R - 1) s^2) / (k + R - 1), with
    min(k + R - 1, n - 1) degrees of freedom. With k = R (R - 1) n2 / n1 the variance of the mean would be
    e^2 n2 / n + s^2 / R: what all splits share comes from the rows, and what differs between them is averaged out.
    Few rows know their error badly, too, so that k is at most 0.3 m, with m = 1 / (1/n + (1/n2 - 1/n) / R) the number
    of independent rows that the splits are worth.

    That variance is too large where models change with the split: it takes a row that differs in one split for a row
    that differs in all. This matters where rows are right or wrong. Where such rows are `followed` through the splits,
    the variance is 3/4 of theirs, which is right for many rows and a little small for few, and 1/4 of the splits'. The
    degrees of freedom are then the rows that carry it, and min(R - 1, 4) for the splits. The floor is theirs, too.
    Where few rows differ (ten, and no more than a tenth of all), the side that faces zero is that of McNemar's test:
    the normal quantile, with the followed rows' variance alone. If the models were equally often right, each of these
    rows would speak for either of them with chance 1/2, and their variance would be known, not estimated. The other
    side stays Student's: rows that all speak for one model say little of how many more there may be.

    Few rows may not have shown what rows can do. `floors` and `tails` of the splits (see `RowEvidence`) say what that
    may be, and become smaller by n2 / m: the error is at least the smallest floor, and the largest tail, times
    sqrt(1 + 10 / m + (50 / n - 1)^2), is added to it (in squares), the last term for n < 50 alone. Gains that are all
    the same, without `floors`, leave -+2.8 / m, the rule of three for a share.

    A gain that is not finite (AUC, where a test part has one class) is left out. With fewer than three left, or less
    than half of the splits, or fewer than three rows in all, nothing is known: the range is everything.

    Assumptions: rows are independent draws from the client's law; splits are drawn at random, and stratified at most
    by label; no test row was used to choose anything. Without `errors`, log-loss and metrics of few positives are
    covered less often than stated: see docs/verdicts.md for measured coverage.
    """
    values = np.asarray(gains, np.float64)
    defined = np.isfinite(values)
    splits, estimate = int(defined.sum()), float(np.mean(values[defined])) if defined.any() else float("nan")
    test, outside = _mean_rows(test_rows, values), _mean_rows(train_rows, values)
    rows = test + outside
    if splits < max(FEWEST_SPLITS, len(values) / 2) or min(test, outside) <= 0 or rows < FEWEST_ROWS:
        return unknown(estimate, confidence)
    independent = 1 / (1 / rows + (1 / test - 1 / rows) / splits)
    variance, freedom = float(np.var(values[defined], ddof=1)), splits - 1.0
    from_rows = _finite(errors, defined)
    if len(from_rows):
        weight = min(splits * (splits - 1) * test / outside, ROWS_PER_SPLIT * independent)
        expected = float(np.mean(from_rows**2)) * outside / rows
        variance = (weight * expected + freedom * variance) / (weight + freedom)
        freedom += weight
    scale = test / independent
    floor = scale * float(np.min(_finite(floors, defined), initial=np.inf))
    if not np.isfinite(floor):
        floor = np.sqrt(UNSEEN_ROWS) / independent if variance == 0 else 0.0
    variance *= 1 / splits + test / outside
    if followed is not None:
        variance = SHARE_OF_ROWS * followed.variance + (1 - SHARE_OF_ROWS) * variance
        freedom = followed.carrying_rows + min(splits - 1, FREEDOM_OF_SPLITS)
        floor = followed.floor
    tail = scale * float(np.max(_finite(tails, defined), initial=0.0))
    tail = np.hypot(widened(tail, independent), tail * max(0.0, FEW_ROWS_OF_A_TAIL / rows - 1))
    error = float(np.hypot(max(np.sqrt(variance), floor), tail))
    near = max(float(np.sqrt(followed.variance)), followed.floor) if followed is not None and followed.few else None
    return student(estimate, error, min(freedom, rows - 1), confidence, error_to_zero=near)


def over_evidence(evidence: Sequence[RowEvidence], train_rows: float | Numbers, confidence: float = 0.95) -> Interval:
    """`over_splits`, from the evidence of each split's test rows.

    Where rows of one class carry the metric (AUC), these are counted: few positives leave few degrees of freedom.
    Rows that are right or wrong are followed through the splits, where every split says which rows it tested.
    """
    test = np.array([split.test_rows for split in evidence], np.float64)
    counted = np.array([split.counted_rows for split in evidence], np.float64)
    outside = np.broadcast_to(np.asarray(train_rows, np.float64), test.shape)
    share = np.divide(counted, test, out=np.ones_like(test), where=test > 0)
    return over_splits(
        [split.gain for split in evidence],
        counted,
        outside * share,
        errors=[split.error for split in evidence],
        floors=[split.floor for split in evidence],
        tails=[split.tail for split in evidence],
        followed=follow(evidence, float(np.mean(test + outside))) if len(test) else None,
        confidence=confidence,
    )


def mean_gain(
    gains: np.ndarray,
    test_rows: Numbers,
    train_rows: Numbers,
    *,
    errors: np.ndarray | None = None,
    unseen: Numbers | None = None,
    confidence: float = 0.95,
) -> Interval:
    """An interval for the mean over clients of their expected gains, from gains (splits, clients).

    Estimand: the plain mean, over these very clients, of the gains that `over_splits` is about; clients that could have
    been there are no part of it. Method: that of `over_splits`, on the mean over clients of each split, as the splits
    of all clients are redrawn together. `errors` (splits, clients) are added in squares, as clients have different
    rows, and so is `unseen`, what each client's few rows may not have shown. `test_rows` and `train_rows` have a number
    for each client. A client without a gain on more than half of the splits is left out; where it has none on single
    splits, it stands there with its mean over the others.
    """
    values = np.asarray(gains, np.float64)
    defined = np.isfinite(values)
    kept = clients_in_mean(values)
    if not kept.any():
        return unknown(confidence=confidence)
    values, defined = values[:, kept], defined[:, kept]
    own = np.sum(values, axis=0, where=defined) / defined.sum(axis=0)
    values = np.where(defined, values, own)
    from_rows = None
    if errors is not None:
        squares = np.asarray(errors, np.float64)[:, kept] ** 2
        known = np.isfinite(squares)
        mean = np.sum(squares, axis=0, where=known) / np.maximum(known.sum(axis=0), 1)
        from_rows = np.sqrt(np.sum(np.where(known, squares, mean), axis=1)) / values.shape[1]
    test, outside = np.asarray(test_rows, np.float64)[kept].sum(), np.asarray(train_rows, np.float64)[kept].sum()
    tails = None
    if unseen is not None:
        total = float(np.sqrt(np.nansum(np.asarray(unseen, np.float64)[kept] ** 2)))
        tails = np.full(len(values), total / values.shape[1])
    return over_splits(values.mean(axis=1), test, outside, errors=from_rows, tails=tails, confidence=confidence)


def clients_in_mean(gains: np.ndarray) -> np.ndarray:
    """Which clients count in the mean of gains (splits, clients): those with a gain on half of the splits."""
    return np.isfinite(gains).sum(axis=0) >= max(1, len(gains) / 2)


def mean_over_evidence(
    clients: Sequence[Sequence[RowEvidence]], train_rows: Numbers, confidence: float = 0.95
) -> Interval:
    """`mean_gain`, from each client's evidence of each split, and each client's rows outside the test part."""
    by_client = [[(e.gain, e.error, e.floor, e.tail, e.test_rows) for e in splits] for splits in clients]
    gains, errors, floors, tails, tests = np.moveaxis(np.array(by_client, np.float64), 2, 0)
    floor = np.min(floors, axis=1, where=np.isfinite(floors), initial=np.inf)
    tail = np.max(tails, axis=1, where=np.isfinite(tails), initial=0.0)
    unseen = np.hypot(np.where(np.isfinite(floor), floor, 0.0), tail)
    return mean_gain(gains.T, tests.mean(axis=1), train_rows, errors=errors.T, unseen=unseen, confidence=confidence)


def mean_gain_on_rows(intervals: Sequence[Interval], confidence: float = 0.95) -> Interval:
    """One split: an interval for the mean over clients of the gains of these very models, from the clients' own.

    The error is sqrt(sum of the squared errors) / K over the K clients that have one, as their rows are independent;
    the degrees of freedom are Welch and Satterthwaite's. Where less than half of the clients with a gain have an error,
    the mean is that of all gains, and nothing is known of its error.
    """
    known, there = [own for own in intervals if own.known], [own for own in intervals if np.isfinite(own.estimate)]
    if not known or 2 * len(known) < len(there):
        return unknown(float(np.mean([own.estimate for own in there])) if there else float("nan"), confidence)
    squares = np.array([interval.error**2 for interval in known])
    freedoms = np.array([interval.freedom for interval in known])
    total = float(squares.sum())
    freedom = total**2 / float(np.sum(squares**2 / freedoms)) if total > 0 else 1.0
    estimate = float(np.mean([interval.estimate for interval in known]))
    return student(estimate, float(np.sqrt(total)) / len(known), freedom, confidence)


def _mean_rows(rows: float | Numbers, gains: np.ndarray) -> float:
    """The rows of a split, on average."""
    counts = np.asarray(rows, np.float64)
    if counts.ndim and len(counts) != len(gains):
        raise PolyfedError(f"splits: found {len(counts)} numbers of rows for {len(gains)} gains, expected as many")
    return float(np.mean(counts))


def _finite(numbers: Numbers | None, defined: np.ndarray) -> np.ndarray:
    """Those of the splits that have a gain, where they are known."""
    if numbers is None:
        return np.zeros(0)
    values = np.asarray(numbers, np.float64)
    if values.shape != defined.shape:
        raise PolyfedError(f"splits: found {len(values)} errors for {len(defined)} gains, expected as many")
    return values[defined & np.isfinite(values)]
