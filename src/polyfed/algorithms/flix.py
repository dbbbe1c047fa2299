"""FLIX: explicit mixtures of a global and pure local models, solved by distributed gradient descent."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from polyfed import theory
from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import checks, mixture, server
from polyfed.algorithms.shared.local_work import LocalSteps
from polyfed.algorithms.shared.mixture import Mixture, SmoothMixtureMethod
from polyfed.algorithms.shared.server import Averaged, Begun, ServerOptimizer
from polyfed.core import trees
from polyfed.core.errors import PolyfedError
from polyfed.core.trees import Tree
from polyfed.problem.objective import Batch, Batching, Objective
from polyfed.problem.problem import Problem


class FlixServer(NamedTuple):
    """x, the optimiser's state, and the rounds so far that anybody counted in."""

    params: Tree
    optimizer: Tree
    rounds: jax.Array


@algorithm("flix")
class FLIX(SmoothMixtureMethod, LocalSteps):
    """An explicit mixture: the client deploys alpha_i x + (1 - alpha_i) x_i*, x by (stochastic) gradient descent.

    Gasanov et al. 2022, Algorithm 1 (DGD); with batches, sampled clients and an Optax optimiser, its neural version.
    """

    lr: float | None = None
    """gamma, the server's stepsize; by default 1 / L_alpha (Theorem 2)"""
    batch: int | Literal["full"] = "full"
    """rows per gradient, or "full" """
    local_steps: int = 1
    """1: a client sends one gradient; more: the way that x went in so many local steps on the client's mixture"""
    local_lr: float | None = None
    """the stepsize of local steps; lr then multiplies the mean of the ways, by default 1 (averaging)"""
    start: Literal["init", "average"] = "init"
    """x^0: where the run starts, or the one-shot average (5), which takes the first round"""
    server_optimizer: ServerOptimizer = "sgd"
    """any of Optax's, applied to the mean gradient with stepsize lr"""
    smoothness: float | list[float] | None = None
    """L_i, for the default stepsize and the weights of the one-shot average; by default measured (linear models)"""

    def check(self) -> None:
        self.check_mixture()
        if self.lr is not None:
            checks.number(self, "lr", above=True)
        server.check_optimizer(self)
        checks.local_steps(self)
        if self.local_lr is not None:
            checks.number(self, "local_lr", above=True)
        if self._walks != (self.local_lr is not None):
            raise PolyfedError(f"{self.name}: local_lr goes with local_steps above 1 or local_epochs, and they with it")
        if self._walks and self.start == "average":
            raise PolyfedError(f"{self.name}: start = 'average' does not go with local steps")

    @property
    def _walks(self) -> bool:
        """Whether clients take local steps."""
        return self.local_steps > 1 or self.local_epochs is not None

    def resolve(self, problem: Problem) -> FLIX:
        alpha = self.weights(problem)
        plm = self.local_models(problem, alpha)
        changes: dict[str, object] = {"alpha": mixture.compact(alpha), "plm": plm}
        if self.start == "average":
            changes["smoothness"] = mixture.compact(mixture.smoothness(self, problem)[0])
        if self._walks:
            changes["lr"] = 1.0 if self.lr is None else self.lr
        elif self.lr is None:
            limit = theory.gd_stepsize(mixture.smoothness(self, problem)[0], alpha)
            changes["lr"] = limit if np.isfinite(limit) else 1.0
        elif problem.model.design is not None and self.server_optimizer == "sgd":
            limit = theory.gd_stepsize(problem.constants.smoothness, alpha)
            mixture.warn_above(self, "lr", self.lr, limit, "Theorem 2")
        if self.start != "average":
            changes["smoothness"] = None
        return dataclasses.replace(self, **changes)

    def init_server(self, params: Tree) -> FlixServer:
        return FlixServer(*server.start(self.server_optimizer, self.lr, params), jnp.zeros((), jnp.int32))

    def init_client(self, params: Tree) -> Mixture:
        return mixture.blank(params)

    def prepare(self, state: Mixture, f: Objective, key: jax.Array) -> Mixture:
        return mixture.prepared(self, state, f, key)

    def broadcast(self, server: FlixServer) -> Tree:
        return server.params if self.start == "init" else Begun(server.params, server.rounds)

    def local(self, sent: Tree, state: Mixture, f: Objective, key: jax.Array) -> tuple[Upload, Mixture]:
        x = sent if self.start == "init" else sent.params
        silent = state.alpha == 0
        if self._walks:
            return self._walk(x, state, f, key, silent), state
        gradient = mixture.gradient(x, state, f, key, self.one_batch)  # line 3
        if self.start == "init":
            return Upload(gradient, silent=silent), state
        first = sent.rounds == 0  # the one-shot average (5): weights alpha_i^2 L_i
        weight = jnp.where(first, state.alpha**2 * f.own(self.smoothness), 1.0)
        bits = trees.bits(x) + jnp.where(first, trees.bits(weight), 0)
        return Upload(trees.where(first, state.own, gradient), weight, bits=bits, silent=silent), state

    def _walk(self, x: Tree, state: Mixture, f: Objective, key: jax.Array, silent: jax.Array) -> Upload:
        """x minus where SGD on y -> f_i(T_i(y)) ends: what the server takes for a gradient."""
        stepsize = self.local_lr
        assert stepsize is not None, "check refuses local steps without one"

        def step(y: Tree, batch: Batch | None) -> Tree:
            return trees.descend(y, stepsize * state.alpha, f.grad(mixture.deployed(y, state), batch))

        y, steps = f.train(step, x, key, self.work)
        return Upload(trees.subtract(x, y), steps=steps, silent=silent)

    def update(self, server_state: FlixServer, total: Total) -> FlixServer:
        moved = server.descend(
            self.server_optimizer, self.lr, Averaged(server_state.params, server_state.optimizer), total.mean
        )  # line 4
        weighed = total.weight > 0  # in the average nobody weighs anything where every alpha is 0
        rounds = server_state.rounds + weighed.astype(jnp.int32)
        if self.start == "init":
            return FlixServer(*moved, rounds)
        average = trees.where(weighed, total.mean, server_state.params)
        first = server_state.rounds == 0
        return FlixServer(
            trees.where(first, average, moved.params),
            trees.where(first, server_state.optimizer, moved.optimizer),
            rounds,
        )

    def personal(self, server: FlixServer, state: Mixture) -> Tree:
        return mixture.deployed(server.params, state)

    def own_share(self, state: Mixture) -> jax.Array:
        return 1 - state.alpha

    def adapt(self, server: FlixServer, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """The newcomer's pure local model, mixed with the global one."""
        return mixture.joined(self, server.params, f, key, work)
