"""Pure local training: every client on its own, the yardstick of all collaboration."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from polyfed.algorithms import checks
from polyfed.algorithms.base import Algorithm, Server, State, Total, Upload, algorithm
from polyfed.objective import Batch, Batching, Objective
from polyfed.schedules import Schedule, at
from polyfed.trees import Tree, descend


@algorithm("local")
class Local(Algorithm):
    """Every client alone: SGD on its own data; nothing is sent.

    x_i <- x_i - lr grad f_i(x_i; batch).
    """

    lr: Schedule = 0.1
    """stepsize"""
    local_steps: int = 10
    """steps per round"""
    local_epochs: int | None = None
    """passes over the client's data per round, instead of local_steps"""
    batch: int | Literal["full"] = 20
    """rows per step, or "full" """
    replace: bool = False
    """draw batches with replacement"""

    def check(self) -> None:
        checks.local_work(self)

    def init_server(self, params: Tree) -> Server:
        return None

    def init_client(self, params: Tree) -> State:
        return params

    def broadcast(self, server: Server) -> Tree:
        return None

    def local(self, broadcast: Tree, state: State, f: Objective, key: jax.Array) -> tuple[Upload, State]:
        lr = at(self.lr, f.round)

        def step(x: Tree, batch: Batch | None) -> Tree:
            return descend(x, lr, f.grad(x, batch))

        own, steps = f.train(step, state, key, Batching.of(self))
        return Upload(None, steps=steps), own

    def update(self, server: Server, total: Total) -> Server:
        return server

    def personal(self, server: Server, state: State) -> Tree:
        return state

    def own_share(self, state: State) -> jax.Array:
        return jnp.ones(())
