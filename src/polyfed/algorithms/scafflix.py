"""Scafflix: explicit personalization and accelerated local training together."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from polyfed.algorithms.contract import Pending, Total, Upload, algorithm
from polyfed.algorithms.shared import mixture
from polyfed.algorithms.shared.mixture import Mixture, MixtureMethod
from polyfed.algorithms.shared.per_client import is_vector
from polyfed.algorithms.shared.server import Begun
from polyfed.algorithms.shared.skipping import SkippingMethod
from polyfed.core import trees
from polyfed.core.trees import Tree
from polyfed.problem.objective import Batch, Batching, Objective
from polyfed.problem.problem import Problem


class ScafflixState(NamedTuple):
    """The client's mixture, and its control variate h_i."""

    mixture: Mixture
    control: Tree


@algorithm("scafflix")
class Scafflix(SkippingMethod, MixtureMethod):
    """Doubly accelerated: the FLIX mixture, trained by local steps with control variates and rare communication.

    Yi et al. 2023, Algorithm 1. alpha_i = 1 for all is i-Scaffnew. The invariant is sum_i alpha_i h_i = 0. With sampled
    clients a control variate moves only in rounds in which its client takes part; no theorem covers that.
    """

    control: Literal["zero", "gradient"] = "zero"
    """h_i^0: zero, or the local gradients, projected to sum_i alpha_i h_i = 0: the first round is then one step"""

    def check(self) -> None:
        self.check_mixture()
        self.check_skipping()

    def resolve(self, problem: Problem) -> Scafflix:
        alpha = self.weights(problem)
        plm = self.local_models(problem, alpha)
        return dataclasses.replace(self, **self.skipping(problem)._asdict(), alpha=mixture.compact(alpha), plm=plm)

    def init_server(self, params: Tree) -> Begun:
        return Begun.start(params)

    def init_client(self, params: Tree) -> ScafflixState:
        return ScafflixState(mixture.blank(params), trees.zeros_like(params))

    def prepare(self, state: ScafflixState, f: Objective, key: jax.Array) -> ScafflixState:
        return state._replace(mixture=mixture.prepared(self, state.mixture, f, key))  # line 3

    def broadcast(self, server: Begun) -> Tree:
        return server if self.control == "gradient" else server.params

    def local(self, sent: Tree, state: ScafflixState, f: Objective, key: jax.Array) -> tuple[Upload, Pending]:
        x = sent.params if self.control == "gradient" else sent
        alpha, gamma = state.mixture.alpha, f.own(self.lr)
        stride = jnp.where(alpha > 0, gamma / jnp.where(alpha > 0, alpha, 1.0), 0.0)
        count = self.steps_until_coin(f)
        if self.control == "gradient":
            count = jnp.where(sent.rounds == 0, 1, count)

        def step(y: Tree, batch: Batch | None) -> Tree:
            gradient = f.grad(mixture.deployed(y, state.mixture), batch)  # lines 7, 8
            return trees.descend(y, stride, self.corrected(gradient, state.control))  # line 9

        y, _ = f.train(step, x, key, self.one_batch, count=count)
        shared = not (is_vector(self.lr) or is_vector(self.alpha))
        weight = 1.0 if shared else alpha**2 / gamma  # line 11
        return Upload(trees.subtract(y, x), weight, steps=count, silent=alpha == 0), Pending(state, y)

    def update(self, server: Begun, total: Total) -> Begun:
        weighed = total.weight > 0  # nobody weighs anything where every alpha is 0
        mean = trees.where(weighed, total.mean, trees.zeros_like(server.params))
        return Begun(trees.add(server.params, mean), server.rounds + weighed.astype(jnp.int32))

    def absorb(self, pending: Pending, sent: Tree, f: Objective) -> ScafflixState:
        state, y = pending
        alpha, gamma, x, p = state.mixture.alpha, f.own(self.lr), sent, self.probability
        if self.control == "gradient":  # line 13 with p = 1 makes h_i the gradient of the one step, projected
            x, p = sent.params, jnp.where(sent.rounds == 1, 1.0, p)
        change = trees.scale(p * alpha / gamma, trees.subtract(x, y))
        return state._replace(control=trees.add(state.control, change))  # line 13

    def personal(self, server: Begun, state: ScafflixState) -> Tree:
        return mixture.deployed(server.params, state.mixture)

    def own_share(self, state: ScafflixState) -> jax.Array:
        return 1 - state.mixture.alpha

    def adapt(self, server: Begun, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """The newcomer's pure local model, mixed with the global one."""
        return mixture.joined(self, server.params, f, key, work)
