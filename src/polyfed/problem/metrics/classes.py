"""Metrics of class labels: of the class that is predicted, and of the probabilities."""

from __future__ import annotations

import numpy as np

BINS = 15
"""The bins of the calibration error, all of the same width."""
SMALLEST = np.finfo(np.float64).eps
"""Probabilities count as at least this and at most 1 minus this in the log-loss, as in scikit-learn."""


def predicted(scores: np.ndarray) -> np.ndarray:
    """The class with the largest probability: of two, class 1 if its probability is above 1/2."""
    return (scores > 0.5).astype(np.int64) if scores.ndim == 1 else np.argmax(scores, axis=1)


def hits(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Whether each row's predicted class is its own: the mean is the accuracy."""
    return (predicted(scores) == labels).astype(np.float64)


def balanced_accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    """The mean over classes of the share of their rows that are predicted right, over the classes that have rows."""
    rows = np.bincount(labels)
    right = np.bincount(labels, weights=predicted(scores) == labels, minlength=len(rows))
    there = rows > 0
    return float(np.mean(right[there] / rows[there]))


def f1(scores: np.ndarray, labels: np.ndarray) -> float:
    """2 tp / (2 tp + fp + fn) of class 1; of more than two classes, the mean over those in the labels or predicted."""
    guess = predicted(scores)
    count = 2 if scores.ndim == 1 else scores.shape[1]
    twice = 2 * np.bincount(labels, weights=guess == labels, minlength=count)
    both = np.bincount(labels, minlength=count) + np.bincount(guess, minlength=count)
    if scores.ndim == 1:
        return float(twice[1] / both[1]) if both[1] else float("nan")
    there = both > 0
    return float(np.mean(twice[there] / both[there]))


def log_losses(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """-log p(label) of each row, with p kept `SMALLEST` away from 0 and 1."""
    if scores.ndim == 1:
        scores = np.where(labels == 1, scores, 1 - scores)
    else:
        scores = scores[np.arange(len(labels)), labels]
    return -np.log(np.clip(scores, SMALLEST, 1 - SMALLEST))


def brier_scores(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(p - label)^2 of each row for two classes, sum_c (p_c - [label = c])^2 for more."""
    if scores.ndim == 1:
        return (scores - labels) ** 2
    off = scores.copy()
    off[np.arange(len(labels)), labels] -= 1
    return np.sum(off**2, axis=1)


def calibration_error(scores: np.ndarray, labels: np.ndarray) -> float:
    """sum_b n_b / n |mean probability - share of hits| over `BINS` bins (edge, next edge] of the probability.

    For two classes it is the probability of class 1, and a hit is a row of class 1. For more it is that of the
    predicted class, and a hit is a row of that class.
    """
    if scores.ndim == 1:
        sure, hit = scores, labels == 1
    else:
        sure, hit = np.max(scores, axis=1), predicted(scores) == labels
    bins = np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], sure)
    gaps = np.bincount(bins, weights=sure, minlength=BINS) - np.bincount(bins, weights=hit, minlength=BINS)
    return float(np.sum(np.abs(gaps)) / len(labels))
