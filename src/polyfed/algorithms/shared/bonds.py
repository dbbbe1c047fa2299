"""What holds a client near the global model in FedBC and Per-FedBC: a multiplier and a tolerance, and their steps."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import jax
import jax.numpy as jnp

from polyfed.algorithms.contract import Total
from polyfed.algorithms.shared import checks, mixture
from polyfed.algorithms.shared.kept_model import KeptModel
from polyfed.algorithms.shared.local_work import LocalWork
from polyfed.core.errors import PolyfedError
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Tree, add, scale, subtract
from polyfed.problem.objective import Batch, Objective
from polyfed.problem.problem import Problem

LEAST = 1e-30
"""The weight of a client whose multiplier is zero: nothing beside any other, and a normal number of 32 bits, as are its
products with a model."""


class Bond(NamedTuple):
    """What holds a client near the global model: lambda_i, and gamma_i, the squared distance that it may keep."""

    multiplier: jax.Array
    tolerance: jax.Array


class BcState(NamedTuple):
    """x_i, where the client keeps it, and the client's bond."""

    own: KeptModel | None
    bond: Bond


def kept(state: BcState) -> KeptModel:
    """x_i of a client that keeps it."""
    assert state.own is not None
    return state.own


class BcServer(NamedTuple):
    """z, and the mean multiplier of the last participants: what a newcomer is bound by."""

    params: Tree
    multiplier: jax.Array


@dataclass(frozen=True, kw_only=True)
class BondedMethod(LocalWork):
    """A method whose clients are bound to the global model by multipliers."""

    weighting: Literal["multiplier", "size", "uniform"] = "multiplier"
    """the weight of a client in the average: its new lambda_i as in the paper, n_i, or one for all"""
    tolerance: float | str | list[float] = 0.0
    """gamma_i, the squared distance to z that costs nothing: a number, one for each client, or a column of the data"""
    grow: bool = True
    """let gamma_i grow by tolerance_lr * lambda_i a round, as in the paper's experiments; else it stays"""
    tolerance_lr: Schedule | None = None
    """the stepsize of gamma_i; by default dual_lr, as in the paper's experiments"""
    multiplier: float = 0.0
    """lambda_i at the start"""
    dual_lr: Schedule = 0.001
    """alpha in FedBC, alpha_lambda in Per-FedBC, the stepsize of lambda_i; 0 keeps it fixed"""
    multiplier_min: float = 0.0
    """lambda_min, the least that lambda_i is projected to"""
    multiplier_max: float | None = None
    """lambda_max, the most that lambda_i is projected to; by default there is no such bound"""

    def check(self) -> None:
        checks.local_work(self)
        if isinstance(self.tolerance, int | float) and not isinstance(self.tolerance, bool):
            checks.number(self, "tolerance")
        for name, value in (("dual_lr", self.dual_lr), ("tolerance_lr", self.tolerance_lr)):
            if isinstance(value, int | float) and not isinstance(value, bool):
                checks.number(self, name)
            elif value is not None:
                checks.stepsize(self, name)
        for name in ("multiplier", "multiplier_min"):
            checks.number(self, name)
        if self.multiplier_max is not None:
            checks.number(self, "multiplier_max")
            if self.multiplier_max < self.multiplier_min:
                raise PolyfedError(
                    f"{self.name}: multiplier_max must be at least multiplier_min = {self.multiplier_min:g}, "
                    f"found {self.multiplier_max:g}"
                )

    def resolve(self, problem: Problem) -> Self:
        """With gamma_i of every client; one number where all have the same."""
        values = problem.client_values(self.tolerance, f"{self.name}: tolerance")
        return dataclasses.replace(self, tolerance=mixture.compact(values))

    def init_server(self, params: Tree) -> BcServer:
        return BcServer(params, self.first_bond().multiplier)

    def prepare(self, state: BcState, f: Objective, key: jax.Array) -> BcState:
        """The client's own tolerance."""
        own = jnp.asarray(f.own(self.tolerance), state.bond.tolerance.dtype)
        return state._replace(bond=state.bond._replace(tolerance=own))

    def broadcast(self, server: BcServer) -> Tree:
        return server.params

    def update(self, server: BcServer, total: Total) -> BcServer:
        """(13): z + the weighted mean of the participants' moves; and the mean of their multipliers, if these came."""
        multiplier = total.weight / total.count if self.weighting == "multiplier" else server.multiplier
        return BcServer(add(server.params, total.mean), multiplier)

    def first_bond(self) -> Bond:
        return Bond(self._projected(jnp.asarray(self.multiplier)), jnp.zeros(()))

    def dual_step(self, bond: Bond, squared_distance: jax.Array, round: jax.Array) -> Bond:
        """(11) for lambda_i, and a gradient step of the Lagrangian for gamma_i: both from the values before."""
        rate = at(self.dual_lr, round)
        multiplier = bond.multiplier + rate * (squared_distance - bond.tolerance)
        tolerance = bond.tolerance
        if self.grow:
            growth = rate if self.tolerance_lr is None else at(self.tolerance_lr, round)
            tolerance = tolerance + growth * bond.multiplier
        return Bond(self._projected(multiplier), tolerance)

    def weight(self, bond: Bond, f: Objective) -> jax.Array | float:
        """The client's weight in the average.

        A multiplier of zero counts as one that is too small to matter beside any other: where all are zero, the average
        is the uniform one.
        """
        if self.weighting != "multiplier":
            return f.weight(self.weighting)
        return jnp.maximum(bond.multiplier, LEAST)

    def _projected(self, multiplier: jax.Array) -> jax.Array:
        """The multiplier in [lambda_min, lambda_max]."""
        return jnp.clip(multiplier, self.multiplier_min, self.multiplier_max)


def lagrangian_gradient(x: Tree, z: Tree, multiplier: jax.Array, f: Objective, batch: Batch | None) -> Tree:
    """grad f_i(x) + 2 lambda_i (x - z)."""
    return add(f.grad(x, batch), scale(2 * multiplier, subtract(x, z)))
