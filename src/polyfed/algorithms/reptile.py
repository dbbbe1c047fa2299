"""Reptile: the global model moves a part of the way towards the clients' adapted models."""

from __future__ import annotations

import jax

from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import checks, newcomer
from polyfed.algorithms.shared.local_work import LocalWork, Weighted
from polyfed.algorithms.shared.server import Averaged, Averages
from polyfed.core.schedules import at
from polyfed.core.trees import Tree, descend, subtract
from polyfed.problem.objective import Batch, Batching, Objective


@algorithm("reptile")
class Reptile(LocalWork, Weighted, Averages):
    """Meta-learning without second derivatives: clients train the model, the server goes part of the way to their mean.

    Nichol, Achiam, Schulman 2018, Algorithm 2, with clients as tasks. With server_lr = 1 it is FedAvg, whose model
    every client then trains further before it deploys it.
    """

    local_steps: int = 5
    """k, steps per round, and of the adaptation that makes the model which a client deploys"""
    server_lr: float = 0.5
    """epsilon, the share of the way that the server goes"""

    def check(self) -> None:
        checks.local_work(self)
        Averages.check(self)

    def init_client(self, params: Tree) -> None:
        return None

    def local(self, phi: Tree, state: None, f: Objective, key: jax.Array) -> tuple[Upload, None]:
        lr = at(self.lr, f.round)

        def step(x: Tree, batch: Batch | None) -> Tree:
            return descend(x, lr, f.grad(x, batch))

        x, steps = f.train(step, phi, key, self.work)  # SGD on the task, k steps
        return Upload(subtract(x, phi), f.weight(self.weighting), steps=steps), state

    def update(self, server: Averaged, total: Total) -> Averaged:
        return self.moved(server, total.mean)  # phi <- phi + epsilon mean(x_i - phi)

    def personal(self, server: Averaged, state: None) -> Tree:
        return server.params

    def refine(self, model: Tree, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """A round's steps from the global model."""
        return newcomer.tuned(self, model, f, key, work)
