"""A metric: a number that says how good scores are for labels, and how to read it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np

from polyfed.core.errors import PolyfedError

Kind = Literal["classes", "tags", "real"]
"""What is predicted: one of some classes, which of some tags a row has, or real numbers."""
Function = Callable[[np.ndarray, np.ndarray], float]
"""(scores, labels) of some rows -> number."""

FROM_0_TO_1 = frozenset({"auc", "average_precision", "f1", "micro_f1", "macro_f1", "calibration_error"})
"""Metrics that lie between 0 and 1, beside those that are shown in per cent."""


@dataclass(frozen=True)
class Metric:
    """A function of (scores, labels), called as one: NaN where it is undefined, as AUC is for one class.

    Scores and labels of n rows, in float64 and whole numbers:

    - two classes: (n,) probabilities of class 1, and (n,) labels 0 and 1;
    - C > 2 classes: (n, C) probabilities, and (n,) labels 0 to C - 1;
    - T tags: (n, T) probabilities, and (n, T) of 0 and 1;
    - real numbers: predictions and targets, both (n,) or (n, outputs).
    """

    name: str
    function: Function
    kind: Kind | None
    """What it is for; None: for anything."""
    higher_is_better: bool
    is_share: bool = False
    """Whether it is shown in per cent."""
    label: str = ""
    """The name as people write it."""
    unit: str = ""
    """What it is counted in, where that is known."""
    by_row: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    """Where it is a mean over rows: (scores, labels) -> a number for each row."""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.name.replace("_", " "))

    @property
    def largest(self) -> float:
        """The largest difference that there can be between two of its values."""
        return 1.0 if self.is_share or self.name in FROM_0_TO_1 else math.inf

    def __call__(self, scores: np.ndarray, labels: np.ndarray) -> float:
        """NaN where there are no rows, or where scores are not finite."""
        scores, labels = np.asarray(scores, np.float64), np.asarray(labels)
        if len(scores) != len(labels):
            raise PolyfedError(f"metric '{self.name}': found {len(scores)} rows of scores and {len(labels)} of labels")
        if not len(labels) or not np.isfinite(scores).all():
            return float("nan")
        return self.function(scores, labels)


def custom(
    name: str,
    function: Callable[[np.ndarray, np.ndarray], Any],
    higher_is_better: bool,
    *,
    is_share: bool = False,
    label: str = "",
    unit: str = "",
) -> Metric:
    """A user's own metric from (scores, labels) -> number; see `Metric` for their shapes."""
    if not isinstance(name, str) or not name.isidentifier():
        raise PolyfedError(f"a metric's name must be a word of letters, digits and _, found {name!r}")
    if not callable(function):
        raise PolyfedError(f"metric '{name}': expected a function of (scores, labels), found {function!r}")

    def checked(scores: np.ndarray, labels: np.ndarray) -> float:
        try:
            value = function(scores, labels)
        except Exception as error:
            raise PolyfedError(f"metric '{name}' raised {type(error).__name__}: {error}") from error
        if not isinstance(value, Real):
            raise PolyfedError(f"metric '{name}' must return a number, found {type(value).__name__}")
        return float(value)

    return Metric(name, checked, None, bool(higher_is_better), is_share, label, unit)
