"""The constant predictor: it gives every row of a client the same scores, those that the client's own rows suggest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polyfed.problem.metrics.catalogue import class_count, kind_of

if TYPE_CHECKING:
    from polyfed.problem.problem import Problem


def constant_scores(problem: Problem, client: int) -> np.ndarray:
    """The scores of any row of this client: () or (C,) for classes, (T,) for tags, () or (outputs,) for real numbers.

    They are the shares of the classes (of the tags) among the client's own training rows, or their mean. Where a class
    has no row, its share would be 0 and the log-loss infinite: then one row is added that belongs to all C classes
    alike, (n_c + 1/C) / (n + 1). A tag that no row has, or every row, gets (n_t + 1/2) / (n + 1).
    """
    targets = problem.targets(client, "train")
    if kind_of(problem) == "real":
        return np.asarray(np.mean(targets, axis=0, dtype=np.float64))
    if kind_of(problem) == "tags":
        rows, own = len(targets), targets.sum(axis=0, dtype=np.float64)
        return np.where((own == 0) | (own == rows), (own + 0.5) / (rows + 1), own / rows)
    count = class_count(problem)
    assert count is not None
    labels = (targets > 0) if problem.loss.name == "logistic" else targets
    rows = np.bincount(labels.reshape(-1), minlength=count).astype(np.float64)
    if not rows.all():
        rows += 1 / count
    shares = rows / rows.sum()
    return np.asarray(shares[1]) if count == 2 else shares
