"""Reptile: the global model moves a part of the way towards the clients' adapted models."""

from __future__ import annotations

from typing import Literal

import jax

from polyfed.algorithms.contract import Algorithm, State, Total, Upload, algorithm
from polyfed.algorithms.shared import checks, server
from polyfed.algorithms.shared.server import Averaged, ServerOptimizer
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Tree, descend, subtract
from polyfed.problem.objective import Batch, Batching, Objective


@algorithm("reptile")
class Reptile(Algorithm):
    """Meta-learning without second derivatives: clients train the model, the server goes part of the way to their mean.

    Nichol, Achiam, Schulman 2018, Algorithm 2, with clients as tasks. With server_lr = 1 it is FedAvg, whose model
    every client then trains further before it deploys it.
    """

    lr: Schedule = 0.1
    """the clients' stepsize"""
    local_steps: int = 5
    """k, steps per round, and of the adaptation that makes the model which a client deploys"""
    local_epochs: int | None = None
    """passes over the client's data per round, instead of local_steps"""
    batch: int | Literal["full"] = 20
    """rows per step, or "full" """
    replace: bool = False
    """draw batches with replacement"""
    weighting: Literal["size", "uniform"] = "uniform"
    """the weight of a client in the mean: n_i, or one for all as in the paper"""
    server_optimizer: ServerOptimizer = "sgd"
    """any of Optax's, applied to the mean move"""
    server_lr: float = 0.5
    """epsilon, the share of the way that the server goes"""
    deploys_adapted = True

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

    def local(self, phi: Tree, state: State, f: Objective, key: jax.Array) -> tuple[Upload, State]:
        lr = at(self.lr, f.round)

        def step(x: Tree, batch: Batch | None) -> Tree:
            return descend(x, lr, f.grad(x, batch))

        x, steps = f.train(step, phi, key, Batching.of(self))  # SGD on the task, k steps
        return Upload(subtract(x, phi), f.weight(self.weighting), steps=steps), state

    def update(self, averaged: Averaged, total: Total) -> Averaged:
        return server.step(self, averaged, total.mean)  # phi <- phi + epsilon mean(x_i - phi)

    def personal(self, server: Averaged, state: State) -> Tree:
        return server.params
