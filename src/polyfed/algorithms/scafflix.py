"""Scafflix: explicit personalization and accelerated local training together."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import mixture
from polyfed.algorithms.shared.mixture import Mixture, MixtureMethod
from polyfed.algorithms.shared.per_client import is_vector
from polyfed.algorithms.shared.skipping import SkippingMethod
from polyfed.core import trees
from polyfed.core.trees import Tree
from polyfed.problem.objective import Batch, Batching, Objective
from polyfed.problem.problem import Problem


class ScafflixServer(NamedTuple):
    """x; what is to be subtracted from the first control variates; and the number of rounds with a weight so far."""

    params: Tree
    shift: Tree
    rounds: jax.Array


class ScafflixState(NamedTuple):
    """The client's mixture, its control variate h_i, and the iterate that it sent last."""

    mixture: Mixture
    control: Tree
    sent: Tree


@algorithm("scafflix")
class Scafflix(SkippingMethod, MixtureMethod):
    """Doubly accelerated: the FLIX mixture, trained by local steps with control variates and rare communication.

    Yi et al. 2023, Algorithm 1. alpha_i = 1 for all is i-Scaffnew. The invariant is sum_i alpha_i h_i = 0. With sampled
    clients a control variate moves only in rounds in which its client takes part; no theorem covers that.
    """

    control: Literal["zero", "gradient"] = "zero"
    """h_i^0: zero, or the local gradients, projected to sum_i alpha_i h_i = 0, which takes the first round"""

    def check(self) -> None:
        self.check_mixture()
        self.check_skipping()

    def resolve(self, problem: Problem) -> Scafflix:
        alpha = self.weights(problem)
        plm = self.plm and bool(np.any(alpha < 1))
        return dataclasses.replace(self, **self.skipping(problem)._asdict(), alpha=mixture.compact(alpha), plm=plm)

    def init_server(self, params: Tree) -> ScafflixServer:
        return ScafflixServer(params, trees.zeros_like(params), jnp.zeros((), jnp.int32))

    def init_client(self, params: Tree) -> ScafflixState:
        return ScafflixState(mixture.blank(params), trees.zeros_like(params), params)

    def prepare(self, state: ScafflixState, f: Objective, key: jax.Array) -> ScafflixState:
        return state._replace(mixture=mixture.prepared(self, state.mixture, f, key))  # line 3

    def broadcast(self, server: ScafflixServer) -> Tree:
        return server if self.control == "gradient" else server.params

    def local(self, sent: Tree, state: ScafflixState, f: Objective, key: jax.Array) -> tuple[Upload, ScafflixState]:
        x = sent.params if self.control == "gradient" else sent
        alpha, gamma = state.mixture.alpha, f.own(self.lr)
        stride = jnp.where(alpha > 0, gamma / jnp.where(alpha > 0, alpha, 1.0), 0.0)
        setup = jnp.asarray(self.control == "gradient" and sent.rounds == 0)
        count = jnp.where(setup, 0, self.steps_until_coin(f))

        def step(y: Tree, batch: Batch | None) -> Tree:
            gradient = f.grad(mixture.deployed(y, state.mixture), batch)  # lines 7, 8
            return trees.descend(y, stride, self.corrected(gradient, state.control))  # line 9

        y, _ = f.train(step, x, key, self.one_batch, count=count)
        move, weight = trees.subtract(y, x), alpha**2 / gamma  # line 11
        if self.control == "gradient":
            first = trees.scale(stride / gamma, f.grad(mixture.deployed(x, state.mixture)))
            y, move = trees.where(setup, first, y), trees.where(setup, first, move)
            weight = jnp.where(setup, alpha**2, weight)
        if not (is_vector(self.lr) or is_vector(self.alpha)):
            weight = 1.0  # the same for all
        return Upload(move, weight, steps=count, silent=alpha == 0), state._replace(sent=y)

    def update(self, server: ScafflixServer, total: Total) -> ScafflixServer:
        weighed = total.weight > 0  # nobody weighs anything where every alpha is 0
        mean = trees.where(weighed, total.mean, trees.zeros_like(server.params))
        moved, rounds = trees.add(server.params, mean), server.rounds + weighed.astype(jnp.int32)
        if self.control == "zero":
            return ScafflixServer(moved, server.shift, rounds)
        setup = server.rounds == 0
        return ScafflixServer(trees.where(setup, server.params, moved), trees.where(setup, mean, server.shift), rounds)

    def absorb(self, state: ScafflixState, sent: Tree, f: Objective) -> ScafflixState:
        alpha, gamma, p = state.mixture.alpha, f.own(self.lr), self.probability
        x = sent.params if self.control == "gradient" else sent
        change = trees.scale(p * alpha / gamma, trees.subtract(x, state.sent))
        control = trees.add(state.control, change)  # line 13
        if self.control == "gradient":  # what was sent is the gradient over alpha: take the weighted mean off
            start = trees.scale(alpha, trees.subtract(state.sent, sent.shift))
            control = trees.where(sent.rounds == 1, start, control)
        return state._replace(control=control)

    def personal(self, server: ScafflixServer, state: ScafflixState) -> Tree:
        return mixture.deployed(server.params, state.mixture)

    def own_share(self, state: ScafflixState) -> jax.Array:
        return 1 - state.mixture.alpha

    def adapt(self, server: ScafflixServer, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """The newcomer's pure local model, mixed with the global one."""
        return mixture.joined(self, server.params, f, key, work)
