"""FedProx: federated averaging whose clients are held near the global model."""

from __future__ import annotations

from typing import Literal

import jax

from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import checks, newcomer
from polyfed.algorithms.shared.local_work import Momentum, Weighted
from polyfed.algorithms.shared.server import Averaged, Averages
from polyfed.core.schedules import at
from polyfed.core.trees import Tree, add, scale, subtract
from polyfed.problem.objective import Batch, Batching, Objective


@algorithm("fedprox")
class FedProx(Momentum, Weighted, Averages):
    """FedAvg whose clients are held near the global model: each works on f_i(y) + mu/2 |y - w|^2.

    Li et al. 2020, Algorithm 2.
    """

    mu: float = 0.1
    """weight of the proximal term; 0 is FedAvg"""
    weighting: Literal["size", "uniform"] = "size"
    """the weight of a client in the average: n_i, or one for all"""

    def check(self) -> None:
        checks.local_work(self)
        checks.momentum(self, self.momentum)
        checks.number(self, "mu")
        Averages.check(self)

    def init_client(self, params: Tree) -> None:
        return None

    def local(self, w: Tree, state: None, f: Objective, key: jax.Array) -> tuple[Upload, None]:
        def gradient(y: Tree, batch: Batch | None) -> Tree:
            return add(f.grad(y, batch), scale(self.mu, subtract(y, w)))

        y, steps = self.descended(gradient, w, f, key)
        return Upload(subtract(y, w), f.weight(self.weighting), steps=steps), state

    def update(self, server: Averaged, total: Total) -> Averaged:
        return self.moved(server, total.mean)

    def personal(self, server: Averaged, state: None) -> Tree:
        return server.params

    def adapt(self, server: Averaged, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """The global model, tuned under the proximal term."""
        lr, w = at(self.lr, f.round), server.params
        return newcomer.fit(w, f, key, lr, work or self.work, w, self.mu)
