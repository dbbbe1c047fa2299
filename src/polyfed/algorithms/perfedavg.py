"""Per-FedAvg: a global model from which one gradient step leads to a good model of each client."""

from __future__ import annotations

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp

from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import checks, newcomer
from polyfed.algorithms.shared.local_work import LocalWork, Weighted
from polyfed.algorithms.shared.server import GlobalModel, SendsModel
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Tree, add, descend, scale, subtract
from polyfed.problem.objective import Batch, Batching, Objective


@algorithm("perfedavg")
class PerFedAvg(LocalWork, Weighted, SendsModel):
    """Meta-learning with local steps: the global model is trained to be good after one step of each client.

    Fallah, Mokhtari, Ozdaglar 2020, Algorithm 1, on F_i(w) = f_i(w - inner_lr grad f_i(w)).
    """

    variant: Literal["first-order", "hessian-free", "exact"] = "hessian-free"
    """the Hessian of F_i's gradient: left out (FO), a difference of gradients (HF), or exact"""
    lr: Schedule = 0.01
    """beta, the stepsize of the local meta-steps"""
    inner_lr: float = 0.01
    """alpha, the stepsize of the adaptation; 0 is FedAvg"""
    adapt_steps: int = 1
    """steps with inner_lr, on training rows, that make the model which a client deploys"""
    delta: float = 1e-3
    """the step of the difference of gradients (HF)"""
    local_steps: int = 10
    """tau, meta-steps per round"""

    def check(self) -> None:
        checks.local_work(self)
        checks.number(self, "inner_lr")
        checks.whole(self, "adapt_steps")
        checks.number(self, "delta", above=True)

    def init_client(self, params: Tree) -> None:
        return None

    def local(self, w: Tree, state: None, f: Objective, key: jax.Array) -> tuple[Upload, None]:
        lr, one = at(self.lr, f.round), self.one_batch
        aside = jax.random.fold_in(key, newcomer.ASIDE)

        def step(carry: tuple[Tree, jax.Array], batch: Batch | None) -> tuple[Tree, jax.Array]:
            y, count = carry
            first, third = jax.random.split(jax.random.fold_in(aside, count))  # of the batches D and D''
            adapted = newcomer.fit(y, f, first, self.inner_lr, one)  # w~
            gradient = f.grad(adapted, batch)  # on D', the batch that FedAvg would use
            if self.variant != "first-order":
                product, _ = f.train(partial(self._hessian_product, f, y, gradient), gradient, third, one)
                gradient = descend(gradient, self.inner_lr, product)
            return descend(y, lr, gradient), count + 1

        (y, _), steps = f.train(step, (w, jnp.zeros((), jnp.int32)), key, self.work)
        return Upload(subtract(y, w), f.weight(self.weighting), steps=steps), state

    def update(self, server: GlobalModel, total: Total) -> GlobalModel:
        return GlobalModel(add(server.params, total.mean))

    def personal(self, server: GlobalModel, state: None) -> Tree:
        return server.params

    def refine(self, model: Tree, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """adapt_steps gradient steps from the global model, on the client's training rows."""
        return newcomer.fit(model, f, key, self.inner_lr, work or self.steps_of(self.adapt_steps))

    def _hessian_product(self, f: Objective, w: Tree, direction: Tree, _: Tree, batch: Batch | None) -> Tree:
        """The Hessian of f_i at w times a direction, as a step of `train`: exact, or by a central difference."""
        if self.variant == "exact":
            return f.hessian_product(w, direction, batch)
        ahead = f.grad(descend(w, -self.delta, direction), batch)
        behind = f.grad(descend(w, self.delta, direction), batch)
        return scale(0.5 / self.delta, subtract(ahead, behind))
