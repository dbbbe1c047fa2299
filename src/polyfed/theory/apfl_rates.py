"""APFL's convergence (Deng, Kamani, Mahdavi 2020): Theorem 2 with the constants of its proof, and the rates of
Theorems 3 to 6 and Corollaries 1 and 2.

The rates leave out numerical constants, as the paper does. Where a term of the paper has the wrong unit, and so would
say another thing for losses in other units, the function has the factor that is missing: see docs/errata.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from polyfed.core.errors import PolyfedError
from polyfed.theory.inputs import Vector, clients, count, number


@dataclass(frozen=True, kw_only=True)
class ApflRun:
    """A run of APFL as its theorems see it. `alpha`, `diversity` and `gap` are one number, or one for each client."""

    clients: int
    """n"""
    participants: int
    """K of a round"""
    local_steps: int
    """tau"""
    iterations: ArrayLike
    """T, all steps; a number, or several for a curve"""
    L: float
    mu: float = 0.0
    noise: float = 0.0
    """sigma"""
    alpha: ArrayLike = 1.0
    """the weight of the client's own model"""
    diversity: ArrayLike = 0.0
    """zeta_i: the largest |grad F - grad f_i|^2"""
    gap: ArrayLike = 0.0
    """Delta_i = |v_i* - w*|^2"""
    start: ArrayLike = 1.0
    """the squared distance of the start from the optimum; where losses are not convex, the start's excess loss"""
    gradient: float = 0.0
    """G, which no gradient exceeds"""
    discrepancy: float = 0.0
    """Gamma: the largest |grad F(x) - grad F(y)|^2"""

    def __post_init__(self) -> None:
        for name in ("L", "mu", "noise", "gradient", "discrepancy"):
            number(name, getattr(self, name))
        for name in ("clients", "participants", "local_steps"):
            count(name, getattr(self, name), 1)
        if self.participants > self.clients:
            raise PolyfedError(f"participants must be at most {self.clients}, found {self.participants}")
        if np.any(np.asarray(self.iterations) < 1):
            raise PolyfedError(f"iterations must be at least 1, found {np.min(self.iterations):g}")

    @property
    def T(self) -> Vector:
        return np.asarray(self.iterations, np.float64)

    @property
    def zeta(self) -> float:
        """The sum of the zeta_i."""
        values = np.asarray(self.diversity, np.float64)
        return float(values.sum() if values.size > 1 else self.clients * values)

    @property
    def sampling(self) -> float:
        """What drawing K of n clients adds to the variance of a step, times K: tau (zeta/n) (n - K)/(n - 1)."""
        n, K = self.clients, self.participants
        return self.local_steps * self.zeta / n * (n - K) / max(n - 1, 1)

    @property
    def part(self) -> float:
        """b = min(K/n, 1/2)."""
        return min(self.participants / self.clients, 0.5)


class ApflRate(NamedTuple):
    """What is left of the start, of the noise, of the clients' drift, and what stays for ever."""

    start: Vector
    noise: Vector
    drift: Vector
    residual: Vector

    @property
    def total(self) -> Vector:
        return self.start + self.noise + self.drift + self.residual


def apfl_global_bound(run: ApflRun) -> Vector:
    """Theorem 2 with all clients (Theorem 8), constants and all: E F - min F of the global model's weighted average.

    At `apfl_schedule`, weights (t + a)^2 and T >= 1 steps: (1/S)(mu a^3/16 |w^1 - w*|^2 + (1536 kappa^2 a^2/(mu
    (a-1)^2)) tau (sigma^2 + 2 tau zeta/n)(T + 16/(a+1) + 16 ln(T+a)) + 8 T (T+2a+1) sigma^2/(mu n)). The last term is
    sigma^2/(mu n T): the paper drops its mu, and states all of it for sampled clients too, whose noise it leaves out.
    """
    mu, a = _strongly(run)
    if run.participants < run.clients:
        raise PolyfedError(f"Theorem 2's constants are for all {run.clients} clients, found {run.participants} of them")
    T, S = run.T, _weights(run.T, a)
    wandering = run.local_steps * (run.noise**2 + 2 * run.local_steps * run.zeta / run.clients)
    drift = 1536 * (run.L / mu) ** 2 * a**2 / (mu * (a - 1) ** 2) * wandering
    drift = drift * (T + 16 / (a + 1) + 16 * np.log(T + a))
    noise = 8 * T * (T + 2 * a + 1) * run.noise**2 / (mu * run.clients)
    return (mu * a**3 / 16 * np.max(run.start) + drift + noise) / S


def apfl_personal_rate(run: ApflRun) -> ApflRate:
    """Theorem 3: E f_i - min f_i of client i's mixture, for alpha_i near 1; all terms divided by b.

    mu D a^3/T^3 + alpha^2 sigma^2/(mu T) + (1-alpha)^2 (zeta_i/mu + kappa L Delta_i), and the global model's part times
    (1-alpha)^2. The paper writes mu/T^3: D, the start's squared distance, and the power of a are left out there. Where
    clients are sampled, it leaves out their noise, which is kappa^2 tau zeta/(mu n K T) of the global model's part.
    """
    mu, a = _strongly(run)
    zeta_i, gap = clients(diversity=run.diversity, start=run.gap)
    return _mixture(run, a, zeta_i / mu + run.L**2 / mu * gap)


def apfl_free_rate(run: ApflRun) -> ApflRate:
    """Theorem 4: as Theorem 3 for any alpha_i, with gradients up to G: its residual is (1-alpha)^2 G^2/(mu b).

    At `apfl_schedule` with `any_alpha`.
    """
    mu, a = _strongly(run, 64)
    return _mixture(run, a, np.asarray(run.gradient**2 / mu))


def apfl_nonconvex_global_rate(run: ApflRun) -> ApflRate:
    """Theorem 5: the mean of E|grad F(w^t)|^2, all clients, stepsize 1/(2 sqrt(5) L sqrt(T)).

    L (F(w^1) - min F)/sqrt(T) + sigma^2/sqrt(T) + tau^2 (sigma^2 + sigma^2/n + zeta/n)/T; `start` is F(w^1) - min F.
    The paper has no tau in the last term, as if clients drifted no further in more steps, and no excess in the first.
    """
    T, n = run.T, run.clients
    wandering = run.noise**2 * (1 + 1 / n) + run.zeta / n
    return ApflRate(
        run.L * np.max(run.start) / np.sqrt(T), run.noise**2 / np.sqrt(T), run.local_steps**2 * wandering / T, 0 * T
    )


def apfl_nonconvex_rate(run: ApflRun) -> ApflRate:
    """Theorem 6: the mean of E|grad f_i|^2 along client i's mixtures, as `apfl_nonconvex_global_rate`.

    Its residual (1-alpha^2)^2 (zeta_i + Gamma) does not vanish; `start` is f_i's excess.
    """
    T, n, tau, s2 = run.T, run.clients, run.local_steps, run.noise**2
    alpha, zeta_i = clients(alpha=run.alpha, diversity=run.diversity)
    shared, own = s2 * (1 + 1 / n) + run.zeta / n, s2 * (1 + 1 / n) + zeta_i
    mixed, all_drift = alpha**4 * (1 - alpha) ** 2, (1 - alpha) ** 2
    drift = mixed * (tau**4 * shared / T**2 + tau**2 * own / T) + all_drift * tau**2 * shared / T
    noise = (alpha**4 * s2 + all_drift * s2 / n) / np.sqrt(T)
    residual = (1 - alpha**2) ** 2 * (zeta_i + run.discrepancy) + 0 * T
    return ApflRate(run.L * np.asarray(run.start, np.float64) / np.sqrt(T), noise, drift, residual)


def apfl_local_steps(iterations: int, clients: int, convex: bool = True) -> float:
    """The tau of Corollary 1, sqrt(T/K), and without convexity of Corollary 2, (T/n)^(1/4): more of them cost accuracy.

    With it, the drift of Theorem 3 is at most of the order of kappa^4 (sigma^2 + zeta_i + zeta/K)/(mu K T), and that of
    Theorem 6 of (sigma^2 + zeta/n)/sqrt(n T).
    """
    T, n = count("iterations", iterations, 1), count("clients", clients, 1)
    return float((T / n) ** (0.5 if convex else 0.25))


def _mixture(run: ApflRun, a: float, residual: Vector) -> ApflRate:
    """The terms that Theorems 3 and 4 share."""
    mu = run.mu
    alpha, zeta_i = clients(alpha=run.alpha, diversity=run.diversity)
    T, K, tau, s2, b, kappa = run.T, run.participants, run.local_steps, run.noise**2, run.part, run.L / mu
    other, mean = (1 - alpha) ** 2, run.zeta / K
    fall = np.minimum(1.0, (a / T) ** 3)
    drift = kappa**2 * tau * (s2 + tau * (zeta_i + mean)) + kappa**4 * tau * (s2 + 2 * tau * mean)
    return ApflRate(
        (mu + other * kappa * run.L * np.log(T + 1)) * np.asarray(run.start, np.float64) * fall / b,
        (alpha**2 * s2 / mu + other * kappa**2 * (s2 + run.sampling) / (mu * K)) / (b * T),
        other * drift / (mu * b * T**2),
        other * residual / b + 0 * T,
    )


def _weights(T: Vector, a: float) -> Vector:
    """sum over t = 1 .. T of (t + a)^2."""

    def squares(last: Vector | float) -> Vector:
        return np.asarray(last * (last + 1) * (2 * last + 1) / 6, np.float64)

    return squares(T) + 2 * a * T * (T + 1) / 2 + a**2 * T


def _strongly(run: ApflRun, times: int = 128) -> tuple[float, float]:
    """mu, and a = max(128 kappa, tau), or as many times kappa as are given."""
    if run.mu <= 0:
        raise PolyfedError("mu must be above 0: Theorems 2 to 4 need strong convexity")
    return run.mu, max(times * run.L / run.mu, run.local_steps)
