"""Class weights: how much a row counts in the loss that is trained, by its class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.problem.metrics.catalogue import PREDICTED, class_count, kind_of

if TYPE_CHECKING:
    from polyfed.problem.problem import Problem

ClassWeight = Literal["balanced"] | Sequence[float] | np.ndarray | None
"""A weight per class, or the weights that make all classes count alike; None: every row counts alike."""


def class_weights(given: ClassWeight, problem: Problem) -> np.ndarray | None:
    """The weight of each class, checked; those that are "balanced" follow from the training rows of all clients."""
    if given is None:
        return None
    count = class_count(problem)
    if count is None:
        kind = PREDICTED[kind_of(problem)]
        raise PolyfedError(f"class_weight is for classes, and loss '{problem.loss.name}' predicts {kind}")
    if problem.loss.name == "softmax" and len(problem.federation.like.y.shape) > 1:
        raise PolyfedError("class_weight needs one label per row, and these rows have a label for each position")
    if isinstance(given, str):
        if given != "balanced":
            raise PolyfedError(f"class_weight must be 'balanced' or a list of numbers, found '{given}'")
        return balanced(sum((class_rows(problem, client) for client in range(len(problem))), np.zeros(count, np.int64)))
    try:
        weights = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise PolyfedError(f"class_weight must be 'balanced' or a list of numbers, found {given!r}") from None
    if weights.shape != (count,):
        found = f"{weights.size} numbers" if weights.ndim == 1 else repr(given)
        raise PolyfedError(f"class_weight must have a number for each of {count} classes, found {found}")
    for place in np.flatnonzero(~((weights > 0) & np.isfinite(weights)))[:1]:
        raise PolyfedError(f"class_weight must be above 0 and finite, found {weights[place]:g} for class {place}")
    return weights


def balanced(rows: np.ndarray) -> np.ndarray:
    """n / (C n_c), with n rows in all, n_c of class c, and C classes that have rows; 1 for a class without any."""
    there = rows > 0
    return np.where(there, rows.sum() / (there.sum() * np.where(there, rows, 1)), 1.0)


def class_rows(problem: Problem, client: int) -> np.ndarray:
    """How many training rows of each class a client has."""
    targets, count = problem.targets(client, "train"), class_count(problem)
    assert count is not None
    return np.bincount((targets > 0) if problem.loss.name == "logistic" else targets, minlength=count)
