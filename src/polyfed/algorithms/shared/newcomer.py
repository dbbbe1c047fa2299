"""How a client that joins after training gets its model: the local work that the methods' `adapt` is made of."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from polyfed.core.schedules import at
from polyfed.core.trees import Tree, add, descend, scale, subtract
from polyfed.problem.objective import Batch, Batching, Objective

STEPS = 10
"""The local steps of a newcomer whose method has no number of its own."""

ASIDE = 2**31 - 1
"""What a key is folded with for draws beside those of the batches, which fold the numbers of passes and steps."""


def fit(
    start: Tree, f: Objective, key: jax.Array, lr: Any, work: Batching, anchor: Tree = None, penalty: Any = 0.0
) -> Tree:
    """SGD from `start` on f or, with an anchor, on f(x) + penalty/2 |x - anchor|^2."""

    def step(x: Tree, batch: Batch | None) -> Tree:
        gradient = f.grad(x, batch)
        if anchor is not None:
            gradient = add(gradient, scale(penalty, subtract(x, anchor)))
        return descend(x, lr, gradient)

    return f.train(step, start, key, work)[0]


def tuned(method: Any, params: Tree, f: Objective, key: jax.Array, work: Batching | None) -> Tree:
    """The global model after SGD with the method's stepsize; the smallest one, where every client has its own."""
    return fit(params, f, key, jnp.min(jnp.asarray(at(method.lr, f.round))), work or work_of(method))


def work_of(method: Any) -> Batching:
    """One round of the method's local work."""
    if hasattr(method, "local_steps"):
        return Batching.of(method)
    return Batching(method.batch, STEPS, None, method.replace)


def typical(value: Any) -> jax.Array:
    """A newcomer's value of a hyper-parameter: the common one or, where clients have their own, their mean."""
    return jnp.mean(jnp.asarray(value))
