"""Ditto: a global model by FedAvg, and beside it a model of each client that is held near it."""

from __future__ import annotations

from typing import Literal

import jax

from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import checks, newcomer
from polyfed.algorithms.shared.kept_model import KeptModel
from polyfed.algorithms.shared.local_work import LocalWork, Weighted
from polyfed.algorithms.shared.server import Averaged, Averages
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Tree, descend, subtract
from polyfed.problem.objective import Batch, Batching, Objective


@algorithm("ditto")
class Ditto(LocalWork, Weighted, Averages):
    """FedAvg, and beside it a model of each client's own: v_i minimises f_i(v) + penalty/2 |v - w|^2.

    Li, Hu, Beirami, Smith 2021, Algorithm 1 with FedAvg for the global model; lr is eta. A client's state is v_i.
    """

    penalty: float = 0.1
    """lambda, how strongly v_i is held near w; 0 is training alone"""
    personal_lr: Schedule | None = None
    """the stepsize of v_i, where it is another"""
    personal_steps: int | None = None
    """s, steps of v_i per round; by default as many as the global model takes"""
    weighting: Literal["size", "uniform"] = "size"
    """the weight of a client in the average: n_i, or one for all"""

    def check(self) -> None:
        checks.local_work(self)
        checks.number(self, "penalty")
        if self.personal_lr is not None:
            checks.stepsize(self, "personal_lr")
        if self.personal_steps is not None:
            checks.whole(self, "personal_steps")
        Averages.check(self)

    def init_client(self, params: Tree) -> KeptModel:
        return KeptModel.start(params)  # v_i

    def local(self, w: Tree, state: KeptModel, f: Objective, key: jax.Array) -> tuple[Upload, KeptModel]:
        lr = at(self.lr, f.round)

        def step(y: Tree, batch: Batch | None) -> Tree:
            return descend(y, lr, f.grad(y, batch))

        y, steps = f.train(step, w, key, self.work)  # the global model's part
        # the client's own, anchored at the round's w
        v = self._personalised(state.beside(w), w, f, key, self._personal_work())
        return Upload(subtract(y, w), f.weight(self.weighting), steps=steps), KeptModel.after(v)

    def update(self, server: Averaged, total: Total) -> Averaged:
        return self.moved(server, total.mean)

    def personal(self, server: Averaged, state: KeptModel) -> Tree:
        return state.beside(server.params)

    def own_share(self, state: KeptModel) -> jax.Array:
        return state.share

    def adapt(self, server: Averaged, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """v_i from the global model, which stays."""
        return self._personalised(server.params, server.params, f, key, work or self._personal_work())

    def _personalised(self, v: Tree, w: Tree, f: Objective, key: jax.Array, work: Batching) -> Tree:
        """v <- v - eta (grad f_i(v) + lambda (v - w)), step after step."""
        lr = at(self.lr if self.personal_lr is None else self.personal_lr, f.round)
        return newcomer.fit(v, f, key, lr, work, w, self.penalty)

    def _personal_work(self) -> Batching:
        return self.work if self.personal_steps is None else self.steps_of(self.personal_steps)
