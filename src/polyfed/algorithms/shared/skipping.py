"""What Scaffnew and Scafflix share: stepsizes and a probability to communicate, from the theory or as given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from polyfed import theory
from polyfed.algorithms.shared import checks, mixture
from polyfed.algorithms.shared.local_work import Steps
from polyfed.algorithms.shared.mixture import MixtureMethod
from polyfed.algorithms.shared.per_client import resolved
from polyfed.algorithms.shared.trust import ControlVariates
from polyfed.core.errors import PolyfedError
from polyfed.problem.objective import Objective
from polyfed.problem.problem import Problem

SKIP = 0.6
"""p over sqrt(min_i gamma_i mu_i). Theory gives the order of p only; the factor was chosen on mushrooms (docs page)."""

SELDOM = 1e-3
"""The least p by default. Without strong convexity theory says 0, and clients would never communicate."""


def default_probability(gamma: np.ndarray, mu: np.ndarray) -> float:
    """SKIP sqrt(min_i gamma_i mu_i), but no less than SELDOM."""
    return max(SKIP * theory.scafflix_probability(gamma, mu), SELDOM)


class Skipping(NamedTuple):
    """gamma_i, and the probability to communicate after a step."""

    lr: float | np.ndarray
    p: float


@dataclass(frozen=True, kw_only=True)
class SkippingMethod(ControlVariates, Steps):
    """A method whose clients communicate after a step with probability p only."""

    lr: float | list[float] | None = None
    """gamma_i: one number, or one for each client; by default 1 / L_i, with batches 1 / A_i"""
    p: float | None = None
    """the probability to communicate after a step; by default 0.6 sqrt(min_i gamma_i mu_i) (order: Corollary 2), and
    at least 0.001"""
    steps: Literal["random", "fixed"] = "random"
    """local steps per round: geometric with parameter p, the same for all; or 1/p, rounded"""
    accuracy: float | None = None
    """epsilon: with batches, stepsizes so small that the noise takes up half of it at most (Corollary 2)"""

    def check_skipping(self) -> None:
        checks.batches(self)
        if self.lr is not None:
            checks.of_clients(self, "lr")
        if self.p is not None:
            checks.number(self, "p", 0.0, 1.0, above=True)
        if self.accuracy is not None:
            checks.number(self, "accuracy", above=True)

    def skipping(self, problem: Problem) -> Skipping:
        """The stepsizes and the probability, those that were left to the theory filled in; too large ones are named."""
        if self.lr is None:
            mixture.constants(self, problem, "lr")
            gamma = self._theory_stepsizes(problem)
            lr = mixture.compact(gamma)
        else:
            gamma = np.asarray(self.lr, np.float64)
            lr = float(gamma) if gamma.ndim == 0 else gamma
            if gamma.ndim and gamma.shape != (len(problem),):
                raise PolyfedError(
                    f"{self.name}: lr has {gamma.size} values, expected one for each of {len(problem)} clients"
                )
            if problem.model.design is not None:
                mixture.warn_above(self, "lr", gamma, self._theory_stepsizes(problem), "Theorem 1")
        if self.p is not None:
            return Skipping(lr, self.p)
        mu = mixture.constants(self, problem, "p").convexity
        return Skipping(lr, default_probability(np.broadcast_to(gamma, mu.shape), mu))

    def steps_until_coin(self, f: Objective) -> jax.Array:
        """The steps until the coin says to communicate: one draw for all, geometric with parameter p, at least 1."""
        p = self.probability
        if self.steps == "fixed":
            return jnp.maximum(1, jnp.round(1.0 / p)).astype(jnp.int32)
        p = p.astype(jnp.float32)  # so that a run in float64 flips the same coins
        u = jax.random.uniform(f.shared_key, (), jnp.float32, minval=np.finfo(np.float32).tiny)
        failures = jnp.floor(jnp.log(u) / jnp.log1p(-jnp.minimum(p, 1 - 1e-6)))
        return jnp.where(p >= 1, 1, 1 + failures).astype(jnp.int32)

    @property
    def probability(self) -> jax.Array:
        """p, once the method is resolved."""
        return jnp.asarray(resolved(self.p))

    def _theory_stepsizes(self, problem: Problem) -> np.ndarray:
        """1 / L_i; with batches 1 / A_i, or less where an accuracy is asked for (Corollary 2)."""
        if self.batch == "full":
            return 1 / problem.constants.smoothness
        solution = None
        if self.accuracy is not None and isinstance(self, MixtureMethod):
            solution = problem.solve(self.weights(problem), plm_tolerance=self.local_training.exactness)
        elif self.accuracy is not None:
            solution = problem.solve(1.0)
        A, C = problem.sampled_constants(self.batch, solution, replace=self.replace, even=self.even)
        return theory.scafflix_stepsizes(A, problem.constants.convexity, C, self.accuracy)
