"""Pure local models, x_i* = argmin f_i: by Newton's method, or by epochs of SGD until one of two rules says stop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from polyfed.core import trees
from polyfed.core.errors import PolyfedError
from polyfed.core.schedules import Decay, Inverse, InverseStep, Schedule, at
from polyfed.core.trees import Tree
from polyfed.problem import newton
from polyfed.problem.objective import Batch, Batching, Objective

EXACT = 1e-12
"""The gradient norm at which Newton's method ends, unless another is given."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["lr", "tolerance"],
    meta_fields=["epochs", "batch", "patience", "even"],
)
@dataclass(frozen=True)
class LocalTraining:
    """How pure local models are computed; the fields are those of the methods, without their `plm_`."""

    epochs: int | None = None
    lr: Schedule = 0.1
    batch: int | Literal["full"] = 20
    tolerance: float | None = None
    patience: int | None = None
    even: bool = False
    """whether epochs are cut into batches of nearly equal size; of a method, as its own batches are"""

    @property
    def exactness(self) -> float:
        """The gradient norm of Newton's method."""
        return EXACT if self.tolerance is None else self.tolerance


class LocalModel(NamedTuple):
    """A client's pure local model, the gradient norm there, and the epochs (steps of Newton's method) that it took."""

    params: Tree
    grad_norm: jax.Array
    epochs: jax.Array


class _Epochs(NamedTuple):
    """Training between two epochs. What a rule does not need is None."""

    x: Tree
    done: jax.Array
    grad_norm: jax.Array | None
    best: Tree
    lowest: jax.Array | None
    since: jax.Array | None


def pure_local_model(training: LocalTraining, start: Tree, f: Objective, key: jax.Array) -> LocalModel:
    """A client's own minimiser. SGD begins at `start`.

    Newton's method begins at zero, wherever the run starts: where a client has no minimiser, all runs then stop at the
    same model.
    """
    if training.epochs is None:
        flat, unravel = ravel_pytree(start)
        minimum = newton.minimize(
            lambda x: f.value(unravel(x)),
            lambda x: ravel_pytree(f.grad(unravel(x)))[0],
            jnp.zeros_like(flat),
            training.exactness,
        )
        return LocalModel(unravel(minimum.x), minimum.grad_norm, minimum.steps)
    stops = training.tolerance is not None or training.patience is not None
    if not stops and not isinstance(lr := training.lr, Decay | Inverse | InverseStep):
        x = _passes(training, start, f, key, lr, training.epochs)
        return LocalModel(x, gradient_norm(f, x), jnp.asarray(training.epochs, jnp.int32))
    return _until_stopped(training, start, f, key)


def gradient_norm(f: Objective, x: Tree) -> jax.Array:
    """|grad f_i(x)|, on all of the client's training rows."""
    return jnp.sqrt(trees.squared_norm(f.grad(x)))


def _passes(
    training: LocalTraining,
    x: Tree,
    f: Objective,
    key: jax.Array,
    lr: trees.Scalar,
    epochs: int,
    earlier: jax.Array | None = None,
) -> Tree:
    def step(x: Tree, batch: Batch | None) -> Tree:
        return trees.descend(x, lr, f.grad(x, batch))

    return f.train(step, x, key, Batching(training.batch, 1, epochs, even=training.even), earlier=earlier)[0]


def _until_stopped(training: LocalTraining, start: Tree, f: Objective, key: jax.Array) -> LocalModel:
    """Epoch by epoch. The loop of a chunk's clients ends with the last of them; who stopped earlier stays as it is.

    A client without validation rows has no patience to lose: it takes all epochs.
    """
    held = f.validation if training.patience is not None else None
    if training.patience is not None and held is None:
        raise PolyfedError("plm_patience needs validation rows, and there are none")

    def validation_loss(x: Tree) -> jax.Array:
        assert held is not None
        return jnp.where(held.size > 0, held.value(x) - f.task.ridge(x), jnp.inf)

    def unfinished(now: _Epochs) -> jax.Array:
        goes = now.done < (training.epochs or 0)
        if now.grad_norm is not None:
            goes &= now.grad_norm > training.exactness
        if now.since is not None:
            goes &= now.since < (training.patience or 0)
        return goes

    def epoch(now: _Epochs) -> _Epochs:
        x = _passes(training, now.x, f, key, at(training.lr, now.done), 1, now.done)
        norm = None if now.grad_norm is None else gradient_norm(f, x)
        if held is None or now.lowest is None or now.since is None:
            return _Epochs(x, now.done + 1, norm, None, None, None)
        loss = validation_loss(x)
        better = loss < now.lowest
        since = jnp.where(better | (held.size == 0), 0, now.since + 1)
        best = trees.where(better | (held.size == 0), x, now.best)
        return _Epochs(x, now.done + 1, norm, best, jnp.where(better, loss, now.lowest), since)

    none = jnp.zeros((), jnp.int32)
    norm = None if training.tolerance is None else gradient_norm(f, start)
    begin = _Epochs(start, none, norm, None, None, None)
    if held is not None:
        begin = begin._replace(best=start, lowest=validation_loss(start), since=none)
    end = lax.while_loop(unfinished, epoch, begin)
    x = end.x if held is None else end.best
    return LocalModel(x, gradient_norm(f, x), end.done)
