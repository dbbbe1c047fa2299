"""DCGD and DIANA: stepsizes and rounds, by hand and at their limits."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed import theory
from polyfed.core.errors import PolyfedError

L = np.array([4.0, 1.0, 2.0, 9.0])
MU = np.array([0.5, 0.1, 0.4, 3.0])
ALPHA = np.array([1.0, 0.5, 0.1, 0.3])
OMEGA = np.array([0.0, 3.0, 7.0, 1.0])


def test_stepsizes_of_dcgd_and_diana_by_hand() -> None:
    total, noisy, beta = 5.08 / 4, 0.81, 1 / (1 + OMEGA)  # L alpha^2 omega = 0, .75, .14, .81
    np.testing.assert_allclose(theory.diana_beta(OMEGA), [1, 0.25, 0.125, 0.5])
    assert theory.dcgd_stepsize(L, ALPHA, OMEGA) == pytest.approx(1 / (total + 2 * noisy / 4))
    assert theory.dcgd_stepsize(L, ALPHA, OMEGA, "convex") == pytest.approx(0.25 / (total + 2 * noisy / 4))
    assert theory.dcgd_stepsize(L, ALPHA, OMEGA, "nonconvex") == pytest.approx(1 / total)
    memory = 4 * max(beta * OMEGA * L * ALPHA**2) / (4 * 0.125)
    assert theory.diana_stepsize(L, ALPHA, OMEGA) == pytest.approx(1 / (total + 2 * noisy / 4 + memory))
    assert theory.diana_stepsize(L, ALPHA, OMEGA, beta / 2, "convex") == pytest.approx(
        0.25 / (total + 2 * noisy / 4 + memory)
    )
    # Corollary 4: equal alpha and omega give 1 / (4 (L_bar + 6 omega max L / n) alpha^2)
    assert theory.diana_stepsize(L, 0.1, 3.0, regime="convex") == pytest.approx(25 / (4 + 6 * 3 * 9 / 4))


def test_without_compression_the_stepsizes_are_those_of_gradient_descent() -> None:
    plain = theory.gd_stepsize(L, ALPHA)
    for rule in (theory.dcgd_stepsize, theory.diana_stepsize):
        assert rule(L, ALPHA, 0.0) == pytest.approx(plain)
        assert rule(L, ALPHA, 0.0, regime="nonconvex") == pytest.approx(plain)
        assert rule(L, ALPHA, 0.0, regime="convex") == pytest.approx(plain / 4)
        assert rule(L, 0.0, 1.0) == np.inf


@pytest.mark.parametrize("regime", ["strong", "convex", "nonconvex"])
def test_more_compression_or_more_sharing_means_smaller_stepsizes(regime: theory.Regime) -> None:
    for rule in (theory.dcgd_stepsize, theory.diana_stepsize):
        found = [rule(L, 0.5, omega, regime=regime) for omega in (0.0, 1.0, 10.0, 100.0)]
        assert found == sorted(found, reverse=True)
        assert rule(L, 0.1, 2.0, regime=regime) == pytest.approx(100 * rule(L, 1.0, 2.0, regime=regime))
    beta = theory.diana_beta(OMEGA)
    assert theory.diana_stepsize(L, ALPHA, OMEGA) < theory.dcgd_stepsize(L, ALPHA, OMEGA)
    assert (np.diff(beta[np.argsort(OMEGA)]) < 0).all()


def test_nonconvex_stepsizes() -> None:
    """Equal clients: Theorem 9 as printed, eta = omega (1 + omega) (1 + 2 (1 + omega)) / n. Unequal ones: smaller."""
    eta = 3 * 4 * 9 / 4
    expected = min(0.5 / np.sqrt(eta), 2 / (np.sqrt(1 + 8 * eta) + 1)) / 2
    assert theory.diana_stepsize(np.full(4, 2.0), 1.0, 3.0, regime="nonconvex") == pytest.approx(expected)
    assert theory.diana_stepsize([0.5, 3.5, 0.5, 3.5], 1.0, 3.0, regime="nonconvex") < expected
    short, long = (theory.dcgd_stepsize(L, 1.0, 3.0, "nonconvex", rounds=rounds) for rounds in (1, 10_000))
    assert long < short <= theory.gd_stepsize(L, 1.0)
    assert (1 + 2 * 4 * long**2 * 27 / 4) ** 10_000 <= np.e  # the growth of Theorem 8's bound
    with pytest.raises(PolyfedError, match="one omega and one beta"):
        theory.diana_stepsize(L, 1.0, OMEGA, regime="nonconvex")
    with pytest.raises(PolyfedError, match=r"beta must lie in \[0.25, 0.28125\]"):
        theory.diana_stepsize(L, 1.0, 3.0, 0.5, regime="nonconvex")


def test_rounds_are_the_least_that_the_bound_needs() -> None:
    gd = theory.gd_rounds(1e-6, 5.0, L, MU, ALPHA)
    rate = theory.gd_rate(L, MU, ALPHA)
    assert 5 * (1 - rate) ** gd <= 1e-6 < 5 * (1 - rate) ** (gd - 1)
    step = theory.diana_stepsize(L, ALPHA, OMEGA)
    diana = theory.diana_rounds(1e-6, 5.0, MU, ALPHA, OMEGA, step)
    found = theory.diana_bound(np.array([diana - 1, diana]), 5.0, MU, ALPHA, OMEGA, step)
    assert found[1] <= 1e-6 < found[0]
    assert theory.diana_rate(MU, ALPHA, OMEGA, step) == pytest.approx(min(step * 0.799 / 4, 0.125 / 2))
    assert theory.gd_rounds(1.0, 0.5, L, MU, ALPHA) == 0
    assert theory.gd_rounds(1e-9, 1.0, L, 0.0, 1.0) == np.inf
    assert theory.gd_rounds(1e-9, 1.0, 2.0, 2.0, 1.0) == 1
    assert theory.diana_rounds(1e-9, 1.0, 0.0, 1.0, 1.0, 0.1) == np.inf
