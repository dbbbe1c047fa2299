"""Minibatch SGD: all of a round's gradients are taken at the same point."""

from __future__ import annotations

import jax

from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import checks
from polyfed.algorithms.shared.local_work import LocalWork, Weighted
from polyfed.algorithms.shared.server import GlobalModel, SendsModel
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Tree, add, scale, zeros_like
from polyfed.problem.objective import Batch, Objective


@algorithm("minibatchsgd")
class MinibatchSGD(LocalWork, Weighted, SendsModel):
    """As many gradients as local SGD, all at the global model: one large step a round.

    The baseline of Woodworth, Patel, Srebro 2020: w <- w - lr mean of M K gradients of f_i(w; batch).
    """

    lr: Schedule = 0.1
    """eta, the stepsize of the step that a round takes"""
    local_steps: int = 10
    """K, batches per round"""

    def check(self) -> None:
        checks.local_work(self)

    def init_client(self, params: Tree) -> None:
        return None

    def local(self, w: Tree, state: None, f: Objective, key: jax.Array) -> tuple[Upload, None]:
        def step(total: Tree, batch: Batch | None) -> Tree:
            return add(total, f.grad(w, batch))

        total, steps = f.train(step, zeros_like(w), key, self.work)
        return Upload(scale(-at(self.lr, f.round) / steps, total), f.weight(self.weighting), steps=steps), state

    def update(self, server: GlobalModel, total: Total) -> GlobalModel:
        return GlobalModel(add(server.params, total.mean))

    def personal(self, server: GlobalModel, state: None) -> Tree:
        return server.params
