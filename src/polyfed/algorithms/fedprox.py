"""FedProx: federated averaging whose clients are held near the global model."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from polyfed.algorithms.contract import Algorithm, State, Total, Upload, algorithm
from polyfed.algorithms.shared import checks, newcomer, server
from polyfed.algorithms.shared.server import Averaged, ServerOptimizer
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Tree, add, descend, scale, subtract
from polyfed.problem.objective import Batch, Batching, Objective


@algorithm("fedprox")
class FedProx(Algorithm):
    """FedAvg whose clients are held near the global model: each works on f_i(y) + mu/2 |y - w|^2.

    Li et al. 2020, Algorithm 2.
    """

    lr: Schedule = 0.1
    """the clients' stepsize"""
    mu: float = 0.1
    """weight of the proximal term; 0 is FedAvg"""
    local_steps: int = 10
    """steps per round"""
    local_epochs: int | None = None
    """passes over the client's data per round, instead of local_steps"""
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
        checks.number(self, "mu")
        checks.choice(self, "weighting", "size", "uniform")
        server.check(self)

    def init_server(self, params: Tree) -> Averaged:
        return server.start(self, params)

    def init_client(self, params: Tree) -> State:
        return None

    def broadcast(self, server: Averaged) -> Tree:
        return server.params

    def local(self, w: Tree, state: State, f: Objective, key: jax.Array) -> tuple[Upload, State]:
        lr = at(self.lr, f.round)

        def step(y: Tree, batch: Batch | None) -> Tree:
            pull = scale(self.mu, subtract(y, w))
            return descend(y, lr, add(f.grad(y, batch), pull))

        y, steps = f.train(step, w, key, Batching.of(self))
        return Upload(subtract(y, w), f.weight(self.weighting), steps=steps), state

    def update(self, averaged: Averaged, total: Total) -> Averaged:
        return server.step(self, averaged, total.mean)

    def personal(self, server: Averaged, state: State) -> Tree:
        return server.params

    def own_share(self, state: State) -> jax.Array:
        return jnp.zeros(())

    def adapt(self, server: Averaged, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """The global model, tuned under the proximal term."""
        lr, w = at(self.lr, f.round), server.params
        return newcomer.fit(w, f, key, lr, work or Batching.of(self), w, self.mu)
