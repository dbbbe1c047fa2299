"""APFL: every client mixes a model of its own with the global one, and may learn the mixing weight."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from polyfed import theory
from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import checks, mixture, newcomer
from polyfed.algorithms.shared.kept_model import KeptModel
from polyfed.algorithms.shared.local_work import LocalWork, Weighted
from polyfed.algorithms.shared.running_mean import OutputServer, RunningMean, Terms
from polyfed.core.errors import PolyfedError
from polyfed.core.schedules import Decay, InverseStep, Schedule, at
from polyfed.core.trees import Tree, descend, descend_together, dot, mix, subtract, where, zeros_like
from polyfed.problem.objective import Batch, Batching, Objective
from polyfed.problem.problem import Problem


class ApflServer(NamedTuple):
    """The global model; where alpha_i are learned, also the last participants' mean, which a newcomer starts from."""

    output: OutputServer
    alpha: jax.Array | None

    @property
    def params(self) -> Tree:
        return self.output.params


class ApflState(NamedTuple):
    """v_i and alpha_i; with weighted output also the mean of v_i over the steps so far."""

    own: KeptModel
    alpha: jax.Array
    mean: RunningMean | None = None


class ApflUpload(NamedTuple):
    """The moves of w_i and, where it is learned, of alpha_i since the start; with weighted output also the round's sum
    of p_t w_i^t."""

    move: Tree
    models: Terms | None = None
    learned: jax.Array | None = None


class Walk(NamedTuple):
    """A client's models during a round: w_i, v_i, alpha_i, the steps so far, and what is averaged of w_i and v_i."""

    copy: Tree
    own: Tree
    alpha: jax.Array
    done: jax.Array
    copies: Terms | None = None
    owns: Terms | None = None


@algorithm("apfl")
class APFL(LocalWork, Weighted):
    """An adaptive mixture: the client deploys alpha_i v_i + (1 - alpha_i) w, and may learn alpha_i as it trains.

    Deng, Kamani, Mahdavi 2020, Algorithm 1 and eq. (10): lr is eta, local_steps tau.
    """

    alpha: float | str | list[float] = 0.5
    """alpha_i, the weight of the LOCAL model, at the start: a number, one for each client, or a column of the data"""
    adaptive: Literal["step", "round", "off"] = "round"
    """when alpha_i takes a step of eq. (10): at every local step, at the first of a round, or never"""
    alpha_lr: Schedule | None = None
    """the stepsize of alpha_i; by default lr, as in the paper"""
    alpha_on: Literal["train", "validation"] = "train"
    """the rows that alpha_i learns from: the step's training batch, as in the paper, or the validation rows"""
    lr: Schedule = Decay(0.1, 0.99)
    """eta, the stepsize of w_i and v_i"""
    output: Literal["last", "weighted"] = "last"
    """what is deployed: the last iterates, or the averages of Theorems 2 and 3 with weights p_t = (t + a)^2"""
    output_offset: float | None = None
    """a in those weights; by default that of lr if it has step_offset, else max(128 L/mu, tau) (linear models)"""

    def check(self) -> None:
        checks.local_work(self, per_step=True)
        mixture.check_alpha(self, self.alpha)
        if self.alpha_lr is not None:
            checks.stepsize(self, "alpha_lr", per_step=True)
        if self.output_offset is not None:
            checks.number(self, "output_offset")
        if self.output == "weighted" and self.local_epochs is not None:
            raise PolyfedError(f"{self.name}: output = 'weighted' counts steps, give local_steps and not local_epochs")

    def resolve(self, problem: Problem) -> APFL:
        alpha = problem.mixing_weights(self.alpha, f"{self.name}: alpha")
        if problem.is_rule(self.alpha):
            alpha = 1 - alpha  # a rule says how much a client leans on the global model
        if self.adaptive != "off" and self.alpha_on == "validation" and not problem.federation.validation.rows:
            raise PolyfedError(f"{self.name}: alpha_on = 'validation' needs validation rows, and the data has none")
        offset = self.output_offset
        if self.output == "weighted" and offset is None:
            if isinstance(self.lr, InverseStep):
                offset = self.lr.step_offset
            else:
                constants = mixture.constants(self, problem, "output_offset")
                offset = theory.apfl_offset(constants.smoothness, constants.convexity, self.local_steps)
        return dataclasses.replace(self, alpha=mixture.compact(alpha), output_offset=offset)

    def init_server(self, params: Tree) -> ApflServer:
        alpha = None if self.adaptive == "off" else newcomer.typical(self.alpha)
        return ApflServer(OutputServer.start(params, averages=self.output == "weighted"), alpha)

    def init_client(self, params: Tree) -> ApflState:
        mean = RunningMean.start(params) if self.output == "weighted" else None
        return ApflState(KeptModel.start(params), jnp.zeros(()), mean)

    def prepare(self, state: ApflState, f: Objective, key: jax.Array) -> ApflState:
        return state._replace(alpha=jnp.asarray(f.own(self.alpha), state.alpha.dtype))

    def broadcast(self, server: ApflServer) -> Tree:
        return server.output.sent

    def local(self, sent: Tree, state: ApflState, f: Objective, key: jax.Array) -> tuple[Upload, ApflState]:
        w = sent if state.mean is None else sent[0]
        v = state.own.beside(w)

        def step(walk: Walk, batch: Batch | None) -> Walk:
            t = f.round * self.local_steps + walk.done + 1
            lr = at(self.lr, f.round, t)
            gradient = f.grad(mix(walk.alpha, walk.own, walk.copy), batch)
            alpha = walk.alpha  # (10), at the models before the step
            if self.adaptive == "step":
                alpha = self._mixing(walk, gradient, f, t)
            elif self.adaptive == "round":
                alpha = lax.cond(walk.done == 0, lambda: self._mixing(walk, gradient, f, t), lambda: walk.alpha)
            copy, own = descend_together(
                (walk.copy, lr, f.grad(walk.copy, batch)),  # (6)
                (walk.own, lr * walk.alpha, gradient),  # (7): the chain rule brings alpha_i
                after=alpha,
            )
            copies, owns = self._plus(walk.copies, copy, t), self._plus(walk.owns, own, t)
            return Walk(copy, own, alpha, walk.done + 1, copies, owns)

        start = Walk(w, v, state.alpha, jnp.zeros((), jnp.int32))
        if state.mean is not None:
            start = start._replace(copies=Terms.none(w), owns=Terms.none(w))
        end, steps = f.train(step, start, key, self.work)
        mean = state.mean
        if mean is not None and end.owns is not None:  # the steps that it missed count with the v_i that it had
            mean = mean.after_absence(sent[1], v, end.owns)
        learned = None if self.adaptive == "off" else end.alpha - f.own(self.alpha)
        upload = ApflUpload(subtract(end.copy, w), end.copies, learned)
        state = ApflState(KeptModel.after(end.own), end.alpha, mean)
        return Upload(upload, f.weight(self.weighting), steps=steps), state

    def update(self, server: ApflServer, total: Total) -> ApflServer:
        mean: ApflUpload = total.mean
        alpha = None if mean.learned is None else jnp.clip(newcomer.typical(self.alpha) + mean.learned, 0.0, 1.0)
        return ApflServer(server.output.moved(mean.move, mean.models), alpha)  # (8)

    def personal(self, server: ApflServer, state: ApflState) -> Tree:
        own, weight = state.own.beside(server.params), server.output.weight
        if state.mean is not None and weight is not None:
            own = state.mean.until(weight, own)
        return mix(state.alpha, own, server.params)

    def own_share(self, state: ApflState) -> jax.Array:
        return state.own.share * state.alpha

    def adapt(self, server: ApflServer, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """Eq. (17): v from the global model, which stays; alpha by (10) at every step, where it is adaptive.

        An adaptive alpha starts at the participants' mean: from a small one v would move slowly, and alpha with it.
        """
        w = server.params

        def step(walk: Walk, batch: Batch | None) -> Walk:
            t = f.round * self.local_steps + walk.done + 1
            gradient = f.grad(mix(walk.alpha, walk.own, w), batch)
            own = descend(walk.own, at(self.lr, f.round, t) * walk.alpha, gradient)
            alpha = walk.alpha if self.adaptive == "off" else self._mixing(walk, gradient, f, t)
            return Walk(w, own, alpha, walk.done + 1)

        alpha = newcomer.typical(self.alpha) if server.alpha is None else server.alpha
        start = Walk(w, w, alpha, jnp.zeros((), jnp.int32))
        end = f.train(step, start, key, work or self.work)[0]
        return mix(end.alpha, end.own, w)

    def _mixing(self, walk: Walk, gradient: Tree, f: Objective, t: jax.Array) -> jax.Array:
        """Eq. (10), projected to [0, 1]."""
        if self.alpha_on == "validation":
            gradient = validation_gradient(f, mix(walk.alpha, walk.own, walk.copy))
        lr = at(self.lr if self.alpha_lr is None else self.alpha_lr, f.round, t)
        slope = dot(subtract(walk.own, walk.copy), gradient)
        return jnp.clip(walk.alpha - lr * slope, 0.0, 1.0)

    def _plus(self, terms: Terms | None, model: Tree, t: jax.Array) -> Terms | None:
        """The sum with p_t times the model after step t."""
        if terms is None or self.output_offset is None:
            return None
        return terms.plus(model, (t + self.output_offset) ** 2)


def validation_gradient(f: Objective, params: Tree) -> Tree:
    """The gradient of f_i on the client's validation rows; zero where it has none, so that alpha_i stays."""
    rows = f.validation
    if rows is None:
        raise PolyfedError("apfl: alpha_on = 'validation' needs an objective that offers validation rows")
    return where(rows.size > 0, rows.grad(params), zeros_like(params))
