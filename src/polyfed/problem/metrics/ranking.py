"""Metrics of how scores order rows: the area under the ROC curve, and average precision."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class OneAgainstRest(NamedTuple):
    """A line per class: the scores of all rows, and which rows are of the class. Of two classes, only class 1."""

    scores: np.ndarray
    own: np.ndarray


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """The share of pairs (positive, negative) in which the positive has the higher score; a tie counts half.

    With R_i the mean rank of row i among rows of equal score: (sum over positives of R_i - p (p + 1) / 2) / (p q) for p
    positives and q negatives. Of more classes: the mean of one against the rest, over the classes that have both.
    """
    lines, own = _one_against_rest(scores, labels)
    positives = own.sum(axis=1)
    both = (positives > 0) & (positives < len(labels))
    if not both.any():
        return float("nan")
    positives = positives[both]
    ranks = np.where(own[both], _mean_ranks(lines[both]), 0).sum(axis=1)
    pairs = positives * (len(labels) - positives)
    return float(np.mean((ranks - positives * (positives + 1) / 2) / pairs))


def average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    """sum_k (recall_k - recall_{k-1}) precision_k over the distinct scores, from the highest to the lowest.

    Of more classes: the mean of one against the rest, over the classes that have a row.
    """
    lines, own = _one_against_rest(scores, labels)
    there = own.any(axis=1)
    if not there.any():
        return float("nan")
    lines, own = lines[there], own[there]
    order = np.argsort(-lines, axis=1)
    ordered = np.take_along_axis(lines, order, axis=1)
    hits = np.cumsum(np.take_along_axis(own, order, axis=1), axis=1)
    ends = np.ones_like(own)
    ends[:, :-1] = ordered[:, :-1] != ordered[:, 1:]  # precision and recall are those after all rows of a score
    before = np.zeros_like(hits)
    before[:, 1:] = np.maximum.accumulate(np.where(ends, hits, 0), axis=1)[:, :-1]
    precision = hits / np.arange(1, len(labels) + 1)
    return float(np.mean(np.where(ends, (hits - before) * precision, 0).sum(axis=1) / hits[:, -1]))


def _one_against_rest(scores: np.ndarray, labels: np.ndarray) -> OneAgainstRest:
    if scores.ndim == 1:
        return OneAgainstRest(scores[None], labels[None] == 1)
    return OneAgainstRest(np.ascontiguousarray(scores.T), labels == np.arange(scores.shape[1])[:, None])


def _mean_ranks(lines: np.ndarray) -> np.ndarray:
    """The ranks within each line, counted from 1; equal numbers share their mean rank."""
    order = np.argsort(lines, axis=1)
    ordered = np.take_along_axis(lines, order, axis=1)
    place = np.broadcast_to(np.arange(lines.shape[1]), lines.shape)
    differs = ordered[:, 1:] != ordered[:, :-1]
    first, last = place.copy(), place.copy()
    first[:, 1:] = np.maximum.accumulate(np.where(differs, place[:, 1:], 0), axis=1)
    last[:, :-1] = np.where(differs, place[:, :-1], lines.shape[1] - 1)
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty(lines.shape)
    np.put_along_axis(ranks, order, (first + last) / 2 + 1, axis=1)
    return ranks
