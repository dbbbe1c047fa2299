"""Federated averaging, or local SGD."""

from __future__ import annotations

from typing import Literal

import jax

from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import checks
from polyfed.algorithms.shared.local_work import Momentum, Weighted
from polyfed.algorithms.shared.server import Averaged, Averages
from polyfed.core.trees import Tree, subtract
from polyfed.problem.objective import Objective


@algorithm("fedavg")
class FedAvg(Momentum, Weighted, Averages):
    """Federated averaging: clients take SGD steps from the global model, the server averages them.

    McMahan et al. 2017, Algorithm 1: lr is eta, local_epochs E, batch B. With another server optimiser, Reddi et al.
    2021, Algorithm 1 (FedOpt).
    """

    weighting: Literal["size", "uniform"] = "size"
    """the weight of a client in the average: n_i, or one for all"""

    def check(self) -> None:
        checks.local_work(self)
        checks.momentum(self, self.momentum)
        Averages.check(self)

    def init_client(self, params: Tree) -> None:
        return None

    def local(self, w: Tree, state: None, f: Objective, key: jax.Array) -> tuple[Upload, None]:
        y, steps = self.descended(f.grad, w, f, key)  # ClientUpdate(k, w)
        return Upload(subtract(y, w), f.weight(self.weighting), steps=steps), state

    def update(self, server: Averaged, total: Total) -> Averaged:
        return self.moved(server, total.mean)  # w <- sum_k (n_k / n) w_k

    def personal(self, server: Averaged, state: None) -> Tree:
        return server.params
