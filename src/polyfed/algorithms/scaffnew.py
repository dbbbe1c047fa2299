"""Scaffnew (ProxSkip) and i-Scaffnew: local steps with control variates, and rare communication."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from polyfed import theory
from polyfed.algorithms.contract import Algorithm, Total, Upload, algorithm
from polyfed.algorithms.shared import checks, mixture
from polyfed.core import trees
from polyfed.core.errors import PolyfedError
from polyfed.core.trees import Tree
from polyfed.problem.objective import Batch, Batching, Objective

if TYPE_CHECKING:
    from polyfed.problem.problem import Problem


SKIP = 0.6
"""p over sqrt(min_i gamma_i mu_i). Theory gives the order of p only; the factor was chosen on mushrooms (docs page)."""


class ScaffnewServer(NamedTuple):
    """x, the common iterate after a communication."""

    params: Tree


class ScaffnewState(NamedTuple):
    """The control variate h_i, and the iterate that the client sent last."""

    control: Tree
    sent: Tree


@algorithm("scaffnew")
class Scaffnew(Algorithm):
    """Accelerated local training of one global model: communication with probability p only.

    Mishchenko et al. 2022. With a stepsize for each client it is i-Scaffnew (Yi et al. 2023, Algorithm 2).
    """

    lr: float | list[float] | None = None
    """gamma_i: one number (Scaffnew) or one for each client (i-Scaffnew); by default 1 / L_i, with batches 1 / A_i"""
    p: float | None = None
    """the probability to communicate after a step; by default 0.6 sqrt(min_i gamma_i mu_i) (order: Corollary 2)"""
    steps: Literal["random", "fixed"] = "random"
    """local steps per round: geometric with parameter p, the same for all; or 1/p, rounded"""
    batch: int | Literal["full"] = "full"
    """rows per step, or "full" """
    replace: bool = False
    """draw batches with replacement"""
    accuracy: float | None = None
    """epsilon: with batches, stepsizes so small that the noise takes up half of it at most (Corollary 2)"""

    def check(self) -> None:
        check_skipping(self)

    def resolve(self, problem: Problem) -> Scaffnew:
        return dataclasses.replace(self, **skipping(self, problem))

    def init_server(self, params: Tree) -> ScaffnewServer:
        return ScaffnewServer(params)

    def init_client(self, params: Tree) -> ScaffnewState:
        return ScaffnewState(trees.zeros_like(params), params)

    def broadcast(self, server: ScaffnewServer) -> Tree:
        return server.params

    def local(self, x: Tree, state: ScaffnewState, f: Objective, key: jax.Array) -> tuple[Upload, ScaffnewState]:
        gamma = f.own(self.lr)

        def step(y: Tree, batch: Batch | None) -> Tree:
            return trees.descend(y, gamma, trees.subtract(f.grad(y, batch), state.control))  # lines 6, 7

        y, steps = f.train(step, x, key, Batching(self.batch, 1, None, self.replace), count=local_steps(self, f))
        return Upload(y, jnp.asarray(1.0 / gamma), steps=steps), state._replace(sent=y)  # line 9

    def update(self, server: ScaffnewServer, total: Total) -> ScaffnewServer:
        return ScaffnewServer(total.mean)  # line 9: weights 1 / gamma_i

    def absorb(self, state: ScaffnewState, x: Tree, f: Objective) -> ScaffnewState:
        change = trees.scale(self.p / f.own(self.lr), trees.subtract(x, state.sent))
        return state._replace(control=trees.add(state.control, change))  # line 11

    def centre(self, x: Tree) -> Tree:
        return x

    @property
    def equal_weights(self) -> bool:
        return np.ndim(self.lr) == 0  # pyright: ignore[reportArgumentType]

    def personal(self, server: ScaffnewServer, state: ScaffnewState) -> Tree:
        return server.params

    def own_share(self, state: ScaffnewState) -> jax.Array:
        return jnp.zeros(())


def local_steps(method: Any, f: Objective) -> jax.Array:
    """The steps until the coin says to communicate: one draw for all, geometric with parameter p, at least 1."""
    if method.steps == "fixed":
        return jnp.maximum(1, jnp.round(1.0 / method.p)).astype(jnp.int32)
    p = jnp.asarray(method.p, jnp.float32)  # so that a run in float64 flips the same coins
    u = jax.random.uniform(f.shared_key, (), jnp.float32, minval=jnp.finfo(jnp.float32).tiny)
    failures = jnp.floor(jnp.log(u) / jnp.log1p(-jnp.minimum(p, 1 - 1e-6)))
    return jnp.where(p >= 1, 1, 1 + failures).astype(jnp.int32)


def skipping(method: Any, problem: Problem) -> dict[str, Any]:
    """The stepsizes gamma_i and the probability p that were left to the theory; warns where a stepsize is too large."""
    changes: dict[str, Any] = {}
    if method.lr is None:
        mixture.constants(method, problem, "lr")
        gamma = _stepsizes(method, problem)
        changes["lr"] = mixture.compact(gamma)
    else:
        gamma = np.asarray(method.lr, np.float64)
        changes["lr"] = float(gamma) if gamma.ndim == 0 else gamma
        if gamma.ndim and gamma.shape != (len(problem),):
            raise PolyfedError(
                f"{method.name}: lr has {gamma.size} values, expected one for each of {len(problem)} clients"
            )
        if problem.model.design is not None:
            mixture.warn_above(method, "lr", gamma, _stepsizes(method, problem), "Theorem 1")
    if method.p is None:
        mu = mixture.constants(method, problem, "p").convexity
        best = SKIP * theory.scafflix_probability(np.broadcast_to(gamma, mu.shape), mu)
        changes["p"] = max(best, 1e-3)
    return changes


def _stepsizes(method: Any, problem: Problem) -> np.ndarray:
    """1 / L_i; with batches 1 / A_i, or less where an accuracy is asked for (Corollary 2)."""
    if method.batch == "full":
        return 1 / problem.constants.smoothness
    solution = None
    if method.accuracy is not None:
        alpha = mixture.weights(method, problem) if method.mixture else 1.0
        solution = problem.solve(alpha, plm_tolerance=getattr(method, "plm_tolerance", 1e-12))
    A, C = problem.sampled_constants(method.batch, solution)
    return theory.scafflix_stepsizes(A, problem.constants.convexity, C, method.accuracy)


def check_skipping(method: Any) -> None:
    """The fields that Scaffnew and Scafflix share."""
    for name in ("lr", "p"):
        if isinstance(getattr(method, name), int | float | str):
            checks.number(method, name, 0.0, 1.0 if name == "p" else float("inf"), above=True)
    checks.choice(method, "steps", "random", "fixed")
    if method.accuracy is not None:
        checks.number(method, "accuracy", above=True)
    checks.flag(method, "replace")
