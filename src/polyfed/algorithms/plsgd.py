"""PLSGD: local SGD with an additive personal part, one gradient for both."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import checks, newcomer, personal_part
from polyfed.algorithms.shared.local_work import LocalWork, Weighted
from polyfed.algorithms.shared.personal_part import Theta
from polyfed.algorithms.shared.running_mean import OutputServer, RunningMean, Terms
from polyfed.core.errors import PolyfedError
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Scalar, Tree, descend, scale, subtract, where
from polyfed.models.parameters import paths, shapes
from polyfed.problem.objective import Batch, Batching, Objective
from polyfed.problem.problem import Problem


class PlsgdState(NamedTuple):
    """theta_m; also the mean that the client keeps: of theta_m (output II) or of w_m + theta_m (output III)."""

    own: Theta
    mean: RunningMean | None = None


class PlsgdUpload(NamedTuple):
    """The move of w_m; for output II also the sum of its iterates over the round."""

    move: Tree
    iterates: Tree | None = None


class Walk(NamedTuple):
    """A client during a round: w_m, theta_m, the steps so far, and the sums of w_m (II) and of what it averages."""

    copy: Tree
    own: Theta
    done: jax.Array
    copies: Terms | None = None
    kept: Terms | None = None


@algorithm("plsgd")
class PLSGD(LocalWork, Weighted):
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
        if self.rank is not None:
            checks.whole(self, "rank")
        if not self._patterns or not all(map(checks.is_word, self._patterns)):
            raise PolyfedError(f"{self.name}: personal_params must be one or more patterns, found {self._patterns!r}")
        if self.output == "II" and self.local_epochs is not None:
            raise PolyfedError(f"{self.name}: output = 'II' counts steps, give local_steps and not local_epochs")

    def resolve(self, problem: Problem) -> PLSGD:
        params = shapes(problem.model.init, jax.random.key(0))
        for pattern in self._patterns:
            if not personal_part.chosen(params, [pattern]):
                known = ", ".join(paths(params))
                raise PolyfedError(f"{self.name}: personal_params '{pattern}' matches no parameter; there are {known}")
        return dataclasses.replace(self, personal_params=self._patterns)

    def init_server(self, params: Tree) -> OutputServer:
        return OutputServer.start(params, averages=self.output == "II")

    def init_client(self, params: Tree) -> PlsgdState:
        own = personal_part.zeros(params, self._patterns, self.rank)  # line 2
        if self.output == "I":
            return PlsgdState(own)
        return PlsgdState(own, RunningMean.start(personal_part.whole(own) if self.output == "II" else params))

    def prepare(self, state: PlsgdState, f: Objective, key: jax.Array) -> PlsgdState:
        return state._replace(own=personal_part.drawn(state.own, key))

    def broadcast(self, server: OutputServer) -> Tree:
        return server.sent

    def local(self, sent: Tree, state: PlsgdState, f: Objective, key: jax.Array) -> tuple[Upload, PlsgdState]:
        w = sent[0] if self.output == "II" else sent

        def step(walk: Walk, batch: Batch | None) -> Walk:
            lr = self._lr(f, walk.done)
            model = personal_part.join(walk.copy, walk.own)
            gradient = f.grad(model, batch)  # line 6: the only one
            own = descend(walk.own, self.alpha * lr, personal_part.pull_back(walk.own, gradient))  # line 7
            copy = descend(walk.copy, lr, gradient)  # line 8
            copies, kept = walk.copies, walk.kept  # iterates before the step: t runs from 0 to T - 1, as in Theorem 2
            if kept is not None:
                kept = kept.plus(personal_part.whole(walk.own) if self.output == "II" else model)
            copies = None if copies is None else copies.plus(walk.copy)
            return Walk(copy, own, walk.done + 1, copies, kept)

        start = Walk(w, state.own, jnp.zeros((), jnp.int32))
        if state.mean is not None:
            start = start._replace(kept=Terms.none(state.mean.mean))
        if self.output == "II":
            start = start._replace(copies=Terms.none(w))
        end, steps = f.train(step, start, key, self.work)
        upload = PlsgdUpload(subtract(end.copy, w), None if end.copies is None else end.copies.total)  # line 10
        mean = state.mean
        if mean is not None and end.kept is not None:
            if self.output == "II":  # the steps that it missed count with the theta that it had
                mean = mean.after_absence(sent[1], personal_part.whole(state.own), end.kept)
            else:
                mean = mean.plus(end.kept)
        return Upload(upload, f.weight(self.weighting), steps=steps), PlsgdState(end.own, mean)

    def update(self, server: OutputServer, total: Total) -> OutputServer:
        mean: PlsgdUpload = total.mean
        iterates = None if mean.iterates is None else Terms(mean.iterates, jnp.asarray(self.local_steps, float))
        return server.moved(scale(self.beta, mean.move), iterates)  # line 11

    def personal(self, server: OutputServer, state: PlsgdState) -> Tree:
        last = personal_part.join(server.params, state.own)  # line 17
        if state.mean is None:
            return last
        if server.weight is None:
            return where(state.mean.weight > 0, state.mean.mean, last)
        return personal_part.join(server.params, state.mean.until(server.weight, personal_part.whole(state.own)))

    def adapt(self, server: OutputServer, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """theta from 0 with its stepsize alpha lr, beside the global model, which stays."""
        w = server.params

        def step(carry: tuple[Theta, jax.Array], batch: Batch | None) -> tuple[Theta, jax.Array]:
            own, done = carry
            pulled = personal_part.pull_back(own, f.grad(personal_part.join(w, own), batch))
            return descend(own, self.alpha * self._lr(f, done), pulled), done + 1

        aside = jax.random.fold_in(key, newcomer.ASIDE)
        own = personal_part.drawn(personal_part.zeros(w, self._patterns, self.rank), aside)
        (own, _), _ = f.train(step, (own, jnp.zeros((), jnp.int32)), key, work or self.work)
        return personal_part.join(w, own)

    @property
    def _patterns(self) -> tuple[str, ...]:
        given = self.personal_params
        return (given,) if isinstance(given, str) else tuple(given)

    def _lr(self, f: Objective, done: jax.Array) -> Scalar:
        return at(self.lr, f.round, f.round * self.local_steps + done + 1)
