"""Do the intervals hold where coverage.py did not look: other models, metrics and tasks, few and many splits?

    python benchmarks/coverage_other.py --federations 400

Features have heavy tails and categories. Naive Bayes is far too sure of itself, so that its log-loss has long tails.
The truth is the gain on thousands of fresh rows, the mean over the splits' models; on one split, of that split's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit

from polyfed.problem.metrics import METRICS
from polyfed.studies.gains import evidence
from polyfed.studies.verdicts import Interval, interval_on_rows, over_evidence, row_kind, unknown
from polyfed.studies.verdicts.rows import FEWEST_ROWS

Predict = Callable[[np.ndarray], np.ndarray]
Fit = Callable[[np.ndarray, np.ndarray, int], Predict]
"""(features, labels, classes) -> a model; no classes: real targets."""
OTHERS, OTHERS_ROWS, RIDGE = 3, 200, 1.0
FRESH_ROWS = 5_000
"""By which models are judged; 20 for each of the client's own where these are more."""
BINARY = ("accuracy", "auc", "log_loss", "brier")


@dataclass(frozen=True)
class Case:
    """A task, a model, and what is measured."""

    name: str
    fit: Fit
    classes: int
    metrics: tuple[str, ...]
    rows: tuple[int, ...] = (20, 100, 1000)
    splits: int = 10
    intercept: float = 0.0
    test_share: float = field(default=0.3, kw_only=True)


def naive_bayes(features: np.ndarray, labels: np.ndarray, classes: int) -> Predict:
    """Normal features, independent within a class; means and variances are pulled to 0 and 1 by half and one row."""
    parts = []
    for label in range(classes):
        own = features[labels == label]
        mean = own.sum(axis=0) / (len(own) + 0.5)
        variance = (((own - mean) ** 2).sum(axis=0) + 1) / (len(own) + 1)
        parts.append((np.log((len(own) + 0.5) / (len(labels) + 0.5 * classes)), mean, variance))

    def predict(rows: np.ndarray) -> np.ndarray:
        logs = np.stack([p - 0.5 * (((rows - m) ** 2) / v + np.log(v)).sum(axis=1) for p, m, v in parts], axis=1)
        chances = np.exp(logs - logs.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        return chances[:, 1] if classes == 2 else chances

    return predict


def logistic(features: np.ndarray, labels: np.ndarray, classes: int) -> Predict:
    """Ridge-logistic regression by Newton's method."""
    x, weights = _with_one(features), np.zeros(features.shape[1] + 1)
    for _ in range(20):
        chance = expit(x @ weights)
        curvature = (x * (chance * (1 - chance))[:, None]).T @ x + RIDGE * np.eye(len(weights))
        step = np.linalg.solve(curvature, x.T @ (chance - labels) + RIDGE * weights)
        weights -= step * min(1, 3 / max(float(np.linalg.norm(step)), 1e-12))
    return lambda rows: expit(_with_one(rows) @ weights)


def descent(features: np.ndarray, labels: np.ndarray, classes: int) -> Predict:
    """Logistic regression by 150 steps of gradient descent, without a ridge: on few rows it is too sure of itself."""
    x, weights = _with_one(features), np.zeros(features.shape[1] + 1)
    for _ in range(150):
        weights -= 0.5 * x.T @ (expit(x @ weights) - labels) / len(labels)
    return lambda rows: expit(_with_one(rows) @ weights)


def least_squares(features: np.ndarray, targets: np.ndarray, classes: int) -> Predict:
    x = _with_one(features)
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ targets)
    return lambda rows: _with_one(rows) @ weights


CASES = (
    Case("naive Bayes", naive_bayes, 2, BINARY),
    Case("logistic, 4% positive", logistic, 2, BINARY, (100, 1000), intercept=-4.5),
    Case(
        "naive Bayes, 15% positive",
        naive_bayes,
        2,
        ("balanced_accuracy", "f1", "average_precision"),
        (20, 100),
        10,
        -2.5,
    ),
    Case("naive Bayes, three classes", naive_bayes, 3, ("accuracy", "auc", "log_loss", "balanced_accuracy"), (20, 100)),
    Case("descent without a ridge", descent, 2, BINARY, (20, 100)),
    Case("least squares, noise of t3", least_squares, 0, ("squared_error", "rmse", "mae", "r2")),
    *(Case(f"logistic, splits: {n}", logistic, 2, BINARY, (20, 100), n) for n in (1, 3, 5, 20)),
)


def study(case: Case, rows: int, federations: int) -> None:
    """Print how many intervals hold the truth, how wide they are, and how often a verdict has the wrong sign."""
    found = [federation(case, rows, seed) for seed in range(federations)]
    for place, metric in enumerate(case.metrics):
        known = [(own[place][0], own[place][1]) for own in found if own[place][0].known]
        held = sum(interval.low <= true <= interval.high for interval, true in known)
        wrong = sum((i.sign == "above" and true < 0) or (i.sign == "below" and true > 0) for i, true in known)
        width = np.median([interval.high - interval.low for interval, _ in known])
        share, of = held / len(known), f"of {len(known)}"
        print(f"{case.name:28} {rows:5} {metric:18} {share:6.1%} {of:7} width {width:.3f}, wrong verdicts {wrong}")


def federation(case: Case, rows: int, seed: int) -> list[tuple[Interval, float]]:
    """By metric, the interval for one client's gain and the true gain."""
    random = np.random.default_rng([seed, rows, case.classes])
    law, own = random.normal(0, 0.7, 24), random.normal(0, 0.5, 24)
    others = [_draw(random, case, law + random.normal(0, 0.5, 24), OTHERS_ROWS) for _ in range(OTHERS)]
    shift = random.normal(0, 0.4, 3)
    x, y = _draw(random, case, law + own, rows, shift)
    fresh, truth = _draw(random, case, law + own, max(FRESH_ROWS, 20 * rows), shift)
    beside = [np.concatenate(parts) for parts in zip(*others, strict=True)]
    shown, true = [[] for _ in case.metrics], [[] for _ in case.metrics]
    for _ in range(case.splits):
        test = _test_rows(random, y, case)
        alone = case.fit(x[~test], y[~test], case.classes)
        pooled = [np.concatenate(pair) for pair in zip(beside, (x[~test], y[~test]), strict=True)]
        together = case.fit(pooled[0], pooled[1], case.classes)
        tested, judged = ((together(some), alone(some)) for some in (x[test], fresh))
        for place, name in enumerate(case.metrics):
            metric = METRICS[name]
            shown[place].append(evidence(metric, *tested, y[test], np.flatnonzero(test)))
            gain = metric(judged[0], truth) - metric(judged[1], truth)
            true[place].append(gain if metric.higher_is_better else -gain)
    outside = rows - float(np.mean([own.test_rows for own in shown[0]]))
    rarest = min(np.sum(y == label) for label in range(case.classes)) if case.classes else rows
    intervals = [over_evidence(own, outside) if case.splits > 1 else interval_on_rows(own[0]) for own in shown]
    return [
        (unknown() if row_kind(name) == "ranks" and rarest < FEWEST_ROWS else interval, float(np.mean(gains)))
        for name, interval, gains in zip(case.metrics, intervals, true, strict=True)
    ]


def _draw(
    random: np.random.Generator, case: Case, law: np.ndarray, rows: int, shift: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Three features of Student's law, shifted; a category of four; a yes or no that depends on the first feature."""
    shift = random.normal(0, 0.4, 3) if shift is None else shift
    numbers = 0.8 * random.standard_t(3, (rows, 3)) + shift
    category, flag = random.integers(0, 4, rows), random.random(rows) < expit(numbers[:, 0])
    x = np.column_stack([numbers, *(category == k for k in (1, 2, 3)), flag]).astype(float)
    if case.classes == 0:
        return x, 2 * np.sin(x @ law[:7]) + x @ law[7:14] + random.standard_t(3, rows)
    if case.classes == 2:
        z = 2 * np.tanh(x @ law[:7]) + law[7] * x[:, 0] * x[:, 6] + case.intercept
        return x, (random.random(rows) < expit(z)).astype(int)
    scores = x @ law[:21].reshape(7, 3) + np.array([1.5, 0, -1]) + random.gumbel(size=(rows, 3))
    return x, scores.argmax(axis=1)


def _test_rows(random: np.random.Generator, y: np.ndarray, case: Case) -> np.ndarray:
    """Stratified by label. A class that is worth less than a row has one by chance."""
    test = np.zeros(len(y), bool)
    groups = [np.flatnonzero(y == label) for label in np.unique(y)] if case.classes else [np.arange(len(y))]
    for group in groups:
        wanted = len(group) * case.test_share
        count = int(wanted + random.random()) if wanted < 1 else round(wanted)
        test[random.permutation(group)[:count]] = True
    return test


def _with_one(features: np.ndarray) -> np.ndarray:
    return np.column_stack([features, np.ones(len(features))])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--federations", type=int, default=400)
    options.add_argument("--cases", default="", help="those whose names begin so")
    options.add_argument("--rows", type=int, help="clients of this size alone")
    asked = options.parse_args()
    for case in CASES:
        for rows in case.rows:
            if case.name.startswith(asked.cases) and asked.rows in (None, rows):
                study(case, rows, asked.federations)


if __name__ == "__main__":
    main()
