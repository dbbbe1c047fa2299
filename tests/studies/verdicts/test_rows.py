"""What test rows say, against SciPy's t-test, DeLong's formula written as loops, and exact shares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from polyfed.core.errors import PolyfedError
from polyfed.problem.metrics import METRICS
from polyfed.studies.verdicts import (
    auc_evidence,
    detectable,
    interval_on_rows,
    mean_evidence,
    on_rows,
    over_seeds,
    row_evidence,
    row_kind,
)


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean((scores > 0.5) == labels))


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    positives, negatives = scores[labels == 1], scores[labels == 0]
    if not len(positives) or not len(negatives):
        return float("nan")
    lower = np.searchsorted(np.sort(negatives), positives) / len(negatives)  # no score comes twice in these tests
    return float(np.mean(lower))


def scored(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, and two models' probabilities, the first better than the second."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(rows) < 0.4).astype(int)
    signal = rng.standard_normal(rows) + 1.5 * labels
    own, other = (1 / (1 + np.exp(-signal - noise * rng.standard_normal(rows))) for noise in (0.2, 1.0))
    return own, other, labels


def test_the_error_of_a_mean_over_rows_is_that_of_the_paired_t_test() -> None:
    own, other, labels = scored(40)
    evidence = row_evidence(lambda s, y: float(np.mean((s - y) ** 2)), own, other, labels, higher_is_better=False)
    test = stats.ttest_rel((other - labels) ** 2, (own - labels) ** 2)
    assert evidence.gain == pytest.approx(np.mean((other - labels) ** 2) - np.mean((own - labels) ** 2), abs=1e-14)
    assert evidence.gain / evidence.error == pytest.approx(test.statistic, rel=1e-10)


def test_the_error_of_auc_is_delongs_but_for_one_row_of_each_class() -> None:
    own, other, labels = scored(40)
    above = [
        [float(s[i] > s[j]) for s in (own, other)]
        for i in np.flatnonzero(labels == 1)
        for j in np.flatnonzero(labels == 0)
    ]
    p, q = int(labels.sum()), int((1 - labels).sum())
    pairs = np.diff(np.array(above), axis=1).reshape(p, q) * -1
    delong = np.var(pairs.mean(axis=1), ddof=1) / (p - 1) + np.var(pairs.mean(axis=0), ddof=1) / (q - 1)
    evidence = row_evidence(auc, own, other, labels, kind="ranks")
    assert evidence.gain == pytest.approx(pairs.mean(), abs=1e-12)
    assert evidence.error == pytest.approx(np.sqrt(delong * 39 / 40), rel=1e-10)
    assert evidence.counted_rows == min(p, q)


def test_groups_of_rows_say_the_same_as_single_rows() -> None:
    own, other, labels = scored(3000)
    evidence = row_evidence(auc, own, other, labels, kind="ranks")
    rng = np.random.default_rng(1)
    draws = [rng.integers(0, 3000, 3000) for _ in range(300)]
    bootstrap = np.std([auc(own[rows], labels[rows]) - auc(other[rows], labels[rows]) for rows in draws])
    assert evidence.error == pytest.approx(bootstrap, rel=0.25)


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_a_gain_is_positive_for_the_better(higher_is_better: bool) -> None:
    own, other, labels = scored(400)
    metric = auc if higher_is_better else (lambda s, y: float(-np.mean(np.log(np.where(y == 1, s, 1 - s)))))
    interval = on_rows(metric, own, other, labels, higher_is_better=higher_is_better)
    assert interval.sign == "above"
    back = on_rows(metric, other, own, labels, higher_is_better=higher_is_better)
    assert (back.low, back.high) == pytest.approx((-interval.high, -interval.low))


def test_rows_without_a_difference_leave_the_rule_of_three() -> None:
    labels = np.arange(20) % 2
    interval = on_rows(accuracy, labels * 1.0, labels * 1.0, labels, kind="steps")
    assert interval.estimate == 0
    assert interval.high == pytest.approx(3 / 20, rel=0.05)
    assert detectable(interval) == interval.high == -interval.low


def test_one_sided_differences_decide_from_six_on_as_in_the_sign_test() -> None:
    labels = np.ones(200, int)
    signs = []
    for better in (5, 6):
        other = np.where(np.arange(200) < better, 0.0, 1.0)
        interval = on_rows(accuracy, labels * 1.0, other, labels)
        signs.append((interval.sign, stats.binomtest(better, better).pvalue < 0.05))
    assert signs == [("undecided", False), ("above", True)]


def test_one_positive_row_says_nothing_of_auc() -> None:
    labels = np.array([1, 0, 0, 0, 0])
    interval = on_rows(
        auc, np.array([0.9, 0.1, 0.2, 0.3, 0.4]), np.array([0.1, 0.2, 0.3, 0.4, 0.5]), labels, kind="ranks"
    )
    assert (interval.estimate, interval.known, interval.p_value) == (1.0, False, 1.0)
    assert not on_rows(auc, labels * 1.0, labels * 1.0, np.zeros(5, int), kind="ranks").known


def test_scores_and_labels_are_of_the_same_rows() -> None:
    with pytest.raises(PolyfedError, match="found 3 and 3 scores for 4 labels"):
        on_rows(accuracy, np.zeros(3), np.zeros(3), np.zeros(4))


def test_equal_seeds_add_nothing_and_unequal_ones_their_spread() -> None:
    own, other, labels = scored(60)
    one = on_rows(auc, own, other, labels, kind="ranks")
    same = over_seeds(auc, [own] * 4, [other] * 4, labels, kind="ranks")
    assert (same.low, same.high) == pytest.approx((one.low, one.high))
    more = [scored(60, seed)[0] * 0.2 + own * 0.8 for seed in range(4)]
    gains = [auc(s, labels) - auc(other, labels) for s in more]
    interval = over_seeds(auc, more, [other] * 4, labels, kind="ranks")
    rows = interval_on_rows(
        row_evidence(
            lambda s, y: float(np.mean([auc(c, y) for c in s.T])), np.array(more).T, np.array([other] * 4).T, labels
        )
    )
    assert interval.estimate == pytest.approx(np.mean(gains))
    assert interval.error > np.std(gains, ddof=1) / 2
    assert interval.error < np.hypot(rows.error, np.std(gains, ddof=1) / 2) + 1e-12


@pytest.mark.parametrize(
    ("name", "kind"),
    [("accuracy", "steps"), ("recall_at_5", "steps"), ("auc", "ranks"), ("log_loss", "values"), ("own", "values")],
)
def test_what_a_row_does_to_a_metric(name: str, kind: str) -> None:
    assert row_kind(name) == kind


@pytest.mark.parametrize("chances", [(0.1, 0.1), (0.2, 0.05), (0.02, 0.0), (0.3, 0.3)])
@pytest.mark.parametrize("rows", [12, 60])
def test_accuracy_is_covered_as_stated(rows: int, chances: tuple[float, float]) -> None:
    """Rows on which only the first model is right, only the second, or neither alone, have known chances."""
    rng = np.random.default_rng(3)
    labels, times = np.ones(rows, int), 400
    covered = 0
    for _ in range(times):
        draw = rng.random(rows)
        own, other = draw < chances[0], (draw >= chances[0]) & (draw < sum(chances))
        rest = draw >= sum(chances)
        interval = on_rows(accuracy, (own | rest) * 1.0, (other | rest) * 1.0, labels, kind="steps")
        covered += interval.low <= chances[0] - chances[1] <= interval.high
    assert covered / times > 0.91


def test_the_quick_ways_are_the_jackknife() -> None:
    own, other, labels = scored(50)
    own, other = own.round(1), other.round(1)  # with ties

    def with_ties(scores: np.ndarray, labels: np.ndarray) -> float:
        pairs = scores[labels == 1][:, None] - scores[labels == 0]
        return float(np.mean((pairs > 0) + (pairs == 0) / 2))

    slow = row_evidence(with_ties, own, other, labels, kind="ranks")
    quick = auc_evidence(own, other, labels)
    assert (quick.gain, quick.error) == pytest.approx((slow.gain, slow.error), rel=1e-10)
    assert (quick.floor, quick.tail, quick.counted_rows) == (0, 0, slow.counted_rows)
    right = ((own > 0.5) == labels) * 1.0 - ((other > 0.5) == labels)
    slow, quick = row_evidence(accuracy, own, other, labels), mean_evidence(right)
    assert (quick.gain, quick.error, quick.tail) == pytest.approx((slow.gain, slow.error, slow.tail), rel=1e-10)
    assert not interval_on_rows(auc_evidence(own[:3], other[:3], np.array([1, 0, 0]))).known
    for nothing in (auc_evidence(own, other, np.zeros(50)), row_evidence(auc, own, other, np.zeros(50), kind="ranks")):
        assert np.isnan(nothing.gain)
        assert (nothing.test_rows, nothing.counted_rows) == (50, 0)


def test_test_rows_of_one_class_leave_average_precision_without_an_interval() -> None:
    """Where all rows are positive it is 1 for every model; no row of a smaller class says how sure that is."""
    own, other, _ = scored(12)
    metric = METRICS["average_precision"]
    evidence = row_evidence(metric, own, other, np.ones(12, int), kind=row_kind(metric.name))
    assert (evidence.gain, evidence.counted_rows) == (0.0, 0)
    assert not interval_on_rows(evidence).known
