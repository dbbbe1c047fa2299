"""A model's outputs and the loss's targets as the scores and labels that metrics read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from polyfed.problem.problem import Problem


def canonical(problem: Problem, outputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(scores, labels) of some rows, in float64; see `Metric` for their shapes.

    Where a row has a label for each of its positions, each position becomes a row.
    """
    outputs, name = np.asarray(outputs, np.float64), problem.loss.name
    if name == "squared":
        return outputs, np.asarray(targets, np.float64)
    if name == "logistic":
        return sigmoid(outputs), (targets > 0).astype(np.int64)
    if name == "tags":
        return sigmoid(outputs), targets.astype(np.int64)
    outputs, labels = outputs.reshape(-1, outputs.shape[-1]), targets.astype(np.int64).reshape(-1)
    if outputs.shape[1] == 2:
        return sigmoid(outputs[:, 1] - outputs[:, 0]), labels
    return softmax(outputs), labels


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-z)), without overflow."""
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1, small) / (1 + small)


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - np.max(logits, axis=1, keepdims=True))
    return powers / np.sum(powers, axis=1, keepdims=True)
