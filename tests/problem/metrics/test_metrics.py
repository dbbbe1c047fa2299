"""Every metric against scikit-learn's, on random, tied, degenerate and tiny inputs."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as theirs
from sklearn.calibration import calibration_curve

import polyfed as pf
from polyfed.problem.metrics import METRICS

TOLERANCE = 1e-12
ROWS = (1, 2, 3, 7, 40, 300)


def binary(rows: int, kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels of two classes: spread, tied, constant or certain."""
    draws = np.random.default_rng([rows, seed])
    labels = draws.integers(0, 2, rows)
    scores = draws.random(rows)
    if kind == "tied":
        scores = draws.integers(0, 5, rows) / 4  # 0, 0.5 and 1 among them
    elif kind == "constant":
        scores = np.full(rows, 0.3)
    elif kind == "one class":
        labels[:] = seed % 2
    return scores, labels


def many(rows: int, kind: str, seed: int, classes: int = 5) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng([rows, seed])
    scores = draws.dirichlet(np.ones(classes), rows)
    labels = draws.integers(0, classes, rows)
    if kind == "tied":
        scores = draws.integers(1, 3, (rows, classes)).astype(float)
        scores /= scores.sum(axis=1, keepdims=True)
    elif kind == "constant":
        scores = np.tile(scores[0], (rows, 1))
    elif kind == "one class":
        labels[:] = 3
    elif kind == "absent":
        labels = labels % 3
    return scores, labels


def quietly(function, *args, **options):
    """scikit-learn warns where a number is undefined."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **options)


f1_score: Any = theirs.f1_score  # its type forgets that zero_division may be a number


def same(ours: float, expected: float) -> None:
    assert ours == pytest.approx(expected, abs=TOLERANCE, rel=TOLERANCE, nan_ok=True)


BINARY = {
    "accuracy": lambda s, y: theirs.accuracy_score(y, s > 0.5),
    "balanced_accuracy": lambda s, y: theirs.balanced_accuracy_score(y, s > 0.5),
    "auc": lambda s, y: theirs.roc_auc_score(y, s),
    "average_precision": lambda s, y: theirs.average_precision_score(y, s) if y.any() else np.nan,
    "f1": lambda s, y: f1_score(y, s > 0.5, zero_division=np.nan),
    "log_loss": lambda s, y: theirs.log_loss(y, s, labels=[0, 1]),
    "brier": lambda s, y: theirs.brier_score_loss(y, s, labels=[0, 1]),
}
MANY = {
    "accuracy": lambda s, y: theirs.accuracy_score(y, s.argmax(1)),
    "balanced_accuracy": lambda s, y: theirs.balanced_accuracy_score(y, s.argmax(1)),
    "f1": lambda s, y: theirs.f1_score(y, s.argmax(1), average="macro"),
    "log_loss": lambda s, y: theirs.log_loss(y, s, labels=range(s.shape[1])),
    "brier": lambda s, y: theirs.brier_score_loss(y, s, labels=range(s.shape[1])),
    "auc": lambda s, y: np.mean(
        [theirs.roc_auc_score(y == c, s[:, c]) for c in range(s.shape[1]) if 0 < np.sum(y == c) < len(y)]
    ),
    "average_precision": lambda s, y: np.mean(
        [theirs.average_precision_score(y == c, s[:, c]) for c in range(s.shape[1]) if np.any(y == c)]
    ),
}


@pytest.mark.parametrize("kind", ["spread", "tied", "constant", "one class"])
@pytest.mark.parametrize("name", BINARY)
def test_two_classes_as_scikit_learn(name: str, kind: str) -> None:
    for rows in ROWS:
        for seed in range(6):
            scores, labels = binary(rows, kind, seed)
            same(METRICS[name](scores, labels), quietly(BINARY[name], scores, labels))


@pytest.mark.parametrize("kind", ["spread", "tied", "constant", "one class", "absent"])
@pytest.mark.parametrize("name", MANY)
def test_more_classes_as_scikit_learn(name: str, kind: str) -> None:
    for rows in ROWS:
        for seed in range(4):
            scores, labels = many(rows, kind, seed)
            same(METRICS[name](scores, labels), quietly(MANY[name], scores, labels))


def test_where_all_classes_are_there_the_means_are_scikit_learns_own() -> None:
    scores, labels = many(300, "tied", 0)
    assert len(np.unique(labels)) == 5
    same(METRICS["auc"](scores, labels), theirs.roc_auc_score(labels, scores, multi_class="ovr"))
    same(METRICS["average_precision"](scores, labels), theirs.average_precision_score(labels, scores))


def test_an_auc_counts_pairs() -> None:
    scores, labels = binary(60, "tied", 1)
    pairs = [(a > b) + (a == b) / 2 for a in scores[labels == 1] for b in scores[labels == 0]]
    same(METRICS["auc"](scores, labels), float(np.mean(pairs)))


@pytest.mark.parametrize("name", ["auc", "average_precision", "f1"])
def test_what_one_class_leaves_undefined_is_nan(name: str) -> None:
    assert np.isnan(METRICS[name](np.array([0.1, 0.2]), np.array([0, 0])))


def test_probabilities_of_0_and_1_have_a_finite_log_loss_as_in_scikit_learn() -> None:
    scores, labels = np.array([0.0, 1.0, 1.0, 0.0]), np.array([0, 1, 0, 1])
    same(METRICS["log_loss"](scores, labels), theirs.log_loss(labels, scores))
    three = np.eye(3)
    same(METRICS["log_loss"](three, np.array([0, 2, 1])), theirs.log_loss([0, 2, 1], three))


@pytest.mark.parametrize("kind", ["spread", "tied", "constant", "one class"])
@pytest.mark.parametrize("make", [binary, many])
def test_the_calibration_error_is_a_sum_over_bins(make, kind: str) -> None:
    for rows in ROWS:
        for seed in range(4):
            scores, labels = make(rows, kind, seed)
            sure = scores if scores.ndim == 1 else scores.max(axis=1)
            hit = labels == 1 if scores.ndim == 1 else labels == scores.argmax(axis=1)
            total = 0.0
            for index in range(15):
                low, high = index / 15, (index + 1) / 15
                inside = (sure > low) & (sure <= high) if index else sure <= high
                if inside.any():
                    total += inside.sum() / rows * abs(sure[inside].mean() - hit[inside].mean())
            same(METRICS["calibration_error"](scores, labels), total)


def test_the_bins_are_those_of_scikit_learns_calibration_curve() -> None:
    scores, labels = binary(300, "spread", 3)
    share, mean = calibration_curve(labels, scores, n_bins=15)
    counts, _ = np.histogram(scores, np.linspace(0, 1, 16))
    same(METRICS["calibration_error"](scores, labels), float(counts[counts > 0] @ np.abs(share - mean) / 300))


def tagged(rows: int, seed: int, tags: int = 8) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng([rows, seed])
    return draws.integers(0, 11, (rows, tags)) / 10, (draws.random((rows, tags)) < 0.2).astype(int)


def top(scores: np.ndarray, k: int) -> np.ndarray:
    chosen = np.zeros(scores.shape, int)
    for row, values in enumerate(scores):
        chosen[row, sorted(range(len(values)), key=lambda t: -values[t])[:k]] = 1
    return chosen


@pytest.mark.parametrize("k", [1, 3, 5, 8, 20])
def test_recall_and_precision_at_k_as_scikit_learn_has_them_of_the_k_highest(problem_of_tags, k: int) -> None:
    recall, precision = (pf.metrics.metric_named(f"{name}_at_{k}", problem_of_tags) for name in ("recall", "precision"))
    for rows in ROWS:
        for seed in range(4):
            scores, labels = tagged(rows, seed)
            has = labels.any(axis=1)
            expected = np.nan
            if has.any():
                expected = theirs.recall_score(labels[has], top(scores[has], k), average="samples")
            same(recall(scores, labels), expected)
            options = {"average": "samples", "zero_division": np.nan}
            same(precision(scores, labels), theirs.precision_score(labels, top(scores, k), **options))


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_f1_of_tags_as_scikit_learn(average: str) -> None:
    for rows in ROWS:
        for seed in range(4):
            scores, labels = tagged(rows, seed)
            expected = quietly(f1_score, labels, scores > 0.5, average=average, zero_division=np.nan)
            same(METRICS[f"{average}_f1"](scores, labels), expected)
    assert np.isnan(METRICS[f"{average}_f1"](np.zeros((2, 3)), np.zeros((2, 3), int)))


REAL = {
    "squared_error": theirs.mean_squared_error,
    "rmse": theirs.root_mean_squared_error,
    "mae": theirs.mean_absolute_error,
    "r2": theirs.r2_score,
}


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("name", REAL)
def test_real_numbers_as_scikit_learn(name: str, shape: tuple[int, ...]) -> None:
    for rows in ROWS:
        draws = np.random.default_rng(rows)
        scores, labels = draws.normal(size=(rows, *shape)), draws.normal(size=(rows, *shape))
        for predicted, target in ((scores, labels), (scores, np.ones_like(labels)), (labels, labels)):
            same(METRICS[name](predicted, target), quietly(REAL[name], target, predicted))
    constant = np.ones((4, *shape))
    same(METRICS[name](constant, constant), REAL[name](constant, constant))


@pytest.mark.parametrize("name", METRICS)
def test_without_rows_or_with_scores_that_are_not_finite_there_is_none(name: str) -> None:
    shape = (2, 3) if METRICS[name].kind == "tags" else (2,)
    assert np.isnan(METRICS[name](np.zeros((0, *shape[1:])), np.zeros((0, *shape[1:]), int)))
    assert np.isnan(METRICS[name](np.full(shape, np.nan), np.ones(shape, int)))


def test_thousands_of_clients_take_a_moment() -> None:
    scores, labels = many(200, "spread", 0, classes=10)
    start = time.process_time()
    for metric in METRICS.values():
        for _ in range(100 if metric.kind == "classes" else 0):
            metric(scores, labels)
    each = (time.process_time() - start) / 100
    assert each < 20e-3  # all metrics of one client; a few milliseconds here


@pytest.fixture
def problem_of_tags() -> pf.Problem:
    _, labels = tagged(20, 0)
    fed = pf.Federation.from_arrays([(np.ones((20, 2)), labels.astype(float))], validation=0, test=0)
    return pf.Problem(fed, pf.models.linear(), "tags")


def problem(y: np.ndarray, loss: str) -> pf.Problem:
    fed = pf.Federation.from_arrays([(np.ones((len(y), 2)), y)], validation=0, test=0)
    return pf.Problem(fed, pf.models.linear(), loss)


def test_the_metrics_that_fit_and_the_one_that_is_shown(problem_of_tags) -> None:
    two, three = problem(np.array([0, 1, 1]), "softmax"), problem(np.array([0, 1, 2]), "softmax")
    signs, real = problem(np.array([-1, 1, 1]), "logistic"), problem(np.array([0.5, 1.0]), "squared")
    shown = [pf.metrics.default_metric(p).name for p in (two, signs, three, real, problem_of_tags)]
    assert shown == ["auc", "auc", "accuracy", "rmse", "recall_at_5"]
    assert [m.name for m in pf.metrics.metrics_of(real)] == ["squared_error", "rmse", "mae", "r2"]
    assert {m.name for m in pf.metrics.metrics_of(two)} == set(BINARY) | {"calibration_error"}


def test_a_name_that_is_unknown_or_does_not_fit_is_refused() -> None:
    real = problem(np.array([0.5, 1.0]), "squared")
    with pytest.raises(pf.PolyfedError, match="unknown metric 'rmsee'; did you mean 'rmse'"):
        pf.metrics.metric_named("rmsee", real)
    for word, ours in (("RMSE", "rmse"), ("MSE", "squared_error"), ("roc_auc", "auc")):
        with pytest.raises(pf.PolyfedError, match=f"unknown metric '{word}'; did you mean '{ours}'"):
            pf.metrics.metric_named(word, real)
    with pytest.raises(pf.PolyfedError, match="'auc' is for classes, and loss 'squared' predicts real numbers"):
        pf.metrics.metric_named("auc", real)
    with pytest.raises(pf.PolyfedError, match=r"made by pf\.metrics\.custom"):
        pf.metrics.metric_named(len, real)  # pyright: ignore[reportArgumentType]


def test_ones_own_metric() -> None:
    own = pf.metrics.custom("bias", lambda scores, labels: np.mean(scores - labels), higher_is_better=False)
    assert own(np.array([1.0, 2.0]), np.array([0.0, 0.0])) == 1.5
    assert pf.metrics.metric_named(own, problem(np.array([0.5, 1.0]), "squared")) is own
    with pytest.raises(pf.PolyfedError, match="'wrong' must return a number, found ndarray"):
        pf.metrics.custom("wrong", lambda scores, labels: scores, True)(np.ones(2), np.ones(2))
    with pytest.raises(pf.PolyfedError, match="'broken' raised ZeroDivisionError"):
        pf.metrics.custom("broken", lambda scores, labels: 1 / 0, True)(np.ones(2), np.ones(2))
    for name in ("loss", "rmse"):
        taken = pf.metrics.custom(name, lambda scores, labels: 0.0, True)
        with pytest.raises(pf.PolyfedError, match=f"'{name}': this name is taken"):
            pf.metrics.metric_named(taken, problem(np.array([0.5, 1.0]), "squared"))
    with pytest.raises(pf.PolyfedError, match="a metric's name must be a word"):
        pf.metrics.custom("my metric", lambda scores, labels: 0.0, True)


def test_means_over_clients_leave_out_and_name_who_has_none() -> None:
    names, rows, fine = ["a", "b", "c"], np.array([1, 5, 3]), np.ones(3, bool)
    found = pf.metrics.aggregate(np.array([0.5, np.nan, 0.9]), rows, names, fine, 0.6)
    assert (found.mean, found.pooled, found.undefined) == (0.7, 0.6, ("b",))
    same(found.size_weighted_mean, (0.5 + 2.7) / 4)
    broken = pf.metrics.aggregate(np.array([0.5, np.nan, 0.9]), rows, names, np.array([True, False, True]))
    assert np.isnan([broken.mean, broken.size_weighted_mean]).all()
