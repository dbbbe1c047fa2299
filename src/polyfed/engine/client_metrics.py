"""Metrics by client and by name, and the clients that are evaluated."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from polyfed.core import randomness
from polyfed.core.errors import PolyfedError
from polyfed.core.trees import Tree
from polyfed.problem.problem import Problem

Metrics = dict[str, dict[str, dict[str, np.ndarray]]]
"""{model: {split: {metric: one value per client}}}"""


def evaluated_clients(population: int, count: int | None) -> np.ndarray:
    """The places of the clients that are evaluated: all or, of a fixed sample, `count`.

    The sample is the first `count` clients of a random permutation of all, in their own order. It depends on the number
    of clients alone, so that all methods, seeds and splits are measured on the same clients.
    """
    if count is None:
        return np.arange(population, dtype=np.int32)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= population:
        raise PolyfedError(f"eval_clients must be a whole number from 1 to the {population} clients, found {count!r}")
    key = randomness.purpose_key(0, randomness.Purpose.EVALUATE)
    return np.sort(np.asarray(randomness.shuffled(key, population, jnp.arange(count))))


def as_metrics(measured: Tree, problem: Problem, count: int) -> Metrics:
    """What the measuring program found, by name, without the clients that only fill up the devices."""
    return {
        model: {
            split: {
                "loss": values.loss[:count],
                problem.loss.metric_name: values.metric[:count],
                "ridge": values.ridge[:count],
            }
            | ({} if values.weighted is None else {"weighted_loss": values.weighted[:count]})
            for split, values in splits.items()
        }
        for model, splits in measured.items()
    }
