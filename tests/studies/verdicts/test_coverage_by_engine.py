"""Intervals for gains of models that polyfed itself trains, where the true gains are known from fresh rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import polyfed as pf
from polyfed.studies.verdicts import auc_evidence, mean_evidence, over_evidence

CLIENTS, ROWS, TEST, SPLITS, FEATURES = 120, 60, 18, 6, 4
FRESH = 20_000


def scores(model: Any, features: np.ndarray) -> np.ndarray:
    """A linear model's scores, before the logistic function."""
    weights = {name: np.asarray(leaf, np.float64) for name, leaf in model.items()}
    (slope,) = (leaf for leaf in weights.values() if leaf.size == FEATURES)
    (offset,) = (leaf for leaf in weights.values() if leaf.size == 1)
    return features @ slope.ravel() + offset.ravel()


def row_gains(labels: np.ndarray, together: np.ndarray, alone: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each row's gain in accuracy and in log-loss."""
    sign = 2 * labels - 1
    right = (together * sign > 0) * 1.0 - (alone * sign > 0)
    return right, np.logaddexp(0, -alone * sign) - np.logaddexp(0, -together * sign)


def auc_gain(labels: np.ndarray, together: np.ndarray, alone: np.ndarray) -> float:
    areas = []
    for values in (together, alone):
        ranks = stats.rankdata(values)[labels == 1]
        areas.append((ranks.mean() - (len(ranks) + 1) / 2) / np.sum(labels == 0))
    return areas[0] - areas[1]


def held(seed: int) -> np.ndarray:
    """(clients, metrics) of one federation: whether the intervals of alone against FedAvg hold the true gains."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(FEATURES)
    laws = [common + 0.5 * rng.standard_normal(FEATURES) for _ in range(CLIENTS)]

    def draw(law: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
        features = rng.standard_normal((rows, FEATURES))
        return features, (rng.random(rows) < 1 / (1 + np.exp(-features @ law))).astype(int)

    clients, fresh = [draw(law, ROWS) for law in laws], [draw(law, FRESH) for law in laws]
    evidence: list[list[list[Any]]] = [[[], [], []] for _ in laws]
    true = np.zeros((CLIENTS, 3))
    for split in range(SPLITS):
        tests = [rng.permutation(ROWS) < TEST for _ in laws]
        parts = [
            {"train": (x[~test], y[~test]), "validation": (x[:0], y[:0]), "test": (x[test], y[test])}
            for (x, y), test in zip(clients, tests, strict=True)
        ]
        problem = pf.Problem(pf.Federation.from_arrays(parts, classes=2), pf.models.linear(), loss="logistic", l2=0.02)
        run: dict[str, Any] = {"rounds": 30, "seed": split, "eval_every": 30}
        together = pf.simulate(problem, pf.algorithms.FedAvg(lr=0.5, local_steps=3, batch=14), **run)
        alone = pf.simulate(problem, pf.algorithms.Local(lr=0.5, local_steps=3, batch=14), **run)
        for client, (rows, test, new) in enumerate(zip(clients, tests, fresh, strict=True)):
            models = together.personal(client), alone.personal(client)
            labels, both = rows[1][test], [scores(model, rows[0][test]) for model in models]
            right, losses = row_gains(labels, *both)
            kinds = mean_evidence(right, "steps"), auc_evidence(both[0], both[1], labels), mean_evidence(losses)
            for metric, one in enumerate(kinds):
                evidence[client][metric].append(one)
            both = [scores(model, new[0]) for model in models]
            right, losses = row_gains(new[1], *both)
            true[client] += np.array([right.mean(), auc_gain(new[1], *both), losses.mean()]) / SPLITS
    intervals = [[over_evidence(own, ROWS - TEST) for own in client] for client in evidence]
    return np.array(
        [[i.low <= t <= i.high for i, t in zip(*row, strict=True)] for row in zip(intervals, true, strict=True)]
    )


@pytest.mark.full
def test_gains_of_the_engines_models_are_covered() -> None:
    """The clients of one federation, whose rows are independent; they are fewer than 400, so chance is allowed for."""
    covered = held(seed=0)
    for metric, name in enumerate(("accuracy", "AUC", "log-loss")):
        share = covered[:, metric].mean()
        assert stats.binom.cdf(covered[:, metric].sum(), CLIENTS, 0.93) > 0.01, (name, share)
