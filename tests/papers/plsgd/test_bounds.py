"""PLSGD's bounds: a claim that can fail, and seeds against an exact recursion."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed import theory
from polyfed.papers.plsgd import bounds
from polyfed.papers.plsgd.runs import ROWS


def test_a_mean_above_its_bound_at_one_round_fails_the_claim() -> None:
    def rows(noise: float, *distances: float, error: float = 0.01) -> list[dict]:
        return [
            {"case": "case", "noise": noise, "seeds": 200, "round": r, "distance": d, "error": error, "bound": 3.0 - r}
            for r, d in enumerate(distances)
        ]

    (claim,) = bounds.judge(rows(1.0, 3.0, 1.9, 0.5))  # the start is on the bound by definition
    assert claim.verdict == "holds"
    (broken,) = bounds.judge(rows(1.0, 1.0, 2.1, 0.5))
    assert broken.verdict == "does not hold"
    assert "at most 1.050 of it" in broken.measured
    (loose,) = bounds.judge(rows(1.0, 1.0, 1.9, 0.5, error=0.2))
    assert loose.verdict == "undecided"
    assert [bounds.judge(rows(0.0, *d))[0].verdict for d in ((1.0, 2.1), (1.0, 1.9))] == ["does not hold", "holds"]


@pytest.mark.full
def test_200_seeds_have_the_exact_mean_distance_and_it_is_under_14_and_15() -> None:
    """With one Hessian the clients' mean error and their differences go apart: a recursion for each eigenvalue."""
    case, R = bounds.Case(1.0, 2.0, 2, 4, 1.0), 6
    distances, c = bounds._measured(case, 200, R)
    optima = 1.0 + np.random.default_rng(1).normal(size=(4, 5))
    mean, apart = optima.mean(axis=0) ** 2, optima.var(axis=0)
    shrink = 1 - 2 * case.lr * bounds.SPECTRUM
    variance = np.array([np.var(z, axis=0) for z in _noise(4, 5, case.noise)]).mean(axis=0)
    noise = (2 * case.lr) ** 2 * variance * (1 + shrink**2)  # of w + theta, in K = 2 steps
    expected = [np.sum(mean + apart)]
    for _ in range(R):  # alpha = 1: half of a client's move stays with it, and beta/2 of the mean move comes back
        mean = (1 - 1.5 * (1 - shrink**2)) ** 2 * mean + 1.5**2 * noise / 4
        apart = (1 - 0.5 * (1 - shrink**2)) ** 2 * apart + 0.5**2 * noise * 3 / 4
        expected.append(np.sum(mean + apart))
    error = distances.std(axis=0, ddof=1) / np.sqrt(200)
    assert (np.abs(distances.mean(axis=0) - expected) <= 4 * error + 1e-12).all()
    assert (4 * error[1:] < 0.15 * np.array(expected[1:])).all()
    assert (distances.mean(axis=0) + 4 * error <= theory.plsgd_bound(c, case.lr, 1.0, 2.0)).all()
    assert (distances.mean(axis=0) + 4 * error <= theory.plsgd_balanced_bound(c, case.lr)).all()


def _noise(clients: int, dim: int, noise: float) -> list[np.ndarray]:
    """The rows' noise, drawn as `noisy_quadratics` says."""
    random, rows = np.random.default_rng(0), []
    for _ in range(clients):
        z = random.normal(size=(ROWS, dim))
        z -= z.mean(axis=0)
        rows.append(z * noise / np.sqrt(np.mean(np.sum(z**2, axis=1))))
    return rows
