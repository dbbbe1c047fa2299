"""The rules for single uploads, against NumPy and SciPy."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from scipy import optimize, stats

import polyfed as pf
from polyfed.core.errors import PolyfedError
from polyfed.engine.robust.settings import (
    aggregate_settings,
    norm_limit,
    norm_of,
    shorter,
)
from polyfed.problem.problem import precision

N, D = 11, 7


def uploads(count: int = N, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, D))


def tree(row: np.ndarray) -> dict[str, np.ndarray]:
    return {"b": row[:1], "w": row[1:].reshape(2, 3)}


def one(rule: pf.Aggregate, rows: np.ndarray, weights: Any = None, past: Any = ()) -> np.ndarray:
    with precision("float64"):
        found = rule.of([tree(row) for row in rows], np.ones(len(rows)) if weights is None else weights, past)
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found.values)])


def krum_order(rows: np.ndarray, f: int) -> list[int]:
    """Blanchard et al.: the sum of the n - f - 2 smallest squared distances to others."""
    scores = []
    for i, row in enumerate(rows):
        away = sorted(float(np.sum((row - other) ** 2)) for j, other in enumerate(rows) if j != i)
        scores.append(sum(away[: len(rows) - f - 2]))
    return list(np.argsort(scores))


@pytest.mark.parametrize("count", [1, 2, 10, 11])
def test_the_median_is_numpys(count: int) -> None:
    np.testing.assert_allclose(one(pf.Aggregate("median"), uploads(count)), np.median(uploads(count), axis=0))


@pytest.mark.parametrize(("count", "attackers", "cut"), [(10, 0.2, 0.2), (11, 0.3, 0.3), (11, 2, 2 / 11), (5, 0.1, 0)])
def test_the_trimmed_mean_is_scipys(count: int, attackers: float, cut: float) -> None:
    expected = stats.trim_mean(uploads(count), cut + 1e-9, axis=0)
    np.testing.assert_allclose(one(pf.Aggregate("trimmed_mean", attackers), uploads(count)), expected, atol=1e-12)


@pytest.mark.parametrize("keep", [1, 4])
def test_krum_takes_those_closest_to_their_neighbours(keep: int) -> None:
    rows = uploads()
    rows[3] += 5.0
    expected = rows[krum_order(rows, 3)[:keep]].mean(axis=0)
    np.testing.assert_allclose(one(pf.Aggregate("krum", 3, keep=keep), rows), expected)


def test_the_geometric_median_minimises_the_sum_of_distances() -> None:
    rows, weights = uploads(), np.linspace(1, 3, N)

    def apart(z: np.ndarray) -> float:
        return float(weights @ np.linalg.norm(rows - z, axis=1))

    best = optimize.minimize(apart, rows.mean(axis=0), method="BFGS", options={"gtol": 1e-9}).x
    np.testing.assert_allclose(one(pf.Aggregate("geometric_median", weighted=True), rows, weights), best, atol=1e-6)


def test_the_geometric_median_may_be_an_upload() -> None:
    rows = np.zeros((5, D))
    rows[3], rows[4] = 3.0, -1.0  # three of five are at zero
    np.testing.assert_allclose(one(pf.Aggregate("geometric_median"), rows), np.zeros(D), atol=1e-9)


@pytest.mark.parametrize("rule", ["mean", "median", "trimmed_mean"])
def test_whole_weights_count_as_copies_do(rule: Any) -> None:
    rows, weights = uploads(5), np.array([1, 2, 3, 2, 1])
    copies = np.repeat(rows, weights, axis=0)
    weighted = one(pf.Aggregate(rule, weighted=True), rows, weights.astype(float))
    if rule == "trimmed_mean":  # a fifth of the weight at either end
        weighted = one(pf.Aggregate(rule, 0.2, weighted=True), rows, weights.astype(float))
        copies = np.repeat(rows, 5 * weights, axis=0)
        expected = stats.trim_mean(copies, 0.2, axis=0)
    else:
        expected = np.median(copies, axis=0) if rule == "median" else copies.mean(axis=0)
    np.testing.assert_allclose(weighted, expected, atol=1e-12)


def test_without_weighted_a_claimed_weight_is_ignored() -> None:
    rows, claimed = uploads(), np.ones(N)
    claimed[0] = 1e9
    for rule in ("mean", "median", "trimmed_mean", "geometric_median"):
        np.testing.assert_array_equal(one(pf.Aggregate(rule), rows, claimed), one(pf.Aggregate(rule), rows))


@pytest.mark.parametrize("rule", ["median", "trimmed_mean", "krum", "geometric_median"])
@pytest.mark.parametrize("false", [1e30, -1e150, np.inf, np.nan])
def test_a_rule_stays_among_the_honest_whatever_a_fifth_sends(rule: Any, false: float) -> None:
    rows = uploads()
    rows[:2] = false
    found = one(pf.Aggregate(rule, 0.2), rows)
    assert np.all(np.abs(found) <= np.max(np.abs(rows[2:])))


def test_the_mean_does_not_stay() -> None:
    rows = uploads()
    rows[0] = 1e30
    assert np.all(one(pf.Aggregate("mean"), rows) > 1e28)


def test_a_fixed_bound_scales_longer_uploads() -> None:
    rows = uploads()
    lengths = np.linalg.norm(rows, axis=1)
    limit = float(np.median(lengths))
    expected = (rows * np.minimum(1, limit / lengths)[:, None]).mean(axis=0)
    np.testing.assert_allclose(one(pf.Aggregate("mean", bound=limit), rows), expected)


def test_the_bound_follows_the_median_of_past_norms_and_at_first_that_of_the_round() -> None:
    rows = uploads()
    lengths = np.linalg.norm(rows, axis=1)
    rule = pf.Aggregate("mean", bound="median", factor=0.5)
    for past, middle in (((), np.median(lengths)), ((1.0, 0.1, 0.3), 0.3), ([9.0] * 30 + [0.2] * 20, 0.2)):
        expected = (rows * np.minimum(1, 0.5 * middle / lengths)[:, None]).mean(axis=0)
        np.testing.assert_allclose(one(rule, rows, past=past), expected)
        if past:
            assert norm_limit("median", list(past)[-20:], 0.5) == pytest.approx(0.5 * middle)
    with precision("float64"):
        assert float(rule.of([tree(row) for row in rows], np.ones(N)).norm) == pytest.approx(np.median(lengths))


def test_norms_of_single_uploads_are_checked_and_cut() -> None:
    row = uploads(1)[0]
    length = float(np.linalg.norm(row))
    assert norm_of(tree(row)) == pytest.approx(length)
    assert norm_of(shorter(tree(row), length / 2)) == pytest.approx(length / 2)
    assert shorter(tree(row), 2 * length)["b"][0] == row[0]
    assert norm_limit(None, [1.0]) == norm_limit("median", []) == float("inf")
    assert norm_limit(3.0, [1.0]) == 3.0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rule": "medain"}, "unknown aggregate.rule 'medain'; did you mean 'median'"),
        ({"rule": "krum", "attackers": 0.5}, "aggregate.attackers must be a share below 0.5 or a whole number"),
        ({"rule": "krum", "keep": 0}, "aggregate.keep must be a whole number, at least 1"),
        ({"rule": "mean", "bound": -1.0}, "aggregate.bound must be a number above 0 or 'median'"),
        ({"rule": "mean", "factor": 0}, "aggregate.factor must be a number above 0"),
        ({"rule": "mean", "weighted": 1}, "aggregate.weighted must be true or false"),
        ({"rule": "mean", "trim": 1}, "unknown key aggregate.trim"),
        ({"attackers": 1}, "aggregate.rule is missing"),
        ([1], "aggregate must be a section"),
    ],
)
def test_settings_that_make_no_sense_are_named(settings: Any, sentence: str) -> None:
    with pytest.raises(PolyfedError, match=sentence):
        aggregate_settings(settings, "c.toml")


@pytest.mark.parametrize(("rule", "needed"), [("krum", 7), ("trimmed_mean", 5)])
def test_cohorts_that_are_too_small_for_a_rule_are_refused(rule: Any, needed: int) -> None:
    pf.Aggregate(rule, 2).check_cohort(needed)
    with pytest.raises(PolyfedError, match=f"withstands 2 attackers among at least {needed} uploads"):
        pf.Aggregate(rule, 2).check_cohort(needed - 1)
