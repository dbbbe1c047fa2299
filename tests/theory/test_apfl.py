"""APFL's theory: the bound by hand, its best weight by search, and the clients' unlikeness in closed form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from polyfed import theory
from polyfed.core.errors import PolyfedError
from polyfed.theory import ApflRisk

RISK = ApflRisk(
    rows=[100, 400, 25],
    global_risk=0.3,
    local_risk=[0.2, 0.1, 0.25],
    divergence=[0.1, 1.5, 0.0],
    disagreement=[0.1, 0.2, 0.3],
    loss_bound=2.0,
    lipschitz=0.5,
    dimension=4.0,
    confidence=0.1,
    constant=0.7,
)


def test_the_bound_is_theorem_1() -> None:
    spread = 4 + np.log(10)
    shared = 0.3 + 2 * np.array([0.1, 1.5, 0.0]) + 0.7 * np.sqrt(spread / 525)
    own = (
        np.array([0.2, 0.1, 0.25]) + 1.4 * np.sqrt(spread / np.array([100, 400, 25])) + 0.5 * np.array([0.1, 0.2, 0.3])
    )
    np.testing.assert_allclose(theory.apfl_bound(0.0, RISK), 2 * shared)
    np.testing.assert_allclose(theory.apfl_bound(1.0, RISK), 2 * own)
    np.testing.assert_allclose(theory.apfl_bound(0.25, RISK), 2 * 0.5625 * shared + 2 * 0.0625 * own)


def test_the_mixing_weight_of_equation_3_minimises_the_bound() -> None:
    best = theory.apfl_mixing_weight(RISK)
    least = np.full(best.shape, 0.5)
    for width in (0.5, 0.01):  # the bound is convex in alpha: a coarse grid brackets the minimum of the fine one
        grid = [np.clip(least + offset, 0, 1) for offset in np.linspace(-width, width, 401)]
        bounds = np.array([theory.apfl_bound(alpha, RISK) for alpha in grid])
        least = np.take_along_axis(np.array(grid), bounds.argmin(axis=0)[None], axis=0)[0]
    np.testing.assert_allclose(best, least, atol=1e-4)
    assert ((best > 0) & (best < 1)).all()


def test_unlike_clients_lean_on_themselves_and_small_ones_on_the_others() -> None:
    def weight(rows: float, divergence: float) -> float:
        risk = ApflRisk(rows=[rows, 1000], global_risk=0.1, local_risk=0.1, divergence=[divergence, 0.0])
        return float(theory.apfl_mixing_weight(risk)[0])

    assert weight(50, 0.0) < weight(50, 0.5) < weight(50, 2.0)
    assert weight(10, 0.5) < weight(100, 0.5) < weight(10000, 0.5)
    nothing = ApflRisk(rows=[5], global_risk=0.0, local_risk=0.0, divergence=0.0, constant=0.0)
    assert theory.apfl_mixing_weight(nothing) == 0.5


class Thresholds(NamedTuple):
    """Clients whose label is whether x, uniform on 100 cells, is beyond a threshold of their own, some labels flipped.

    A model is a threshold, -1 below and 1 from it on (VC dimension 1), and the loss (h(x) - y)^2, from 0 to 4.
    """

    threshold: np.ndarray
    flipped: np.ndarray
    rows: np.ndarray

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Thresholds:
        n = int(rng.integers(2, 6))
        centre, width = rng.integers(20, 80), int(rng.choice([1, 10, 40]))
        threshold = np.clip(centre + rng.integers(-width, width + 1, n), 1, 99)
        return cls(threshold, rng.uniform(0, 0.3, n), rng.integers(5, 200, n))

    @property
    def laws(self) -> np.ndarray:
        """The probability of each cell with y = -1 and y = 1, of every client."""
        above = np.arange(100) >= self.threshold[:, None]
        up = np.where(above, 1 - self.flipped[:, None], self.flipped[:, None])
        return np.stack([1 - up, up], axis=1) / 100

    def loss(self, values: np.ndarray) -> np.ndarray:
        """(h(x) - y)^2 in every cell, with y = -1 and y = 1."""
        return np.stack([(values + 1) ** 2, (values - 1) ** 2], axis=-2)


MODELS = np.where(np.arange(100) >= np.arange(101)[:, None], 1.0, -1.0)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(s, marks=pytest.mark.full) for s in range(3, 40))])
@pytest.mark.parametrize("fitted", ["alone", "beside the global model"])
def test_mixtures_of_trained_thresholds_stay_under_theorem_1_and_corollary_3(seed: int, fitted: str) -> None:
    rng = np.random.default_rng(seed)
    clients = Thresholds.draw(rng)
    counts = np.array([rng.multinomial(m, law.ravel()) for m, law in zip(clients.rows, clients.laws, strict=True)])
    counts = counts.reshape(clients.laws.shape)
    every = clients.loss(MODELS)
    whole = counts.sum(axis=0) / counts.sum()
    shared = MODELS[np.argmin(np.sum(every * whole, axis=(1, 2)))]
    own_risk = np.min(np.einsum("kyx,iyx->ik", every, clients.laws), axis=1)
    mean = np.tensordot(clients.rows / clients.rows.sum(), clients.laws, 1)
    risk = ApflRisk(
        rows=clients.rows,
        global_risk=float(np.sum(clients.loss(shared) * whole)),
        local_risk=own_risk,
        divergence=np.abs(mean - clients.laws).sum(axis=(1, 2)),
        disagreement=0.0 if fitted == "alone" else 2.0,  # all below against all above
        loss_bound=4.0,
        lipschitz=4.0,
        constant=1.0,
    )
    for alpha in (0.0, 0.3, float(theory.apfl_mixing_weight(risk).mean()), 0.8, 1.0):
        candidates = MODELS if fitted == "alone" else alpha * MODELS + (1 - alpha) * shared
        chosen = np.argmin(np.einsum("kyx,iyx->ik", clients.loss(candidates), counts), axis=1)
        alone = MODELS[np.argmin(np.einsum("kyx,iyx->ik", every, counts), axis=1)]
        found, apart = (
            np.sum(clients.loss(values) * clients.laws, axis=(1, 2))
            for values in (alpha * MODELS[chosen] + (1 - alpha) * shared, alone)
        )
        assert (found <= theory.apfl_bound(alpha, risk)).all()
        assert (found - apart <= theory.apfl_gain_bound(alpha, risk, 0.0)).all()


def test_gradient_diversity_of_quadratics_with_one_hessian_is_exact_at_any_point() -> None:
    """grad f_i = H w - m_i: the difference to the mean does not depend on w, so the supremum is attained everywhere."""
    rng = np.random.default_rng(0)
    H, moments, points = np.diag([1.0, 3.0]), rng.normal(size=(4, 2)), rng.normal(size=(7, 2))
    gradients = np.array([[H @ w - m for m in moments] for w in points])
    expected = np.sum((moments - moments.mean(axis=0)) ** 2, axis=1)
    np.testing.assert_allclose(theory.gradient_diversity(gradients), expected)
    np.testing.assert_allclose(theory.gradient_diversity(gradients[0]), expected)


def test_gradient_diversity_takes_the_worst_point_and_is_zero_for_equal_clients() -> None:
    one, other = [[1.0], [3.0]], [[0.0], [10.0]]
    np.testing.assert_allclose(theory.gradient_diversity([one, other]), [25.0, 25.0])
    np.testing.assert_allclose(theory.gradient_diversity(np.ones((3, 4, 2))), 0)


def test_the_optimality_gap_is_the_squared_distance() -> None:
    np.testing.assert_allclose(theory.optimality_gap([[3.0, 4.0], [0.0, 1.0]], [0.0, 0.0]), [25, 1])


def test_label_divergence_is_the_distance_from_the_mean_client() -> None:
    np.testing.assert_allclose(theory.label_divergence([[10, 0], [0, 30]]), [1, 1])
    np.testing.assert_allclose(theory.label_divergence([[5, 5], [20, 20]]), 0)


def test_the_schedule_is_that_of_theorems_2_to_4() -> None:
    assert theory.apfl_offset([2.0, 8.0], [0.5, 1.0], 10) == 128 * 16
    assert theory.apfl_offset(1.0, 1.0, 5000) == 5000
    schedule = theory.apfl_schedule([2.0, 8.0], [0.5, 1.0], 10)
    assert (schedule.step_scale, schedule.step_offset) == (32.0, 2048.0)
    schedule = theory.apfl_schedule([2.0, 8.0], [0.5, 1.0], 10, any_alpha=True)
    assert (schedule.step_scale, schedule.step_offset) == (16.0, 1024.0)  # Theorem 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.apfl_bound(1.5, RISK), "alpha must be at least 0 and at most 1, found 1.5"),
        (
            lambda: theory.apfl_mixing_weight(ApflRisk(rows=[5], global_risk=0.1, local_risk=0.1, divergence=3.0)),
            "divergence must be at least 0 and at most 2, found 3",
        ),
        (lambda: theory.gradient_diversity([1.0, 2.0]), r"shape \(points, clients, parameters\), found shape \(2,\)"),
        (lambda: theory.optimality_gap([[1.0, 2.0]], [1.0]), "a local model per client and a global one"),
        (lambda: theory.label_divergence([[0, 0]]), "a row of counts per client"),
        (lambda: theory.apfl_offset(1.0, 0.0, 10), "mu must be above 0 for every client"),
    ],
)
def test_bad_input_is_refused_by_name(call, message) -> None:
    with pytest.raises(PolyfedError, match=message):
        call()


def test_theorem_3s_condition_on_alpha_depends_on_the_unit_of_the_loss() -> None:
    """Losses times 100: its stepsizes make the same models, but sqrt(mu) forbids the alpha that it allowed."""

    def run(scale: float) -> tuple[np.ndarray, float]:
        h, c, alpha = scale * np.array([1.0, 2.0]), np.array([-1.0, 1.0]), 0.96
        schedule, w, v = theory.apfl_schedule(h, h, 5), np.zeros(2), np.zeros(2)
        for t in range(40):
            eta = schedule.step_scale / (t + schedule.step_offset)
            w, v = w - eta * h * (w - c), v - eta * alpha * h * (alpha * v + (1 - alpha) * w - c)
            w = np.full(2, w.mean()) if t % 5 == 4 else w
        return alpha * v + (1 - alpha) * w, 1 - 1 / (4 * np.sqrt(6) * 2 * max(1.0, np.sqrt(scale)))

    (models, least), (same, forbidden) = run(1.0), run(100.0)
    np.testing.assert_allclose(models, same, rtol=1e-12)
    assert least < 0.96 < forbidden
