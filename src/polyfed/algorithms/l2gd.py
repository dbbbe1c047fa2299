"""L2GD: personal models, pulled to their mean by a coin that all clients share."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import checks, mixture, newcomer
from polyfed.algorithms.shared.kept_model import KeptModel
from polyfed.algorithms.shared.local_work import Steps
from polyfed.algorithms.shared.per_client import resolved
from polyfed.algorithms.shared.server import GlobalModel, SendsModel
from polyfed.core.trees import Tree, add, descend, mix, subtract
from polyfed.problem.objective import Batch, Batching, Objective
from polyfed.problem.problem import Problem


@algorithm("l2gd")
class L2GD(Steps, SendsModel):
    """Loopless local gradient descent on sum_i f_i(x_i) + penalty/2 |x_i - mean|^2: a shared coin says when to average.

    Hanzely, Richtarik 2020, Algorithm 1. A client's state is x_i. A round is a run of local steps and the run of
    aggregation steps after it, which needs one communication: the mean does not change between them.
    """

    penalty: float = 1.0
    """lambda, how strongly the models are held together: 0 is training alone, large values one model for all"""
    lr: float | None = None
    """the stepsize of a local step, alpha / (n (1 - p)) in the paper; by default the theorem's, 1 / (2 max_i L_i)
    or less where p is small"""
    p: float | None = None
    """the probability of an aggregation step; by default penalty / (penalty + max_i L_i), from 0.001 to 0.999: fewest
    steps"""

    def check(self) -> None:
        checks.number(self, "penalty")
        if self.lr is not None:
            checks.number(self, "lr", above=True)
        if self.p is not None:
            checks.number(self, "p", 0.0, 1.0 - 1e-6, above=True)
        checks.batches(self)

    def resolve(self, problem: Problem) -> L2GD:
        p, lr = self.p, self.lr
        if p is None:
            L = float(mixture.constants(self, problem, "p").smoothness.max())
            p = min(max(self.penalty / (self.penalty + L), 1e-3), 1 - 1e-3)
        pull = self.penalty * (1 - p) / p
        if lr is None:
            lr = 0.5 / max(float(mixture.constants(self, problem, "lr").smoothness.max()), pull)
        elif self.batch == "full" and problem.model.design is not None:
            limit = 0.5 / max(float(problem.constants.smoothness.max()), pull)
            mixture.warn_above(self, "lr", lr, limit, "the convergence theorem")
        return dataclasses.replace(self, p=p, lr=lr)

    def init_client(self, params: Tree) -> KeptModel:
        return KeptModel.start(params)  # x_i

    def local(self, mean: Tree, state: KeptModel, f: Objective, key: jax.Array) -> tuple[Upload, KeptModel]:
        locals_, _ = self._runs(f)

        def step(x: Tree, batch: Batch | None) -> Tree:
            return descend(x, resolved(self.lr), f.grad(x, batch))  # xi = 0

        x, steps = f.train(step, state.beside(mean), key, self.one_batch, count=locals_)
        return Upload(subtract(x, mean), steps=steps), KeptModel.after(x)

    def update(self, server: GlobalModel, total: Total) -> GlobalModel:
        return GlobalModel(add(server.params, total.mean))

    def absorb(self, state: KeptModel, mean: Tree, f: Objective) -> KeptModel:
        """xi = 1, as often as the coin says: x_i <- (1 - share) x_i + share mean."""
        _, pulls = self._runs(f)
        p, lr = resolved(self.p), resolved(self.lr)
        share = lr * self.penalty * (1 - p) / p  # alpha lambda / (n p)
        return state._replace(model=mix((1 - share) ** pulls, state.model, mean))

    def personal(self, server: GlobalModel, state: KeptModel) -> Tree:
        return state.beside(server.params)

    def own_share(self, state: KeptModel) -> jax.Array:
        return state.share

    def adapt(self, server: GlobalModel, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """The newcomer's part of the objective: f_i(x) + penalty/2 |x - mean|^2 with the mean as it stands."""
        work = work or newcomer.work_of_newcomer(self)
        return newcomer.fit(server.params, f, key, resolved(self.lr), work, server.params, self.penalty)

    def _runs(self, f: Objective) -> tuple[jax.Array, jax.Array]:
        """The lengths of the round's runs of 0 and of 1: one draw for all clients."""
        zeros, ones = jax.random.split(f.shared_key)
        p = jnp.asarray(self.p, jnp.float32)  # so that a run in float64 flips the same coins
        return run_length(zeros, p), run_length(ones, 1 - p)


def run_length(key: jax.Array, stop: jax.Array) -> jax.Array:
    """The tosses up to the one that ends a run: geometric, at least 1."""
    u = jax.random.uniform(key, (), jnp.float32, minval=np.finfo(np.float32).tiny)
    return 1 + jnp.floor(jnp.log(u) / jnp.log1p(-stop)).astype(jnp.int32)
