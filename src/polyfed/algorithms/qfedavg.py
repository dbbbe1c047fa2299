"""q-FedAvg: federated averaging in which clients with a large loss count more."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import checks
from polyfed.algorithms.shared.local_work import Momentum
from polyfed.algorithms.shared.server import GlobalModel, SendsModel
from polyfed.core.schedules import at
from polyfed.core.trees import Tree, descend, scale, squared_norm, subtract
from polyfed.problem.objective import Objective

LEAST = 1e-10
"""A loss below this counts as this, so that its powers are finite."""


class FairUpload(NamedTuple):
    """Delta_k, and h_k, the estimate of the local Lipschitz constant."""

    move: Tree
    curvature: jax.Array


@algorithm("qfedavg")
class QFedAvg(Momentum, SendsModel):
    """Fair averaging: minimises sum_i f_i^(q+1) / (q+1), so that clients with a large loss count more.

    Li, Sanjabi, Beirami, Smith 2020, Algorithm 2: lr is eta, local_epochs E.
    """

    q: float = 1.0
    """how fair: 0 is FedAvg with uniform weights, large q looks at the worst client"""
    smoothness: float | None = None
    """L in the estimate of the server's stepsize; by default 1 / lr, as in the paper's experiments"""

    def check(self) -> None:
        checks.local_work(self)
        checks.momentum(self, self.momentum)
        checks.number(self, "q")
        if self.smoothness is not None:
            checks.number(self, "smoothness", above=True)

    def init_client(self, params: Tree) -> None:
        return None

    def local(self, w: Tree, state: None, f: Objective, key: jax.Array) -> tuple[Upload, None]:
        lr = at(self.lr, f.round)
        L = 1.0 / lr if self.smoothness is None else self.smoothness
        y, steps = self.descended(f.grad, w, f, key)
        delta = scale(L, subtract(w, y))  # Delta w_k
        loss = jnp.maximum(f.value(w), LEAST)
        fair = loss**self.q
        curvature = self.q * loss ** (self.q - 1) * squared_norm(delta) + L * fair
        return Upload(FairUpload(scale(fair, delta), curvature), steps=steps, emphasis=fair), state

    def update(self, server: GlobalModel, total: Total) -> GlobalModel:
        sums: FairUpload = total.values
        curved = sums.curvature > 0  # every power of every loss may have become zero
        share = jnp.where(curved, 1.0 / jnp.where(curved, sums.curvature, 1.0), 0.0)
        return GlobalModel(descend(server.params, share, sums.move))  # w - sum Delta_k / sum h_k

    def personal(self, server: GlobalModel, state: None) -> Tree:
        return server.params
