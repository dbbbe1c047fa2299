"""The fields that say what a client does in a round, and how clients weigh: they stand here once, for all methods.

The engine reads them by these types: a method that has none of them works on all of its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import optax

from polyfed.algorithms.contract import Algorithm
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Tree, descend
from polyfed.problem.objective import Batch, Batching, Objective


@dataclass(frozen=True, kw_only=True)
class Steps(Algorithm):
    """A method whose clients compute gradients on batches."""

    lr: Schedule | list[float] | None = None
    """the stepsize"""
    batch: int | Literal["full"] = "full"
    """rows per step, or "full" """
    replace: bool = False
    """draw batches with replacement"""
    even: bool = False
    """cut each pass into batches of nearly equal size, as many as `batch` needs, so that none is short"""

    @property
    def one_batch(self) -> Batching:
        """A single step."""
        return self.steps_of(1)

    def steps_of(self, count: int) -> Batching:
        """So many steps, with the method's batches."""
        return Batching(self.batch, count, None, self.replace, self.even)


@dataclass(frozen=True, kw_only=True)
class LocalSteps(Steps):
    """A method whose clients take a given number of steps in a round, or of passes over their rows."""

    local_steps: int = 10
    """steps per round"""
    local_epochs: int | None = None
    """passes over the client's data per round, instead of local_steps"""
    batch: int | Literal["full"] = 20
    """rows per step, or "full" """

    @property
    def work(self) -> Batching:
        """A round's steps."""
        return Batching(self.batch, self.local_steps, self.local_epochs, self.replace, self.even)


@dataclass(frozen=True, kw_only=True)
class LocalWork(LocalSteps):
    """The same with a stepsize that is a number or a schedule."""

    lr: Schedule = 0.1
    """the clients' stepsize"""


@dataclass(frozen=True, kw_only=True)
class Momentum(LocalWork):
    """The same by steps of SGD, with momentum or without."""

    momentum: float | None = None
    """the share of a local step that goes into the next one; it begins anew in every round"""

    def descended(
        self, gradient: Callable[[Tree, Batch | None], Tree], start: Tree, f: Objective, key: jax.Array
    ) -> tuple[Tree, jax.Array]:
        """The model after a round's steps along a gradient, and how many these were."""
        lr = at(self.lr, f.round)
        if self.momentum is None:
            return f.train(lambda y, batch: descend(y, lr, gradient(y, batch)), start, key, self.work)
        rule = optax.sgd(lr, self.momentum)

        def step(carry: tuple[Tree, Tree], batch: Batch | None) -> tuple[Tree, Tree]:
            y, memory = carry
            updates, memory = rule.update(gradient(y, batch), memory)
            return optax.apply_updates(y, updates), memory

        (y, _), steps = f.train(step, (start, rule.init(start)), key, self.work)
        return y, steps


@dataclass(frozen=True, kw_only=True)
class Weighted(Algorithm):
    """A method whose server averages: by the clients' sizes, or all alike."""

    weighting: Literal["size", "uniform"] = "uniform"
    """the weight of a client in the average: n_i, or one for all"""


def work_of(method: Algorithm) -> Batching:
    """The batches of a method's local work; all rows at once for one that has no batches."""
    if isinstance(method, LocalSteps):
        return method.work
    return method.one_batch if isinstance(method, Steps) else Batching("full", 1)
