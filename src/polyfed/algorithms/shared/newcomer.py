"""How a client that joins after training gets its model, and the local work that the methods' rules are made of."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from polyfed.algorithms.contract import Algorithm, Server, global_model
from polyfed.algorithms.shared.local_work import LocalSteps, Steps, work_of
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Scalar, Tree, add, descend, scale, subtract
from polyfed.problem.objective import Batch, Batching, Objective

STEPS = 10
"""The local steps of a newcomer whose method has no number of its own."""

ASIDE = 2**31 - 1
"""What a key is folded with for draws beside those of the batches, which fold the numbers of passes and steps."""


def model_of(method: Algorithm, server: Server, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
    """The model of a newcomer, from its own training rows: by the method's rule, or `tuned`; the server stays.

    `work` is the local work that it does, by default one round of the method's own.
    """
    if method.adapt is not None:
        return method.adapt(server, f, key, work)
    if method.refine is not None:
        return method.refine(global_model(server), f, key, work)
    return tuned(method, global_model(server), f, key, work)


def fit(
    start: Tree,
    f: Objective,
    key: jax.Array,
    lr: Scalar,
    work: Batching,
    anchor: Tree | None = None,
    penalty: Scalar = 0.0,
) -> Tree:
    """SGD from `start` on f or, with an anchor, on f(x) + penalty/2 |x - anchor|^2."""

    def step(x: Tree, batch: Batch | None) -> Tree:
        gradient = f.grad(x, batch)
        if anchor is not None:
            gradient = add(gradient, scale(penalty, subtract(x, anchor)))
        return descend(x, lr, gradient)

    return f.train(step, start, key, work)[0]


def tuned(method: Algorithm, params: Tree, f: Objective, key: jax.Array, work: Batching | None) -> Tree:
    """The global model after SGD with the method's stepsize; the smallest one, where every client has its own."""
    lr = method.lr if isinstance(method, Steps) and method.lr is not None else 0.1
    lr = jnp.asarray(lr) if isinstance(lr, list) else lr
    return fit(params, f, key, jnp.min(jnp.asarray(at(lr, f.round))), work or work_of_newcomer(method))


def work_of_newcomer(method: Algorithm) -> Batching:
    """One round of the method's local work; some steps, where a round has no number of them."""
    if isinstance(method, Steps) and not isinstance(method, LocalSteps):
        return method.steps_of(STEPS)
    return work_of(method)


def typical(value: Schedule | str | list[float] | jax.Array) -> jax.Array:
    """A newcomer's value of a hyper-parameter: the common one or, where clients have their own, their mean."""
    return jnp.mean(jnp.asarray(value))
