"""Means over local steps: of a client's iterates, and of the server's, where the average is what is deployed."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from polyfed.core.trees import Scalar, Tree, add, mix, scale, zeros_like


class Terms(NamedTuple):
    """A sum of weighted terms, and the sum of their weights."""

    total: Tree
    weight: jax.Array

    @classmethod
    def none(cls, like: Tree) -> Terms:
        """The sum before the first term."""
        return cls(zeros_like(like), jnp.zeros(()))

    def plus(self, term: Tree, weight: Scalar = 1.0) -> Terms:
        return Terms(add(self.total, scale(weight, term)), self.weight + weight)


class RunningMean(NamedTuple):
    """The weighted mean of all terms so far, and the sum of their weights."""

    mean: Tree
    weight: jax.Array

    @classmethod
    def start(cls, value: Tree) -> RunningMean:
        return cls(value, jnp.zeros(()))

    def plus(self, terms: Terms) -> RunningMean:
        weight = self.weight + terms.weight
        return RunningMean(scale(1 / weight, add(scale(self.weight, self.mean), terms.total)), weight)

    def after_absence(self, until: jax.Array, value: Tree, terms: Terms) -> RunningMean:
        """With `value` counted for the weights up to `until`, in which it stood still, and then the new terms."""
        weight = until + terms.weight
        total = add(scale(self.weight, self.mean), scale(until - self.weight, value))
        return RunningMean(scale(1 / weight, add(total, terms.total)), weight)

    def until(self, weight: jax.Array, value: Tree) -> Tree:
        """The mean at a time when all weights sum to `weight`, `value` having stood still since the last term."""
        covered = jnp.where(weight > 0, self.weight / jnp.where(weight > 0, weight, 1), 0.0)
        return mix(covered, self.mean, value)


class OutputServer(NamedTuple):
    """The global model; where that is a mean over steps, also the iterate w, and the sum of the weights so far."""

    params: Tree
    iterate: Tree | None = None
    weight: jax.Array | None = None

    @classmethod
    def start(cls, params: Tree, averages: bool) -> OutputServer:
        return cls(params, params, jnp.zeros(())) if averages else cls(params)

    @property
    def sent(self) -> Tree:
        """What clients need: w, and how much weight the mean has so far."""
        return self.params if self.weight is None else (self.iterate, self.weight)

    def moved(self, move: Tree, terms: Terms | None) -> OutputServer:
        """w + move; the mean with the mean over clients of their terms."""
        if self.weight is None or terms is None:
            return OutputServer(add(self.params, move))
        mean = RunningMean(self.params, self.weight).plus(terms)
        return OutputServer(mean.mean, add(self.iterate, move), mean.weight)
