"""PLSGD: local SGD with an additive personal part, one gradient for both."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from polyfed.algorithms.contract import Algorithm, Total, Upload, algorithm
from polyfed.algorithms.shared import checks, newcomer
from polyfed.algorithms.shared import personal_part as additive
from polyfed.algorithms.shared.personal_part import Theta
from polyfed.core.errors import PolyfedError
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Tree, add, descend, mix, scale, subtract, where, zeros_like
from polyfed.problem.objective import Batch, Batching, Objective

if TYPE_CHECKING:
    from polyfed.problem.problem import Problem


class PlsgdServer(NamedTuple):
    """w; for output II it is the average of w_t, and beside it stand the iterate w and the steps so far."""

    params: Tree
    iterate: Tree = None
    steps: Any = None


class PlsgdState(NamedTuple):
    """theta_m; for outputs II and III also the average that the client keeps, and the steps that it covers."""

    own: Theta
    average: Tree = None
    steps: Any = None


class PlsgdUpload(NamedTuple):
    """The move of w_m; for output II also the sum of its iterates over the round."""

    move: Tree
    iterates: Tree = None


class Walk(NamedTuple):
    """A client during a round: w_m, theta_m, the number of steps so far, and the sums of what is averaged."""

    copy: Tree
    own: Theta
    done: jax.Array
    sums: Any


@algorithm("plsgd")
class PLSGD(Algorithm):
    """Local SGD with an additive personal part: the client deploys w + theta_i, and one gradient moves both.

    Personalization Mitigates the Perils of Local SGD, Algorithm 1.
    """

    alpha: float = 1.0
    """alpha, the personalisation: theta_i moves with alpha lr; 0 is local SGD"""
    beta: float = 1.0
    """beta, the outer stepsize: the server goes beta times the mean move"""
    lr: Schedule = 0.1
    """eta_t, the inner stepsize"""
    local_steps: int = 10
    """K, steps per round"""
    local_epochs: int | None = None
    """passes over the client's data per round, instead of local_steps"""
    batch: int | Literal["full"] = 20
    """rows per step, or "full" """
    replace: bool = False
    """draw batches with replacement"""
    weighting: Literal["size", "uniform"] = "uniform"
    """the weight of a client in the mean: n_i, or one for all as in the paper"""
    output: Literal["I", "II", "III"] = "I"
    """what is deployed: I the last w + theta_i; II the average of mean_j w_j + theta_i, III that of w_i + theta_i"""
    personal_params: str | list[str] = "*"
    """the parameters with a personal part: a pattern of paths such as "*.b", or several"""
    rank: int | None = None
    """personal parts of matrices as products of this rank, where that takes fewer numbers"""

    def check(self) -> None:
        checks.local_work(self, per_step=True)
        checks.number(self, "alpha")
        checks.number(self, "beta")
        checks.choice(self, "weighting", "size", "uniform")
        checks.choice(self, "output", "I", "II", "III")
        if self.rank is not None:
            checks.whole(self, "rank")
        if not self._patterns or not all(isinstance(pattern, str) for pattern in self._patterns):
            raise PolyfedError(f"{self.name}: personal_params must be one or more patterns, found {self._patterns!r}")
        if self.output == "II" and self.local_epochs is not None:
            raise PolyfedError(f"{self.name}: output = 'II' counts steps, give local_steps and not local_epochs")

    def resolve(self, problem: Problem) -> PLSGD:
        params = jax.eval_shape(problem.model.init, jax.random.key(0))
        for pattern in self._patterns:
            if not additive.chosen(params, [pattern]):
                known = ", ".join(additive.paths(params))
                raise PolyfedError(f"{self.name}: personal_params '{pattern}' matches no parameter; there are {known}")
        return dataclasses.replace(self, personal_params=self._patterns)

    def init_server(self, params: Tree) -> PlsgdServer:
        return PlsgdServer(params, params, jnp.zeros(())) if self.output == "II" else PlsgdServer(params)

    def init_client(self, params: Tree) -> PlsgdState:
        own = additive.zeros(params, self._patterns, self.rank)  # line 2
        if self.output == "I":
            return PlsgdState(own)
        return PlsgdState(own, additive.whole(own) if self.output == "II" else params, jnp.zeros(()))

    def prepare(self, state: PlsgdState, f: Objective, key: jax.Array) -> PlsgdState:
        return state._replace(own=additive.drawn(state.own, key))

    def broadcast(self, server: PlsgdServer) -> Tree:
        return (server.iterate, server.steps) if self.output == "II" else server.params

    def local(self, sent: Tree, state: PlsgdState, f: Objective, key: jax.Array) -> tuple[Upload, PlsgdState]:
        w, before = sent if self.output == "II" else (sent, None)

        def step(walk: Walk, batch: Batch | None) -> Walk:
            lr = self._lr(f, walk.done)
            model = additive.join(walk.copy, walk.own)
            gradient = f.grad(model, batch)  # line 6: the only one
            own = descend(walk.own, self.alpha * lr, additive.pull_back(walk.own, gradient))  # line 7
            copy = descend(walk.copy, lr, gradient)  # line 8
            return Walk(copy, own, walk.done + 1, self._summed(walk, model))

        start = Walk(w, state.own, jnp.zeros((), jnp.int32), self._nothing(w, state.own))
        end, steps = f.train(step, start, key, Batching.of(self))
        sent_up = PlsgdUpload(subtract(end.copy, w), end.sums[0] if self.output == "II" else None)  # line 10
        return Upload(sent_up, f.weight(self.weighting), steps=steps), self._renewed(state, end, before)

    def update(self, server: PlsgdServer, total: Total) -> PlsgdServer:
        mean: PlsgdUpload = total.mean
        if self.output != "II":
            return PlsgdServer(add(server.params, scale(self.beta, mean.move)))  # line 11
        steps = server.steps + self.local_steps
        average = scale(1 / steps, add(scale(server.steps, server.params), mean.iterates))
        return PlsgdServer(average, add(server.iterate, scale(self.beta, mean.move)), steps)

    def personal(self, server: PlsgdServer, state: PlsgdState) -> Tree:
        if self.output == "I":
            return additive.join(server.params, state.own)  # line 17
        if self.output == "III":
            return where(state.steps > 0, state.average, additive.join(server.params, state.own))
        # An absent client's theta stands still, and counts as it stands.
        covered = jnp.where(server.steps > 0, state.steps / jnp.maximum(server.steps, 1), 0.0)
        return additive.join(server.params, mix(covered, state.average, additive.whole(state.own)))

    def adapt(self, server: PlsgdServer, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """theta from 0 with its stepsize alpha lr, beside the global model, which stays."""
        w = server.params

        def step(carry: tuple[Theta, jax.Array], batch: Batch | None) -> tuple[Theta, jax.Array]:
            own, done = carry
            pulled = additive.pull_back(own, f.grad(additive.join(w, own), batch))
            return descend(own, self.alpha * self._lr(f, done), pulled), done + 1

        aside = jax.random.fold_in(key, newcomer.ASIDE)
        own = additive.drawn(additive.zeros(w, self._patterns, self.rank), aside)
        (own, _), _ = f.train(step, (own, jnp.zeros((), jnp.int32)), key, work or Batching.of(self))
        return additive.join(w, own)

    @property
    def _patterns(self) -> tuple[str, ...]:
        given = self.personal_params
        return (given,) if isinstance(given, str) else tuple(given)

    def _lr(self, f: Objective, done: jax.Array) -> Any:
        return at(self.lr, f.round, f.round * self.local_steps + done + 1)

    def _nothing(self, w: Tree, own: Theta) -> Any:
        """The sums before the first step: of w_m and theta_m (II), or of w_m + theta_m (III)."""
        if self.output == "I":
            return None
        return (zeros_like(w), zeros_like(additive.whole(own))) if self.output == "II" else zeros_like(w)

    def _summed(self, walk: Walk, model: Tree) -> Any:
        """The sums with the iterate before the step added: t runs from 0 to T - 1, as in Theorem 2."""
        if self.output == "I":
            return None
        return add(walk.sums, (walk.copy, additive.whole(walk.own)) if self.output == "II" else model)

    def _renewed(self, state: PlsgdState, end: Walk, before: Any) -> PlsgdState:
        """The client's state after a round; for II, the steps that it missed count with the theta that it had."""
        if self.output == "I":
            return PlsgdState(end.own)
        total, steps = scale(state.steps, state.average), state.steps + end.done
        if self.output == "II":
            total = add(total, scale(before - state.steps, additive.whole(state.own)))
            steps = before + end.done
        sums = end.sums[1] if self.output == "II" else end.sums
        return PlsgdState(end.own, scale(1 / steps, add(total, sums)), steps)
