"""Metrics of predicted real numbers: each is the mean over the outputs, where there are several."""

from __future__ import annotations

import numpy as np


def squared_errors(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(prediction - target)^2 of each row."""
    return _over_outputs((scores - labels) ** 2)


def rmse(scores: np.ndarray, labels: np.ndarray) -> float:
    """The root of the squared error of each output."""
    return float(np.mean(np.sqrt(np.mean((scores - labels) ** 2, axis=0))))


def absolute_errors(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """|prediction - target| of each row: the mean is the MAE."""
    return _over_outputs(np.abs(scores - labels))


def r2(scores: np.ndarray, labels: np.ndarray) -> float:
    """1 - sum (prediction - target)^2 / sum (target - mean target)^2 of each output; undefined for a single row.

    Where all targets are equal it is 1 if they are met exactly, and 0 otherwise, as in scikit-learn.
    """
    if len(labels) < 2:
        return float("nan")
    missed = np.sum((labels - scores) ** 2, axis=0)
    spread = np.sum((labels - np.mean(labels, axis=0)) ** 2, axis=0)
    share = np.where(spread > 0, missed / np.where(spread > 0, spread, 1), missed > 0)
    return float(np.mean(1 - share))


def _over_outputs(values: np.ndarray) -> np.ndarray:
    return values if values.ndim == 1 else np.mean(values, axis=tuple(range(1, values.ndim)))
