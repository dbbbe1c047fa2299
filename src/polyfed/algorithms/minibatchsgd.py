"""Minibatch SGD: all of a round's gradients are taken at the same point."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from polyfed.algorithms.contract import Algorithm, State, Total, Upload, algorithm
from polyfed.algorithms.shared import checks
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Tree, add, scale, zeros_like
from polyfed.problem.objective import Batch, Batching, Objective


class MinibatchServer(NamedTuple):
    """w."""

    params: Tree


@algorithm("minibatchsgd")
class MinibatchSGD(Algorithm):
    """As many gradients as local SGD, all at the global model: one large step a round.

    The baseline of Woodworth, Patel, Srebro 2020: w <- w - lr mean of M K gradients of f_i(w; batch).
    """

    lr: Schedule = 0.1
    """eta, the stepsize of the step that a round takes"""
    local_steps: int = 10
    """K, batches per round"""
    local_epochs: int | None = None
    """passes over the client's data per round, instead of local_steps"""
    batch: int | Literal["full"] = 20
    """rows per batch, or "full" """
    replace: bool = False
    """draw batches with replacement"""
    weighting: Literal["size", "uniform"] = "uniform"
    """the weight of a client in the mean: n_i, or one for all"""
    walks = False

    def check(self) -> None:
        checks.local_work(self)
        checks.choice(self, "weighting", "size", "uniform")

    def init_server(self, params: Tree) -> MinibatchServer:
        return MinibatchServer(params)

    def init_client(self, params: Tree) -> State:
        return None

    def broadcast(self, server: MinibatchServer) -> Tree:
        return server.params

    def local(self, w: Tree, state: State, f: Objective, key: jax.Array) -> tuple[Upload, State]:
        def step(total: Tree, batch: Batch | None) -> Tree:
            return add(total, f.grad(w, batch))

        total, steps = f.train(step, zeros_like(w), key, Batching.of(self))
        return Upload(scale(-at(self.lr, f.round) / steps, total), f.weight(self.weighting), steps=steps), state

    def update(self, server: MinibatchServer, total: Total) -> MinibatchServer:
        return MinibatchServer(add(server.params, total.mean))

    def personal(self, server: MinibatchServer, state: State) -> Tree:
        return server.params

    def own_share(self, state: State) -> jax.Array:
        return jnp.zeros(())
