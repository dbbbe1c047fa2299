"""pFedMe: personal models near a global one, which minimises the mean of the clients' Moreau envelopes."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from polyfed.algorithms.contract import Algorithm, Total, Upload, algorithm
from polyfed.algorithms.shared import checks
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Tree, add, descend, mix, scale, subtract
from polyfed.problem.objective import Batch, Batching, Objective


class EnvelopeServer(NamedTuple):
    """w."""

    params: Tree


@algorithm("pfedme")
class PFedMe(Algorithm):
    """Personal models by Moreau envelopes: theta_i minimises f_i(theta) + penalty/2 |theta - w|^2, w follows them.

    Dinh, Tran, Nguyen 2020, Algorithm 1. A client's state is theta_i, which it deploys.
    """

    penalty: float = 15.0
    """lambda, how strongly theta_i is held near w"""
    inner_steps: int = 5
    """K, gradient steps on each batch towards theta_i"""
    inner_lr: float = 0.05
    """the stepsize of those steps; below 2 / (L + penalty)"""
    lr: Schedule = 0.01
    """eta, the stepsize of w_i; lr * penalty is the share of the way to theta_i, best at most 1"""
    beta: float = 1.0
    """the share of the way that the server goes to the mean of the w_i"""
    local_steps: int = 10
    """R, local rounds per round"""
    local_epochs: int | None = None
    """passes over the client's data per round, instead of local_steps"""
    batch: int | Literal["full"] = 20
    """rows of each local round's batch, or "full" """
    replace: bool = False
    """draw batches with replacement"""
    weighting: Literal["size", "uniform"] = "uniform"
    """the weight of a client in the average: n_i, or one for all as in the paper"""

    def check(self) -> None:
        checks.local_work(self)
        checks.number(self, "penalty", above=True)
        checks.whole(self, "inner_steps")
        checks.number(self, "inner_lr", above=True)
        checks.number(self, "beta", above=True)
        checks.choice(self, "weighting", "size", "uniform")

    def init_server(self, params: Tree) -> EnvelopeServer:
        return EnvelopeServer(params)

    def init_client(self, params: Tree) -> Tree:
        return params  # theta_i

    def broadcast(self, server: EnvelopeServer) -> Tree:
        return server.params

    def local(self, w: Tree, theta: Tree, f: Objective, key: jax.Array) -> tuple[Upload, Tree]:
        stride = at(self.lr, f.round) * self.penalty

        def step(carry: tuple[Tree, Tree], batch: Batch | None) -> tuple[Tree, Tree]:
            w_i, theta = carry
            theta = self._proximal(theta, w_i, f, batch)  # theta_i(w_i), approximately
            return mix(stride, theta, w_i), theta  # w_i <- w_i - eta lambda (w_i - theta_i)

        (w_i, theta), steps = f.train(step, (w, w), key, Batching.of(self))  # theta_i starts at w
        return Upload(subtract(w_i, w), f.weight(self.weighting), steps=steps), theta

    def update(self, server: EnvelopeServer, total: Total) -> EnvelopeServer:
        return EnvelopeServer(add(server.params, scale(self.beta, total.mean)))  # (1 - beta) w + beta mean w_i

    def personal(self, server: EnvelopeServer, theta: Tree) -> Tree:
        return theta

    def own_share(self, theta: Tree) -> jax.Array:
        return jnp.ones(())

    def adapt(self, server: EnvelopeServer, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """theta_i of the global model, which stays: K steps on each batch."""
        w = server.params
        return f.train(lambda theta, batch: self._proximal(theta, w, f, batch), w, key, work or Batching.of(self))[0]

    def _proximal(self, theta: Tree, w: Tree, f: Objective, batch: Batch | None) -> Tree:
        """K gradient steps on f_i(theta; batch) + penalty/2 |theta - w|^2."""

        def step(_: jax.Array, theta: Tree) -> Tree:
            pull = scale(self.penalty, subtract(theta, w))
            return descend(theta, self.inner_lr, add(f.grad(theta, batch), pull))

        return lax.fori_loop(0, self.inner_steps, step, theta)
