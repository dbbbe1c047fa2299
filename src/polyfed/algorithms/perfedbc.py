"""Per-FedBC: FedBC whose local work is meta-learning, so that one step leads to a good model of each client."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from polyfed.algorithms.contract import Upload, algorithm
from polyfed.algorithms.shared import checks, newcomer
from polyfed.algorithms.shared.bonds import BcServer, BcState, BondedMethod, lagrangian_gradient
from polyfed.algorithms.shared.kept_model import KeptModel
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Tree, descend, squared_norm, subtract
from polyfed.problem.objective import Batch, Batching, Objective


@algorithm("perfedbc")
class PerFedBC(BondedMethod):
    """FedBC with meta-learning in its local work: the global model is trained to be good after a step of each client.

    Bedi et al. 2022, Algorithm 3. A client deploys the global model, or x_i, after adapt_steps on its training rows.
    """

    deploy: Literal["global", "own"] = "global"
    """the model that a client adapts and deploys: z, which the method trains for that, or its own x_i"""
    lr: Schedule = 0.01
    """beta, the stepsize of the local meta-steps"""
    inner_lr: float = 0.01
    """alpha, the stepsize of the adaptation"""
    inner_steps: int = 1
    """J, steps of the adaptation in a meta-step"""
    adapt_steps: int = 1
    """steps with inner_lr, on training rows, that make the model which a client deploys of z or x_i"""
    local_steps: int = 10
    """K, meta-steps per round"""

    def check(self) -> None:
        BondedMethod.check(self)
        checks.number(self, "inner_lr")
        checks.whole(self, "inner_steps")
        checks.whole(self, "adapt_steps")

    def init_client(self, params: Tree) -> BcState:
        return BcState(KeptModel.start(params) if self.deploy == "own" else None, self.first_bond())

    def local(self, z: Tree, state: BcState, f: Objective, key: jax.Array) -> tuple[Upload, BcState]:
        x, steps = self._meta_steps(z, state.bond.multiplier, f, key, self.work)  # line 13
        move = subtract(x, z)
        bond = self.dual_step(state.bond, squared_norm(move), f.round)  # line 14
        own = KeptModel.after(x) if self.deploy == "own" else None
        return Upload(move, self.weight(bond, f), steps=steps), BcState(own, bond)

    def personal(self, server: BcServer, state: BcState) -> Tree:
        return server.params if state.own is None else state.own.beside(server.params)

    def refine(self, model: Tree, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """adapt_steps gradient steps on the client's training rows."""
        return newcomer.fit(model, f, key, self.inner_lr, work or self.steps_of(self.adapt_steps))

    def adapt(self, server: BcServer, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """The global model, or what a round makes of it under the others' mean multiplier, adapted."""
        if self.deploy == "global":
            return self.refine(server.params, f, key, work)
        x, _ = self._meta_steps(server.params, server.multiplier, f, key, work or self.work)
        return self.refine(x, f, jax.random.fold_in(key, newcomer.ASIDE))

    def _meta_steps(
        self, z: Tree, multiplier: jax.Array, f: Objective, key: jax.Array, work: Batching
    ) -> tuple[Tree, jax.Array]:
        lr, inner = at(self.lr, f.round), self.steps_of(self.inner_steps)
        aside = jax.random.fold_in(key, newcomer.ASIDE)

        def descent(w: Tree, batch: Batch | None) -> Tree:
            return descend(w, self.inner_lr, lagrangian_gradient(w, z, multiplier, f, batch))  # line 9

        def step(carry: tuple[Tree, jax.Array], batch: Batch | None) -> tuple[Tree, jax.Array]:
            w, count = carry
            adapted, _ = f.train(descent, w, jax.random.fold_in(aside, count), inner)
            return descend(w, lr, f.grad(adapted, batch)), count + 1  # line 11

        (x, _), steps = f.train(step, (z, jnp.zeros((), jnp.int32)), key, work)
        return x, steps
