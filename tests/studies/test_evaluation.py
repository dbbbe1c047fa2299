"""Figures over clients: by hand."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from polyfed.studies import evaluation as evaluate


def test_spread_is_mean_weighted_mean_deviation_and_tenths() -> None:
    values = np.arange(20) / 20  # 0, .05, ... .95
    sizes = np.where(np.arange(20) < 10, 1, 3)
    figures = evaluate.spread(values, sizes, "accuracy")
    assert figures["mean"] == pytest.approx(0.475)
    assert figures["size_weighted_mean"] == pytest.approx((0.225 * 10 + 0.725 * 30) / 40)
    assert figures["std"] == pytest.approx(np.std(values))
    assert figures["worst10"] == pytest.approx(0.025)
    assert figures["best10"] == pytest.approx(0.925)


def test_the_worst_error_is_the_largest() -> None:
    figures = evaluate.spread(np.array([1.0, 5.0, 2.0]), np.ones(3), "squared_error")
    assert (figures["worst10"], figures["best10"]) == (5.0, 1.0)


def test_clients_without_rows_do_not_count() -> None:
    figures = evaluate.spread(np.array([0.5, np.nan, 0.7]), np.array([1, 0, 1]), "accuracy")
    assert figures["mean"] == pytest.approx(0.6)
    assert evaluate.spread(np.array([np.nan]), np.array([0]), "accuracy")["mean"] is None


def test_the_summary_says_what_was_measured(problem: pf.Problem) -> None:
    result = pf.simulate(problem, pf.algorithms.Local(), rounds=3)
    summary = evaluate.summarize(problem, result.metrics(), "accuracy")
    assert summary["figure"] == (
        "accuracy of the model that each client deploys, on its own test rows, at the last round, over all 6 clients"
    )


def test_client_rows_hold_every_model_and_split(problem: pf.Problem) -> None:
    result = pf.simulate(problem, pf.algorithms.FedAvg(), rounds=3, participation=2)
    rows = evaluate.client_rows(problem, result.metrics(pf.FineTune(steps=2)), result.simulation.own_share)
    assert [row["client"] for row in rows] == list(problem.federation.clients)
    assert [row["train_rows"] for row in rows] == [5, 17, 8, 11, 6, 13]
    for model in ("global", "personal", "finetuned"):
        for split in ("train", "validation", "test"):
            accuracies = [row[f"{model}_{split}_accuracy"] for row in rows]
            assert all(isinstance(accuracy, float) and 0 <= accuracy <= 1 for accuracy in accuracies)
    assert {row["own_share"] for row in rows} == {0.0}
