"""Metrics of tags, of which a row may have several or none."""

from __future__ import annotations

import numpy as np


def recall_at(k: int, scores: np.ndarray, labels: np.ndarray) -> float:
    """The mean over rows that have a tag of: the share of the row's tags that are among its k highest scores."""
    own = labels.sum(axis=1)
    tagged = own > 0
    if not tagged.any():
        return float("nan")
    return float(np.mean(_hits(k, scores, labels)[tagged] / own[tagged]))


def precision_at(k: int, scores: np.ndarray, labels: np.ndarray) -> float:
    """The mean over rows of: the share of the k highest scores whose tags the row has; of fewer than k tags, of all."""
    return float(np.mean(_hits(k, scores, labels)) / min(k, scores.shape[1]))


def micro_f1(scores: np.ndarray, labels: np.ndarray) -> float:
    """2 tp / (2 tp + fp + fn) over all rows and tags; a tag is predicted where its score is above 1/2."""
    guess, own = scores > 0.5, labels == 1
    both = guess.sum() + own.sum()
    return float(2 * (guess & own).sum() / both) if both else float("nan")


def macro_f1(scores: np.ndarray, labels: np.ndarray) -> float:
    """The mean of each tag's F1, over the tags that some row has or is predicted to have."""
    guess, own = scores > 0.5, labels == 1
    both = guess.sum(axis=0) + own.sum(axis=0)
    there = both > 0
    if not there.any():
        return float("nan")
    return float(np.mean(2 * (guess & own).sum(axis=0)[there] / both[there]))


def _hits(k: int, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How many of each row's tags are among its k highest scores; of equal scores, the first tags are taken."""
    highest = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(labels, highest, axis=1).sum(axis=1)
