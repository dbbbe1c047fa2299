"""FedBC's interval of multipliers, Theorem 4.5."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from polyfed import theory


def test_the_interval_is_that_of_theorem_4_5() -> None:
    found = theory.multiplier_interval([2.0, 3.0, 5.0], beta=1.5)
    assert (found.low, found.high) == (3.0, 4.5)
    assert not found.covers_all  # a client with L = 5 needs lambda >= 5
    assert theory.multiplier_interval(2.0, beta=1.2) == (2.4, pytest.approx(2.88), True)
    assert theory.multiplier_interval([1.0, 1.009], beta=1.01).covers_all


@pytest.mark.parametrize("beta", [1.0, 0.5, 2.01, float("nan")])
def test_beta_beyond_what_the_theorem_allows_is_refused(beta) -> None:
    with pytest.raises(pf.PolyfedError, match="beta must be above 1 and at most 2, found"):
        theory.multiplier_interval([1.0, 2.0], beta)


def test_within_the_interval_an_exact_local_solve_lowers_the_lagrangian_by_the_proofs_amount() -> None:
    """(36): I <= -(lambda - L) |x+ - x|^2 for exact solves, on random quadratics that need not be convex."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
        H = rotation * rng.uniform(-1.5, 1.5, 4) @ rotation.T
        L = float(np.abs(np.linalg.eigvalsh(H)).max())
        interval = theory.multiplier_interval(L, 1.7)
        lam = rng.uniform(interval.low, interval.high)
        c, z, x = rng.normal(size=(3, 4))
        new = np.linalg.solve(H + 2 * lam * np.eye(4), H @ c + 2 * lam * z)

        def value(y, H=H, c=c, z=z, lam=lam):
            return 0.5 * (y - c) @ H @ (y - c) + lam * np.sum((y - z) ** 2)

        assert value(new) - value(x) <= -(lam - L) * np.sum((new - x) ** 2) + 1e-12
