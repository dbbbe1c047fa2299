"""Scaffnew (ProxSkip) and i-Scaffnew: local steps with control variates, and rare communication."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax

from polyfed.algorithms.contract import Pending, Total, Upload, algorithm
from polyfed.algorithms.shared.per_client import is_vector
from polyfed.algorithms.shared.server import GlobalModel, SendsModel
from polyfed.algorithms.shared.skipping import SkippingMethod
from polyfed.core.trees import Tree, add, descend, scale, subtract, zeros_like
from polyfed.problem.objective import Batch, Objective
from polyfed.problem.problem import Problem


class ScaffnewState(NamedTuple):
    """The control variate h_i."""

    control: Tree


@algorithm("scaffnew")
class Scaffnew(SkippingMethod, SendsModel):
    """Accelerated local training of one global model: communication with probability p only.

    Mishchenko et al. 2022. With a stepsize for each client it is i-Scaffnew (Yi et al. 2023, Algorithm 2).
    """

    def check(self) -> None:
        self.check_skipping()

    def resolve(self, problem: Problem) -> Scaffnew:
        return dataclasses.replace(self, **self.skipping(problem)._asdict())

    def init_client(self, params: Tree) -> ScaffnewState:
        return ScaffnewState(zeros_like(params))

    def local(self, x: Tree, state: ScaffnewState, f: Objective, key: jax.Array) -> tuple[Upload, Pending]:
        gamma = f.own(self.lr)

        def step(y: Tree, batch: Batch | None) -> Tree:
            return descend(y, gamma, self.corrected(f.grad(y, batch), state.control))  # lines 6, 7

        y, steps = f.train(step, x, key, self.one_batch, count=self.steps_until_coin(f))
        weight = 1.0 / gamma if is_vector(self.lr) else 1.0  # line 9
        return Upload(subtract(y, x), weight, steps=steps), Pending(state, y)

    def update(self, server: GlobalModel, total: Total) -> GlobalModel:
        return GlobalModel(add(server.params, total.mean))  # line 9: weights 1 / gamma_i

    def absorb(self, pending: Pending, x: Tree, f: Objective) -> ScaffnewState:
        state, y = pending
        change = scale(self.probability / f.own(self.lr), subtract(x, y))
        return state._replace(control=add(state.control, change))  # line 11

    def personal(self, server: GlobalModel, state: ScaffnewState) -> Tree:
        return server.params
