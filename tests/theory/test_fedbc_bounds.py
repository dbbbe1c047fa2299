"""FedBC's bounds against the method: (94) as printed fails, repaired it holds, and so does (97)."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from polyfed import theory


def printed_94(delta: float, beta: float, L: np.ndarray, high: float) -> float:
    """(94) for T to infinity, exact solves and alpha to 0: the delta term alone, with S = N."""
    return delta**2 * (len(L) - 1) / ((1 - high / (4 * L.min())) ** 2 * len(L)) * float(np.sum((beta * L) ** -4.0))


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_94_as_printed_fails_once_the_losses_are_scaled(scale: float) -> None:
    """f_i = s h_i (x - c_i)^2 / 2 with multipliers s lambda_i, from FedBC's own fixed point: 10.46 against 7.62."""
    beta, h, c, lam = 1.9, scale * np.array([1.0, 1.85]), np.array([-1.0, 1.0]), scale * np.array([1.91, 1.91])
    pull = lam * h / (h + 2 * lam)
    z = start = pull @ c / pull.sum()
    for _ in range(20):
        x = (h * c + 2 * lam * z) / (h + 2 * lam)
        z = lam @ x / lam.sum()
    assert z == pytest.approx(start, abs=1e-14)
    found = np.mean(h * (z - c)) ** 2
    delta = max(lam[0] * abs(h[0] * (x - c[0]) - h[1] * (x - c[1])) for x in (-1.0, 1.0))  # on [-1, 1]
    run = theory.FedbcRun(L=h, low=lam[0], high=lam[1], gap=0.0, discrepancy=delta)
    printed = printed_94(delta / scale**2, beta, h / scale, lam[1] / scale)
    assert printed_94(delta, beta, h, lam[1]) == pytest.approx(printed)  # the same at every scale
    assert found == pytest.approx(scale**2 * 0.011621, rel=1e-3)
    assert printed == pytest.approx(7.6178, rel=1e-3)
    assert (found > printed) == (scale > 1)
    assert found < theory.fedbc_bound(np.inf, run)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(3, 60))])
def test_94_repaired_and_97_hold_along_fedbc(seed: int) -> None:
    """Quadratics in the plane, exact and inexact solves, moving multipliers, tolerances; the bounds scale as they."""
    rng = np.random.default_rng(seed)
    n, T, scale = int(rng.integers(2, 6)), 40, 10.0 ** rng.uniform(-1, 1)
    turns = np.linalg.qr(rng.normal(size=(n, 2, 2)))[0]
    H = scale * np.einsum("nij,nj,nkj->nik", turns, rng.uniform(0.05, 1, (n, 2)), turns)
    L, c = np.linalg.eigvalsh(H)[:, -1], rng.normal(size=(n, 2)) * rng.choice([0.1, 1.0])
    low = L.max() * rng.uniform(1.1, 2)
    high, alpha = low * rng.uniform(1, 2), scale * rng.choice([0.0, 0.01, 0.1])
    tolerance, epsilon = rng.uniform(0, 0.5, n), scale**2 * rng.choice([0.0, 1e-3])
    z = c.mean(axis=0)
    radius = 2 * (np.linalg.norm(c, axis=1).max() + np.sqrt(epsilon) / low)
    x, lam, points, value = np.tile(z, (n, 1)), rng.uniform(low, high, n), [], []
    gap = np.mean(np.einsum("ni,nij,nj->n", z - c, H, z - c)) / 2
    for _ in range(T):
        value.append(np.sum(np.mean(np.einsum("nij,nj->ni", H, z - c), axis=0) ** 2))
        slack = np.sqrt(epsilon) * (lambda e: e / np.linalg.norm(e, axis=1, keepdims=True))(rng.normal(size=(n, 2)))
        right = np.einsum("nij,nj->ni", H, c) + 2 * lam[:, None] * z + slack
        x = np.linalg.solve(H + 2 * lam[:, None, None] * np.eye(2), right[..., None])[..., 0]
        distance = np.sum((x - z) ** 2, axis=1)
        own = np.sum(np.einsum("nij,nj->ni", H, x - c) ** 2, axis=1)
        assert (own <= theory.fedbc_local_bound(lam, distance, epsilon) + 1e-12).all()
        if epsilon == 0:
            np.testing.assert_allclose(2 * own, theory.fedbc_local_bound(lam, distance), rtol=1e-8, atol=1e-12)
        lam = np.clip(lam + alpha * (distance - tolerance), low, high)
        z = lam @ x / lam.sum()
        points.append(np.vstack([x, z]))
    assert np.linalg.norm(np.concatenate(points), axis=1).max() <= radius
    delta = max(
        np.linalg.norm(a * H[i] @ c[i] - b * H[j] @ c[j]) + np.linalg.norm(a * H[i] - b * H[j], 2) * radius
        for i in range(n)
        for j in range(i)
        for a in (low, high)
        for b in (low, high)
    )
    run = theory.FedbcRun(
        L=L,
        low=low,
        high=high,
        gap=float(gap),
        discrepancy=float(delta),
        tolerance=tolerance,
        diameter=2 * radius,
        dual_stepsize=float(alpha),
        epsilon=float(epsilon),
    )
    assert np.mean(value) <= theory.fedbc_bound(T, run)
    assert max(np.sum((rows[:-1] - rows[-1]) ** 2, axis=1).max() for rows in points) <= run.consensus


def test_corollary_4_7_fails_in_its_own_model() -> None:
    """(101) unrolls lambda <- [lambda + alpha I]_+ to alpha [sum I]_+; kept within the constraint first, it is more."""
    multiplier, signs = 0.0, [-1, -1, -1, 1, 1]
    for sign in signs:
        multiplier = max(multiplier + 0.1 * sign, 0.0)
    assert multiplier == pytest.approx(0.2)
    assert 0.1 * max(sum(signs), 0) == 0


def test_multipliers_below_a_smoothness_are_refused() -> None:
    with pytest.raises(pf.PolyfedError, match="multipliers must lie above every L_i"):
        theory.fedbc_bound(10, theory.FedbcRun(L=[1.0, 3.0], low=2.0, high=4.0, gap=1.0, discrepancy=1.0))
