"""q-FedAvg: federated averaging in which clients with a large loss count more."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from polyfed.algorithms.contract import Algorithm, State, Total, Upload, algorithm
from polyfed.algorithms.shared import checks
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Tree, descend, scale, squared_norm, subtract
from polyfed.problem.objective import Batch, Batching, Objective

LEAST = 1e-10
"""A loss below this counts as this, so that its powers are finite."""


class FairServer(NamedTuple):
    """w."""

    params: Tree


class FairUpload(NamedTuple):
    """Delta_k, and h_k, the estimate of the local Lipschitz constant."""

    move: Tree
    curvature: jax.Array


@algorithm("qfedavg")
class QFedAvg(Algorithm):
    """Fair averaging: minimises sum_i f_i^(q+1) / (q+1), so that clients with a large loss count more.

    Li, Sanjabi, Beirami, Smith 2020, Algorithm 2.
    """

    q: float = 1.0
    """how fair: 0 is FedAvg with uniform weights, large q looks at the worst client"""
    smoothness: float | None = None
    """L in the estimate of the server's stepsize; by default 1 / lr, as in the paper's experiments"""
    lr: Schedule = 0.1
    """eta, the clients' stepsize"""
    local_steps: int = 10
    """steps per round"""
    local_epochs: int | None = None
    """E, passes over the client's data per round, instead of local_steps"""
    batch: int | Literal["full"] = 20
    """rows per step, or "full" """
    replace: bool = False
    """draw batches with replacement"""

    def check(self) -> None:
        checks.local_work(self)
        checks.number(self, "q")
        if self.smoothness is not None:
            checks.number(self, "smoothness", above=True)

    def init_server(self, params: Tree) -> FairServer:
        return FairServer(params)

    def init_client(self, params: Tree) -> State:
        return None

    def broadcast(self, server: FairServer) -> Tree:
        return server.params

    def local(self, w: Tree, state: State, f: Objective, key: jax.Array) -> tuple[Upload, State]:
        lr = at(self.lr, f.round)
        L: Any = 1.0 / lr if self.smoothness is None else self.smoothness

        def step(y: Tree, batch: Batch | None) -> Tree:
            return descend(y, lr, f.grad(y, batch))

        y, steps = f.train(step, w, key, Batching.of(self))
        delta = scale(L, subtract(w, y))  # Delta w_k
        loss = jnp.maximum(f.value(w), LEAST)
        fair = loss**self.q
        curvature = self.q * loss ** (self.q - 1) * squared_norm(delta) + L * fair
        return Upload(FairUpload(scale(fair, delta), curvature), steps=steps, emphasis=fair), state

    def update(self, server: FairServer, total: Total) -> FairServer:
        sums: FairUpload = total.values
        some = sums.curvature > 0  # every power of every loss may have become zero
        share = jnp.where(some, 1.0 / jnp.where(some, sums.curvature, 1.0), 0.0)
        return FairServer(descend(server.params, share, sums.move))  # w - sum Delta_k / sum h_k

    def personal(self, server: FairServer, state: State) -> Tree:
        return server.params

    def own_share(self, state: State) -> jax.Array:
        return jnp.zeros(())
