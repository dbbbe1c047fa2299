"""APFL: every client mixes a model of its own with the global one, and may learn the mixing weight."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from polyfed import theory
from polyfed.algorithms.contract import Algorithm, Total, Upload, algorithm
from polyfed.algorithms.shared import checks, mixture, newcomer
from polyfed.core.errors import PolyfedError
from polyfed.core.schedules import Decay, InverseStep, Schedule, at
from polyfed.core.trees import Tree, add, descend, dot, mix, scale, subtract, tied, where, zeros_like
from polyfed.problem.client_values import RULES
from polyfed.problem.objective import Batch, Batching, Objective

if TYPE_CHECKING:
    from polyfed.problem.problem import Problem


class ApflServer(NamedTuple):
    """The global model; with weighted output it is the average w^, and beside it stand the iterate w and sum p_t."""

    params: Tree
    iterate: Tree = None
    weight: Any = None


class ApflState(NamedTuple):
    """v_i and alpha_i; with weighted output also the average of v_i so far, and the sum of p_t that it covers."""

    own: Tree
    alpha: jax.Array
    average: Tree = None
    weight: Any = None


class ApflUpload(NamedTuple):
    """The move of w_i; with weighted output also sum p_t w_i^t and sum p_t over the round."""

    move: Tree
    models: Tree = None
    weight: Any = None


class Walk(NamedTuple):
    """A client's models during a round: w_i, v_i, alpha_i, the number of steps so far, and the sums over p_t."""

    copy: Tree
    own: Tree
    alpha: jax.Array
    done: jax.Array
    sums: Any


@algorithm("apfl")
class APFL(Algorithm):
    """An adaptive mixture: the client deploys alpha_i v_i + (1 - alpha_i) w, and may learn alpha_i as it trains.

    Deng, Kamani, Mahdavi 2020, Algorithm 1 and eq. (10).
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
    local_steps: int = 10
    """tau, steps per round"""
    local_epochs: int | None = None
    """passes over the client's data per round, instead of local_steps"""
    batch: int | Literal["full"] = 20
    """rows per step, or "full" """
    replace: bool = False
    """draw batches with replacement"""
    weighting: Literal["size", "uniform"] = "uniform"
    """the weight of a client in the average (8): n_i, or one for all as in the paper"""
    output: Literal["last", "weighted"] = "last"
    """what is deployed: the last iterates, or the averages of Theorems 2 and 3 with weights p_t = (t + a)^2"""
    output_offset: float | None = None
    """a in those weights; by default that of lr if it has step_offset, else max(128 L/mu, tau) (linear models)"""

    def check(self) -> None:
        checks.local_work(self, per_step=True)
        checks.choice(self, "adaptive", "step", "round", "off")
        checks.choice(self, "alpha_on", "train", "validation")
        checks.choice(self, "weighting", "size", "uniform")
        checks.choice(self, "output", "last", "weighted")
        if isinstance(self.alpha, int | float) and not isinstance(self.alpha, bool):
            checks.number(self, "alpha", 0.0, 1.0)
        if self.alpha_lr is not None:
            checks.stepsize(self, "alpha_lr", per_step=True)
        if self.output_offset is not None:
            checks.number(self, "output_offset")
        if self.output == "weighted" and self.local_epochs is not None:
            raise PolyfedError(f"{self.name}: output = 'weighted' counts steps, give local_steps and not local_epochs")

    def resolve(self, problem: Problem) -> APFL:
        alpha = mixture.weights(self, problem)
        if isinstance(self.alpha, str) and self.alpha in RULES and self.alpha not in problem.federation.columns:
            alpha = 1 - alpha  # a rule says how much a client leans on the global model
        if self.adaptive != "off" and self.alpha_on == "validation" and not problem.federation.validation.rows:
            raise PolyfedError(f"{self.name}: alpha_on = 'validation' needs validation rows, and the data has none")
        changes: dict[str, Any] = {"alpha": mixture.compact(alpha)}
        if self.output == "weighted" and self.output_offset is None:
            if isinstance(self.lr, InverseStep):
                changes["output_offset"] = self.lr.step_offset
            else:
                found = mixture.constants(self, problem, "output_offset")
                changes["output_offset"] = theory.apfl_offset(found.smoothness, found.convexity, self.local_steps)
        return dataclasses.replace(self, **changes)

    def init_server(self, params: Tree) -> ApflServer:
        return ApflServer(params, params, jnp.zeros(())) if self.output == "weighted" else ApflServer(params)

    def init_client(self, params: Tree) -> ApflState:
        start = ApflState(params, jnp.zeros(()))
        return start._replace(average=params, weight=jnp.zeros(())) if self.output == "weighted" else start

    def prepare(self, state: ApflState, f: Objective, key: jax.Array) -> ApflState:
        return state._replace(alpha=jnp.asarray(f.own(self.alpha), state.alpha.dtype))

    def broadcast(self, server: ApflServer) -> Tree:
        return (server.iterate, server.weight) if self.output == "weighted" else server.params

    def local(self, sent: Tree, state: ApflState, f: Objective, key: jax.Array) -> tuple[Upload, ApflState]:
        weighted = self.output == "weighted"
        w, before = sent if weighted else (sent, None)
        sums = (zeros_like(w), zeros_like(w), jnp.zeros(())) if weighted else None

        def step(walk: Walk, batch: Batch | None) -> Walk:
            t = f.round * self.local_steps + walk.done + 1
            lr = at(self.lr, f.round, t)
            gradient = f.grad(mix(walk.alpha, walk.own, walk.copy), batch, tied=False)
            alpha = walk.alpha  # (10), at the models before the step
            if self.adaptive == "step":
                alpha = self._mixing(walk, gradient, f, t)
            elif self.adaptive == "round":
                alpha = lax.cond(walk.done == 0, lambda: self._mixing(walk, gradient, f, t), lambda: alpha)
            gradient = tied(gradient, alpha)
            copy = descend(walk.copy, lr, tied(f.grad(walk.copy, batch), gradient))  # (6)
            own = descend(walk.own, lr * walk.alpha, gradient)  # (7): the chain rule brings alpha_i
            return Walk(copy, own, alpha, walk.done + 1, self._summed(walk.sums, copy, own, t))

        start = Walk(w, state.own, state.alpha, jnp.zeros((), jnp.int32), sums)
        end, steps = f.train(step, start, key, Batching.of(self))
        upload, state = ApflUpload(subtract(end.copy, w)), self._renewed(state, end, before)
        if weighted:
            upload = ApflUpload(upload.move, end.sums[0], end.sums[2])
        return Upload(upload, f.weight(self.weighting), steps=steps), state

    def update(self, server: ApflServer, total: Total) -> ApflServer:
        mean: ApflUpload = total.mean
        if self.output == "last":
            return ApflServer(add(server.params, mean.move))  # (8)
        weight = server.weight + mean.weight
        average = scale(1 / weight, add(scale(server.weight, server.params), mean.models))
        return ApflServer(average, add(server.iterate, mean.move), weight)

    def personal(self, server: ApflServer, state: ApflState) -> Tree:
        own = state.own
        if self.output == "weighted":  # an absent client's v_i stands still, and counts as it stands
            absent = jnp.where(server.weight > 0, 1 - state.weight / jnp.where(server.weight > 0, server.weight, 1), 1)
            own = mix(absent, own, state.average)
        return mix(state.alpha, own, server.params)

    def own_share(self, state: ApflState) -> jax.Array:
        return state.alpha

    def adapt(self, server: ApflServer, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """Eq. (17): v from the global model, which stays; alpha by (10) at every step, where it is adaptive."""
        w = server.params

        def step(walk: Walk, batch: Batch | None) -> Walk:
            t = f.round * self.local_steps + walk.done + 1
            gradient = f.grad(mix(walk.alpha, walk.own, w), batch)
            own = descend(walk.own, at(self.lr, f.round, t) * walk.alpha, gradient)
            alpha = walk.alpha if self.adaptive == "off" else self._mixing(walk, gradient, f, t)
            return Walk(w, own, alpha, walk.done + 1, None)

        start = Walk(w, w, newcomer.typical(self.alpha), jnp.zeros((), jnp.int32), None)
        end = f.train(step, start, key, work or Batching.of(self))[0]
        return mix(end.alpha, end.own, w)

    def _mixing(self, walk: Walk, gradient: Tree, f: Objective, t: jax.Array) -> jax.Array:
        """Eq. (10), projected to [0, 1]."""
        if self.alpha_on == "validation":
            gradient = validation_gradient(f, mix(walk.alpha, walk.own, walk.copy))
        lr = at(self.lr if self.alpha_lr is None else self.alpha_lr, f.round, t)
        slope = dot(subtract(walk.own, walk.copy), gradient)
        return jnp.clip(walk.alpha - lr * slope, 0.0, 1.0)

    def _summed(self, sums: Any, copy: Tree, own: Tree, t: jax.Array) -> Any:
        """The sums of p_t w_i^t, p_t v_i^t and p_t, one step further."""
        if sums is None:
            return None
        a: Any = self.output_offset
        p = (t + a) ** 2
        return add(sums[0], scale(p, copy)), add(sums[1], scale(p, own)), sums[2] + p

    def _renewed(self, state: ApflState, end: Walk, before: Any) -> ApflState:
        """The client's state after a round; the steps that it missed count with the v_i that it had."""
        if end.sums is None:
            return ApflState(end.own, end.alpha)
        weight = before + end.sums[2]
        total = add(scale(state.weight, state.average), scale(before - state.weight, state.own))
        return ApflState(end.own, end.alpha, scale(1 / weight, add(total, end.sums[1])), weight)


def validation_gradient(f: Objective, params: Tree) -> Tree:
    """The gradient of f_i on the client's validation rows; zero where it has none, so that alpha_i stays."""
    rows = getattr(f, "validation", None)
    if rows is None:
        raise PolyfedError("apfl: alpha_on = 'validation' needs an objective that offers validation rows")
    return where(rows.size > 0, rows.grad(params), zeros_like(params))
