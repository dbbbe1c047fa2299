"""Columns that alone predict the target nearly perfectly: most often they are written down after the fact."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import stats

from polyfed.data.federation import Federation
from polyfed.data.split import has_labels
from polyfed.data.tables.columns import Category

NEARLY = 0.99
"""An AUC, or a share of the target's variance, from which a column predicts nearly perfectly."""
LEFT = 0.05
"""The same for errors: the share of those of the commonest class that remain."""
ROWS = 20
"""The fewest rows of a bin of numbers; twice as many are needed to say anything."""
FEWEST = 5
"""The fewest rows of the rarest class: one row has a high AUC by luck."""
BINS = 100
MOST_FEATURES = 1000
"""Of wider tables columns are not looked at one by one."""


def leaks(data: Federation, sample: np.ndarray | slice) -> Iterator[str]:
    """The columns whose training rows, those of `sample`, nearly tell the target."""
    x, y = data.train.x[sample].astype(np.float64), data.train.y[sample]
    if data.feature_names is None or x.ndim != 2 or x.shape[1] > MOST_FEATURES or len(x) < 2 * ROWS:
        return
    if y.ndim > 1:
        if y.shape[1] > 1:
            return
        y = y[:, 0]
    predicts = _predicts_class if has_labels(y) else _predicts_number
    if has_labels(y):
        y = np.unique(y, return_inverse=True)[1]
        if len(counts := np.bincount(y)) < 2 or min(counts) < FEWEST:
            return
    elif not np.ptp(y) > 0:
        return
    for name, values, ordered in _columns(data, x):
        if np.ptp(values) > 0 and predicts(values, y, ordered):
            yield name


def _columns(data: Federation, x: np.ndarray) -> Iterator[tuple[str, np.ndarray, bool]]:
    """(name, values, whether their order means something): of a category its place, of all else every feature."""
    assert data.feature_names is not None
    if data.preparation is None:
        for place, name in enumerate(data.feature_names):
            yield name, x[:, place], True
        return
    for column, place in data.preparation.blocks():
        block = x[:, place]
        if isinstance(column, Category):
            yield column.name, block @ np.arange(1.0, block.shape[1] + 1), False
            continue
        for feature in block.T:
            yield column.name, feature, True


def _predicts_class(values: np.ndarray, y: np.ndarray, ordered: bool) -> bool:
    if ordered and y.max() == 1:
        ranks = stats.rankdata(values)[y == 1]
        positives, negatives = len(ranks), len(y) - len(ranks)
        auc = (ranks.sum() - positives * (positives + 1) / 2) / (positives * negatives)
        if max(auc, 1 - auc) >= NEARLY:
            return True
    codes = _codes(values, ordered)
    counts = np.zeros((codes.max() + 1, y.max() + 1))
    np.add.at(counts, (codes, y), 1)
    wrong = len(y) - counts.max(axis=1).sum()
    return bool(wrong <= LEFT * (len(y) - counts.sum(axis=0).max()))


def _predicts_number(values: np.ndarray, y: np.ndarray, ordered: bool) -> bool:
    if ordered:
        straight, ranked = np.corrcoef(values, y)[0, 1], np.corrcoef(stats.rankdata(values), stats.rankdata(y))[0, 1]
        return bool(max(abs(straight), abs(ranked)) ** 2 >= NEARLY)
    codes = _codes(values, ordered)
    counts = np.bincount(codes)
    means = np.bincount(codes, weights=y) / np.maximum(counts, 1)
    return bool(np.var(y - means[codes]) <= (1 - NEARLY) * np.var(y))


def _codes(values: np.ndarray, ordered: bool) -> np.ndarray:
    """A bin for each value; numbers of many values in bins of as many rows."""
    distinct, codes = np.unique(values, return_inverse=True)
    bins = min(BINS, len(values) // ROWS)
    if not ordered or len(distinct) <= bins:
        return codes
    edges = np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1])
    return np.searchsorted(edges, values, side="right")
