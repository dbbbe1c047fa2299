"""Federated averaging, or local SGD."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from polyfed.algorithms.contract import Algorithm, State, Total, Upload, algorithm
from polyfed.algorithms.shared import checks, server
from polyfed.algorithms.shared.server import Averaged, ServerOptimizer
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Tree, descend, subtract
from polyfed.problem.objective import Batch, Batching, Objective


@algorithm("fedavg")
class FedAvg(Algorithm):
    """Federated averaging: clients take SGD steps from the global model, the server averages them.

    McMahan et al. 2017, Algorithm 1; with another server optimiser, Reddi et al. 2021, Algorithm 1 (FedOpt).
    """

    lr: Schedule = 0.1
    """eta, the clients' stepsize"""
    local_steps: int = 10
    """steps per round"""
    local_epochs: int | None = None
    """E, passes over the client's data per round, instead of local_steps"""
    batch: int | Literal["full"] = 20
    """B, rows per step, or "full" """
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
            return descend(y, lr, f.grad(y, batch))

        y, steps = f.train(step, w, key, Batching.of(self))  # ClientUpdate(k, w)
        return Upload(subtract(y, w), f.weight(self.weighting), steps=steps), state

    def update(self, averaged: Averaged, total: Total) -> Averaged:
        return server.step(self, averaged, total.mean)  # w <- sum_k (n_k / n) w_k

    def personal(self, server: Averaged, state: State) -> Tree:
        return server.params

    def own_share(self, state: State) -> jax.Array:
        return jnp.zeros(())
