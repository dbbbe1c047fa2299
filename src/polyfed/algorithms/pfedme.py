"""pFedMe: personal models near a global one, which minimises the mean of the clients' Moreau envelopes."""

from __future__ import annotations

import jax
from jax import lax

from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import checks
from polyfed.algorithms.shared.kept_model import KeptModel
from polyfed.algorithms.shared.local_work import LocalWork, Weighted
from polyfed.algorithms.shared.server import GlobalModel, SendsModel
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Tree, add, descend, mix, scale, subtract
from polyfed.problem.objective import Batch, Batching, Objective


@algorithm("pfedme")
class PFedMe(LocalWork, Weighted, SendsModel):
    """Personal models by Moreau envelopes: theta_i minimises f_i(theta) + penalty/2 |theta - w|^2, w follows them.

    Dinh, Tran, Nguyen 2020, Algorithm 1. A client's state is theta_i, which it deploys.
    """

    penalty: float = 15.0
    """lambda, how strongly theta_i is held near w"""
    inner_steps: int = 5
    """K, gradient steps on each batch towards theta_i"""
    inner_lr: float = 0.05
    """the stepsize of those steps; below 2 / (L + penalty)"""
    lr: Schedule = 0.01
    """eta, the stepsize of w_i; lr * penalty is the share of the way to theta_i, best at most 1"""
    beta: float = 1.0
    """the share of the way that the server goes to the mean of the w_i"""
    local_steps: int = 10
    """R, local rounds per round"""

    def check(self) -> None:
        checks.local_work(self)
        checks.number(self, "penalty", above=True)
        checks.whole(self, "inner_steps")
        checks.number(self, "inner_lr", above=True)
        checks.number(self, "beta", above=True)

    def init_client(self, params: Tree) -> KeptModel:
        return KeptModel.start(params)  # theta_i

    def local(self, w: Tree, state: KeptModel, f: Objective, key: jax.Array) -> tuple[Upload, KeptModel]:
        stride = at(self.lr, f.round) * self.penalty

        def step(carry: tuple[Tree, Tree], batch: Batch | None) -> tuple[Tree, Tree]:
            w_i, theta = carry
            theta = self._proximal(theta, w_i, f, batch)  # theta_i(w_i), approximately
            return mix(stride, theta, w_i), theta  # w_i <- w_i - eta lambda (w_i - theta_i)

        (w_i, theta), steps = f.train(step, (w, w), key, self.work)  # theta_i starts at w
        return Upload(subtract(w_i, w), f.weight(self.weighting), steps=steps), KeptModel.after(theta)

    def update(self, server: GlobalModel, total: Total) -> GlobalModel:
        return GlobalModel(add(server.params, scale(self.beta, total.mean)))  # (1 - beta) w + beta mean w_i

    def personal(self, server: GlobalModel, state: KeptModel) -> Tree:
        return state.beside(server.params)

    def own_share(self, state: KeptModel) -> jax.Array:
        return state.share

    def adapt(self, server: GlobalModel, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """theta_i of the global model, which stays: K steps on each batch."""
        w = server.params
        return f.train(lambda theta, batch: self._proximal(theta, w, f, batch), w, key, work or self.work)[0]

    def _proximal(self, theta: Tree, w: Tree, f: Objective, batch: Batch | None) -> Tree:
        """K gradient steps on f_i(theta; batch) + penalty/2 |theta - w|^2."""

        def step(_: jax.Array, theta: Tree) -> Tree:
            pull = scale(self.penalty, subtract(theta, w))
            return descend(theta, self.inner_lr, add(f.grad(theta, batch), pull))

        return lax.fori_loop(0, self.inner_steps, step, theta)
