"""FOMAML: first-order model-agnostic meta-learning, with clients as tasks."""

from __future__ import annotations

from typing import Literal

import jax

from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import checks, newcomer, server
from polyfed.algorithms.shared.local_work import Steps, Weighted
from polyfed.algorithms.shared.server import Averaged, ServerOptimizer
from polyfed.core.trees import Tree, descend, zeros_like
from polyfed.problem.objective import Batch, Batching, Objective


@algorithm("fomaml")
class FOMAML(Steps, Weighted):
    """Meta-learning from gradients after adaptation: each client adapts the model, and sends its gradient there.

    Finn, Abbeel, Levine 2017, Algorithm 1, without second derivatives (their Section 5.2).
    """

    lr: float = 0.1
    """beta, the server's stepsize"""
    inner_lr: float = 0.01
    """alpha, the stepsize of the adaptation"""
    inner_steps: int = 5
    """the steps of the adaptation; one more batch gives the gradient that is sent"""
    adapt_steps: int | None = None
    """steps with inner_lr, on training rows, that make the model which a client deploys; by default inner_steps"""
    batch: int | Literal["full"] = 20
    """rows per step, or "full" """
    server_optimizer: ServerOptimizer = "sgd"
    """any of Optax's, applied to the mean gradient with stepsize lr"""

    def check(self) -> None:
        checks.number(self, "lr", above=True)
        checks.number(self, "inner_lr")
        checks.whole(self, "inner_steps")
        if self.adapt_steps is not None:
            checks.whole(self, "adapt_steps")
        checks.batches(self)
        server.check_optimizer(self)

    def init_server(self, params: Tree) -> Averaged:
        return server.start(self.server_optimizer, self.lr, params)

    def init_client(self, params: Tree) -> None:
        return None

    def broadcast(self, server: Averaged) -> Tree:
        return server.params

    def local(self, w: Tree, state: None, f: Objective, key: jax.Array) -> tuple[Upload, None]:
        def step(carry: tuple[Tree, Tree], batch: Batch | None) -> tuple[Tree, Tree]:
            x, _ = carry
            gradient = f.grad(x, batch)
            return descend(x, self.inner_lr, gradient), gradient  # lines 5, 6

        # The batch after those of the adaptation plays the part of the task's test rows: only its gradient is used.
        (_, gradient), steps = f.train(step, (w, zeros_like(w)), key, self.steps_of(self.inner_steps + 1))
        return Upload(gradient, f.weight(self.weighting), steps=steps), state

    def update(self, averaged: Averaged, total: Total) -> Averaged:
        return server.descend(self.server_optimizer, self.lr, averaged, total.mean)  # line 8

    def personal(self, server: Averaged, state: None) -> Tree:
        return server.params

    def refine(self, model: Tree, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """adapt_steps gradient steps from the global model, on the client's training rows."""
        work = work or self.steps_of(self.adapt_steps or self.inner_steps)
        return newcomer.fit(model, f, key, self.inner_lr, work)
