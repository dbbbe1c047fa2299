"""Per-FedBC: FedBC whose local work is meta-learning, so that one step leads to a good model of each client."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

import jax
import jax.numpy as jnp

from polyfed.algorithms import checks, newcomer
from polyfed.algorithms.base import Total, Upload, algorithm
from polyfed.algorithms.fedbc import (
    BcServer,
    Bond,
    BondedMethod,
    averaged,
    bond_weight,
    check_bond,
    dual_step,
    first_bond,
    lagrangian_gradient,
    own_bond,
    tolerances,
)
from polyfed.objective import Batch, Batching, Objective
from polyfed.schedules import Schedule, at
from polyfed.trees import Tree, descend, squared_norm, subtract

if TYPE_CHECKING:
    from polyfed.problem import Problem


@algorithm("perfedbc")
class PerFedBC(BondedMethod):
    """FedBC with meta-learning in its local work: the global model is trained to be good after a step of each client.

    Bedi et al. 2022, Algorithm 3. A client deploys the global model after adapt_steps on its training rows.
    """

    weighting: Literal["multiplier", "size", "uniform"] = "multiplier"
    """the weight of a client in the average: its new lambda_i as in the paper, n_i, or one for all"""
    lr: Schedule = 0.01
    """beta, the stepsize of the local meta-steps"""
    inner_lr: float = 0.01
    """alpha, the stepsize of the adaptation"""
    inner_steps: int = 1
    """J, steps of the adaptation in a meta-step"""
    adapt_steps: int = 1
    """steps with inner_lr, on training rows, that make the model which a client deploys"""
    local_steps: int = 10
    """K, meta-steps per round"""
    local_epochs: int | None = None
    """passes over the client's data per round, instead of local_steps"""
    batch: int | Literal["full"] = 20
    """rows of each of a step's batches, or "full" """
    replace: bool = False
    """draw batches with replacement"""
    deploys_adapted = True

    def check(self) -> None:
        check_bond(self)
        checks.local_work(self)
        checks.number(self, "inner_lr")
        checks.whole(self, "inner_steps")
        checks.whole(self, "adapt_steps")

    def resolve(self, problem: Problem) -> PerFedBC:
        return dataclasses.replace(self, tolerance=tolerances(self, problem))

    def init_server(self, params: Tree) -> BcServer:
        return BcServer(params, first_bond(self).multiplier)

    def init_client(self, params: Tree) -> Bond:
        return first_bond(self)

    def prepare(self, bond: Bond, f: Objective, key: jax.Array) -> Bond:
        return own_bond(self, bond, f)

    def broadcast(self, server: BcServer) -> Tree:
        return server.params

    def local(self, z: Tree, bond: Bond, f: Objective, key: jax.Array) -> tuple[Upload, Bond]:
        lr, inner = at(self.lr, f.round), Batching(self.batch, self.inner_steps, None, self.replace)
        aside = jax.random.fold_in(key, newcomer.ASIDE)

        def descent(w: Tree, batch: Batch | None) -> Tree:
            return descend(w, self.inner_lr, lagrangian_gradient(w, z, bond.multiplier, f, batch))  # line 9

        def step(carry: tuple[Tree, jax.Array], batch: Batch | None) -> tuple[Tree, jax.Array]:
            w, count = carry
            adapted, _ = f.train(descent, w, jax.random.fold_in(aside, count), inner)
            return descend(w, lr, f.grad(adapted, batch)), count + 1  # line 11

        (x, _), steps = f.train(step, (z, jnp.zeros((), jnp.int32)), key, Batching.of(self))
        move = subtract(x, z)
        bond = dual_step(self, bond, squared_norm(move), f.round)  # line 14
        return Upload(move, bond_weight(self, bond, f), steps=steps), bond

    def update(self, server: BcServer, total: Total) -> BcServer:
        return averaged(self, server, total)  # line 15

    def personal(self, server: BcServer, bond: Bond) -> Tree:
        return server.params

    def adapt(self, server: BcServer, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """adapt_steps gradient steps from the global model, on the client's training rows."""
        work = work or Batching(self.batch, self.adapt_steps, None, self.replace)
        return newcomer.fit(server.params, f, key, self.inner_lr, work)
