"""Metrics of scores and labels, in NumPy and float64: `pf.metrics`.

metric.py       what a metric is, and a user's own
classes.py      accuracy, F1, log-loss, Brier score, calibration error
ranking.py      AUC and average precision
tags.py         recall@k, precision@k, micro and macro F1
real.py         squared error, RMSE, MAE, R²
catalogue.py    all of them by name, and which fit a problem
canonical.py    a model's outputs as scores
aggregates.py   one number for many clients
constant.py     the scores of predicting the same for every row
"""

from polyfed.problem.metrics.aggregates import Aggregate, aggregate
from polyfed.problem.metrics.canonical import canonical
from polyfed.problem.metrics.catalogue import METRICS, class_count, default_metric, kind_of, metric_named, metrics_of
from polyfed.problem.metrics.constant import constant_scores
from polyfed.problem.metrics.metric import Kind, Metric, custom

__all__ = [
    "METRICS",
    "Aggregate",
    "Kind",
    "Metric",
    "aggregate",
    "canonical",
    "class_count",
    "constant_scores",
    "custom",
    "default_metric",
    "kind_of",
    "metric_named",
    "metrics_of",
]
