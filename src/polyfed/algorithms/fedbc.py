"""FedBC: every client's model may leave the global one by a tolerance; the multipliers also weigh the clients."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from polyfed.algorithms.contract import Algorithm, Total, Upload, algorithm
from polyfed.algorithms.shared import checks, mixture, newcomer, server
from polyfed.algorithms.shared.server import Optimizer
from polyfed.core.errors import PolyfedError
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Tree, add, scale, squared_norm, subtract
from polyfed.problem.client_values import client_values
from polyfed.problem.objective import Batch, Batching, Objective

if TYPE_CHECKING:
    from polyfed.problem.problem import Problem


LEAST = 1e-30
"""The weight of a client whose multiplier is zero: nothing beside any other, and a normal number of 32 bits, as are its
products with a model."""


class Bond(NamedTuple):
    """What holds a client near the global model: lambda_i, and gamma_i, the squared distance that it may keep."""

    multiplier: jax.Array
    tolerance: jax.Array


class BcState(NamedTuple):
    """x_i, and the client's bond."""

    own: Tree
    bond: Bond


class BcServer(NamedTuple):
    """z, and the mean multiplier of the last participants: what a newcomer is bound by."""

    params: Tree
    multiplier: jax.Array


@dataclass(frozen=True, kw_only=True)
class BondedMethod(Algorithm):
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
        if isinstance(self.tolerance, int | float) and not isinstance(self.tolerance, bool):
            checks.number(self, "tolerance")
        checks.flag(self, "grow")
        for name in ("dual_lr", "tolerance_lr"):
            value = getattr(self, name)
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
        checks.choice(self, "weighting", "multiplier", "size", "uniform")

    @property
    def tiny_weights(self) -> bool:
        return self.weighting == "multiplier"

    def resolve(self, problem: Problem) -> Any:
        """With gamma_i of every client; one number where all have the same."""
        values = client_values(self.tolerance, problem.federation, f"{self.name}: tolerance")
        return dataclasses.replace(self, tolerance=mixture.compact(values))

    def init_server(self, params: Tree) -> BcServer:
        return BcServer(params, first_bond(self).multiplier)

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


@algorithm("fedbc")
class FedBC(BondedMethod):
    """Beyond consensus: min sum_i f_i(x_i) s.t. |x_i - z|^2 <= gamma_i, by a primal-dual method.

    Bedi et al. 2022, Algorithms 1 and 2, with the paper's rule for gamma_i. A client deploys x_i.
    """

    start: Literal["server", "own"] = "server"
    """where local work starts: at z, as in the published code, or at the client's own x_i, as in the paper's text"""
    optimizer: Optimizer = "sgd"
    """any of Optax's, for the local steps; it begins anew in every round"""
    lr: Schedule = 0.1
    """beta, the stepsize of the local steps"""
    local_steps: int = 10
    """K_i, steps per round"""
    local_epochs: int | None = None
    """E, passes over the client's data per round, instead of local_steps"""
    batch: int | Literal["full"] = 20
    """rows per step, or "full" """
    replace: bool = False
    """draw batches with replacement"""
    adapt_steps: int = 0
    """steps of SGD on training rows that a client takes from x_i before it deploys it; above 0: FedBC-FineTune"""
    adapt_lr: float | None = None
    """the stepsize of those steps; by default lr"""

    def check(self) -> None:
        super().check()
        checks.local_work(self)
        checks.choice(self, "start", "server", "own")
        server.check_optimizer(self, "optimizer")
        checks.whole(self, "adapt_steps", 0)
        if self.adapt_lr is not None:
            checks.number(self, "adapt_lr", above=True)

    def init_client(self, params: Tree) -> BcState:
        return BcState(params, first_bond(self))

    def local(self, z: Tree, state: BcState, f: Objective, key: jax.Array) -> tuple[Upload, BcState]:
        start = z if self.start == "server" else state.own
        x, steps = self._oracle(start, z, state.bond.multiplier, f, key, Batching.of(self))  # line 7
        move = subtract(x, z)
        bond = dual_step(self, state.bond, squared_norm(move), f.round)  # line 8
        return Upload(move, bond_weight(self, bond, f), steps=steps), BcState(x, bond)  # line 9

    def personal(self, server: BcServer, state: BcState) -> Tree:
        return state.own

    def refine(self, model: Tree, f: Objective, key: jax.Array) -> Tree:
        """FedBC-FineTune: adapt_steps more, on f_i alone."""
        if self.adapt_steps == 0:
            return model
        lr = at(self.lr, f.round) if self.adapt_lr is None else self.adapt_lr
        return newcomer.fit(model, f, key, lr, Batching(self.batch, self.adapt_steps, None, self.replace))

    def own_share(self, state: BcState) -> jax.Array:
        return jnp.ones(())

    def adapt(self, server: BcServer, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """x from the global model, which stays, bound by the others' mean multiplier; then fine-tuned, if they are."""
        z = server.params
        x, _ = self._oracle(z, z, server.multiplier, f, key, work or Batching.of(self))
        return self.refine(x, f, jax.random.fold_in(key, newcomer.ASIDE))

    def _oracle(
        self, start: Tree, z: Tree, multiplier: jax.Array, f: Objective, key: jax.Array, work: Batching
    ) -> tuple[Tree, jax.Array]:
        """Algorithm 2: an optimiser's steps on f_i(x) + lambda_i (|x - z|^2 - gamma_i)."""
        rule = server.optimizer(self.optimizer, at(self.lr, f.round))

        def step(carry: tuple[Tree, Any], batch: Batch | None) -> tuple[Tree, Any]:
            x, memory = carry
            updates, memory = rule.update(lagrangian_gradient(x, z, multiplier, f, batch), memory, x)
            return optax.apply_updates(x, updates), memory

        (x, _), steps = f.train(step, (start, rule.init(start)), key, work)
        return x, steps


def lagrangian_gradient(x: Tree, z: Tree, multiplier: jax.Array, f: Objective, batch: Batch | None) -> Tree:
    """grad f_i(x) + 2 lambda_i (x - z)."""
    return add(f.grad(x, batch), scale(2 * multiplier, subtract(x, z)))


def dual_step(method: Any, bond: Bond, squared_distance: jax.Array, round: jax.Array) -> Bond:
    """(11) for lambda_i, and a gradient step of the Lagrangian for gamma_i; both from the values before the step."""
    rate = at(method.dual_lr, round)
    multiplier = bond.multiplier + rate * (squared_distance - bond.tolerance)
    tolerance = bond.tolerance
    if method.grow:
        growth = rate if method.tolerance_lr is None else at(method.tolerance_lr, round)
        tolerance = tolerance + growth * bond.multiplier
    return Bond(_projected(method, multiplier), tolerance)


def bond_weight(method: Any, bond: Bond, f: Objective) -> jax.Array | float:
    """The client's weight in the average.

    A multiplier of zero counts as one that is too small to matter beside any other: where all are zero, the average is
    the uniform one.
    """
    if method.weighting != "multiplier":
        return f.weight(method.weighting)
    return jnp.maximum(bond.multiplier, LEAST)


def first_bond(method: Any) -> Bond:
    return Bond(_projected(method, jnp.asarray(method.multiplier)), jnp.zeros(()))


def _projected(method: Any, multiplier: jax.Array) -> jax.Array:
    """The multiplier in [lambda_min, lambda_max]."""
    return jnp.clip(multiplier, method.multiplier_min, method.multiplier_max)
