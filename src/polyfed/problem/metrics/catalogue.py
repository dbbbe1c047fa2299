"""The metrics by name, and which of them fit a problem."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.problem.metrics import classes, ranking, real, tags
from polyfed.problem.metrics.metric import Kind, Metric

if TYPE_CHECKING:
    from polyfed.problem.problem import Problem

TOP = 5
"""The K of recall_at_K and precision_at_K where nobody chose one."""


def _recall_at(k: int) -> Metric:
    return Metric(f"recall_at_{k}", partial(tags.recall_at, k), "tags", True, is_share=True, label=f"recall@{k}")


def _precision_at(k: int) -> Metric:
    return Metric(
        f"precision_at_{k}", partial(tags.precision_at, k), "tags", True, is_share=True, label=f"precision@{k}"
    )


def _mean_of_rows(
    name: str,
    by_row: Callable[[np.ndarray, np.ndarray], np.ndarray],
    kind: Kind,
    higher_is_better: bool,
    is_share: bool = False,
    label: str = "",
    unit: str = "",
) -> Metric:
    """A metric that is the mean of a number of each row."""
    return Metric(
        name, lambda s, y: float(np.mean(by_row(s, y))), kind, higher_is_better, is_share, label, unit, by_row
    )


METRICS = {
    metric.name: metric
    for metric in (
        _mean_of_rows("accuracy", classes.hits, "classes", True, is_share=True),
        Metric("balanced_accuracy", classes.balanced_accuracy, "classes", True, is_share=True),
        Metric("auc", ranking.auc, "classes", True, label="AUC"),
        Metric("average_precision", ranking.average_precision, "classes", True),
        Metric("f1", classes.f1, "classes", True, label="F1"),
        _mean_of_rows("log_loss", classes.log_losses, "classes", False, label="log-loss", unit="nats"),
        _mean_of_rows("brier", classes.brier_scores, "classes", False, label="Brier score"),
        Metric("calibration_error", classes.calibration_error, "classes", False),
        _recall_at(TOP),
        _precision_at(TOP),
        Metric("micro_f1", tags.micro_f1, "tags", True, label="micro F1"),
        Metric("macro_f1", tags.macro_f1, "tags", True, label="macro F1"),
        _mean_of_rows("squared_error", real.squared_errors, "real", False),
        Metric("rmse", real.rmse, "real", False, label="RMSE"),
        _mean_of_rows("mae", real.absolute_errors, "real", False, label="MAE"),
        Metric("r2", real.r2, "real", True, label="R²"),
    )
}
TAKEN = ("loss", "weighted_loss", "ridge")
"""What every model is measured by beside its metrics."""
PREDICTED = {"classes": "classes", "tags": "tags", "real": "real numbers"}


def kind_of(problem: Problem) -> Kind:
    """What a problem predicts."""
    return problem.loss.kind


def class_count(problem: Problem) -> int | None:
    """How many classes a problem has; None where it predicts no classes."""
    if kind_of(problem) != "classes":
        return None
    return 2 if problem.loss.name == "logistic" else problem.federation.classes


def metric_named(name: str | Metric, problem: Problem) -> Metric:
    """A metric that fits the problem, by its name; a `Metric` is checked and returned."""
    metric = name if isinstance(name, Metric) else _by_name(name)
    if metric.kind is None and metric.name in (*TAKEN, *METRICS):
        raise PolyfedError(f"metric '{metric.name}': this name is taken, give yours another one")
    kind = kind_of(problem)
    if metric.kind not in (None, kind):
        fitting = ", ".join(metric.name for metric in metrics_of(problem))
        raise PolyfedError(
            f"metric '{metric.name}' is for {PREDICTED[str(metric.kind)]}, and loss '{problem.loss.name}' predicts "
            f"{PREDICTED[kind]}: use one of {fitting}"
        )
    return metric


def default_metric(problem: Problem) -> Metric:
    """AUC for two classes, accuracy for more, RMSE for real numbers, recall@5 for tags."""
    if class_count(problem) == 2:
        return METRICS["auc"]
    return METRICS[{"classes": "accuracy", "tags": f"recall_at_{TOP}", "real": "rmse"}[kind_of(problem)]]


def metrics_of(problem: Problem) -> list[Metric]:
    """All metrics that fit a problem."""
    return [metric for metric in METRICS.values() if metric.kind == kind_of(problem)]


def _by_name(name: object) -> Metric:
    if not isinstance(name, str):
        raise PolyfedError(
            f"a metric must be a name or made by pf.metrics.custom(name, function, higher_is_better), found {name!r}"
        )
    if name in METRICS:
        return METRICS[name]
    top = re.fullmatch(r"(recall|precision)_at_([1-9][0-9]*)", name)
    if top is None:
        raise PolyfedError(f"unknown metric '{name}'{suggestion(name, METRICS)}")
    return {"recall": _recall_at, "precision": _precision_at}[top[1]](int(top[2]))
