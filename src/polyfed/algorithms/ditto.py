"""Ditto: a global model by FedAvg, and beside it a model of each client that is held near it."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from polyfed.algorithms.contract import Algorithm, Total, Upload, algorithm
from polyfed.algorithms.shared import checks, newcomer, server
from polyfed.algorithms.shared.server import Averaged, ServerOptimizer
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Tree, descend, subtract
from polyfed.problem.objective import Batch, Batching, Objective


@algorithm("ditto")
class Ditto(Algorithm):
    """FedAvg, and beside it a model of each client's own: v_i minimises f_i(v) + penalty/2 |v - w|^2.

    Li, Hu, Beirami, Smith 2021, Algorithm 1 with FedAvg for the global model. A client's state is v_i.
    """

    penalty: float = 0.1
    """lambda, how strongly v_i is held near w; 0 is training alone"""
    lr: Schedule = 0.1
    """eta, the stepsize of both models"""
    personal_lr: Schedule | None = None
    """the stepsize of v_i, where it is another"""
    local_steps: int = 10
    """steps of the global model per round"""
    local_epochs: int | None = None
    """passes over the client's data per round, instead of local_steps"""
    personal_steps: int | None = None
    """s, steps of v_i per round; by default as many as the global model takes"""
    batch: int | Literal["full"] = 20
    """rows per step, or "full" """
    replace: bool = False
    """draw batches with replacement"""
    weighting: Literal["size", "uniform"] = "size"
    """the weight of a client in the average: n_i, or one for all"""
    server_optimizer: ServerOptimizer = "sgd"
    """any of Optax's, applied to the mean update"""
    server_lr: float = 1.0
    """the server's stepsize; 1 with "sgd" is plain averaging"""

    def check(self) -> None:
        checks.local_work(self)
        checks.number(self, "penalty")
        if self.personal_lr is not None:
            checks.stepsize(self, "personal_lr")
        if self.personal_steps is not None:
            checks.whole(self, "personal_steps")
        checks.choice(self, "weighting", "size", "uniform")
        server.check(self)

    def init_server(self, params: Tree) -> Averaged:
        return server.start(self, params)

    def init_client(self, params: Tree) -> Tree:
        return params  # v_i

    def broadcast(self, server: Averaged) -> Tree:
        return server.params

    def local(self, w: Tree, v: Tree, f: Objective, key: jax.Array) -> tuple[Upload, Tree]:
        lr = at(self.lr, f.round)

        def step(y: Tree, batch: Batch | None) -> Tree:
            return descend(y, lr, f.grad(y, batch))

        y, steps = f.train(step, w, key, Batching.of(self))  # the global model's part
        v = self._personalised(v, w, f, key, self._personal_work())  # the client's own, anchored at the round's w
        return Upload(subtract(y, w), f.weight(self.weighting), steps=steps), v

    def update(self, averaged: Averaged, total: Total) -> Averaged:
        return server.step(self, averaged, total.mean)

    def personal(self, server: Averaged, v: Tree) -> Tree:
        return v

    def own_share(self, v: Tree) -> jax.Array:
        return jnp.ones(())

    def adapt(self, server: Averaged, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """v_i from the global model, which stays."""
        return self._personalised(server.params, server.params, f, key, work or self._personal_work())

    def _personalised(self, v: Tree, w: Tree, f: Objective, key: jax.Array, work: Batching) -> Tree:
        """v <- v - eta (grad f_i(v) + lambda (v - w)), step after step."""
        lr = at(self.lr if self.personal_lr is None else self.personal_lr, f.round)
        return newcomer.fit(v, f, key, lr, work, w, self.penalty)

    def _personal_work(self) -> Batching:
        if self.personal_steps is None:
            return Batching.of(self)
        return Batching(self.batch, self.personal_steps, None, self.replace)
