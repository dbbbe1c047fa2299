"""What is learned, without the data: a model, a loss, a ridge and the weights of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.core import trees
from polyfed.core.precision import Narrow, within
from polyfed.models import Model, Params
from polyfed.problem.losses import Loss
from polyfed.problem.objective import Batch, Examples


@dataclass(frozen=True)
class Task:
    """What a row costs, and the ridge. Compiled programs know this of a problem, and are given the rest as arrays.

    Problems whose tasks are equal share programs.
    """

    model: Model
    loss: Loss
    l2: float = 0.0
    class_weight: tuple[float, ...] | None = None
    """the weight of each class in the loss that is trained; None where every row counts alike"""

    def batch_loss(self, params: Params, examples: Examples, batch: Batch, compute: Narrow = None) -> jax.Array:
        """The weighted mean loss over a batch, without the ridge; `compute`: see `predict`."""
        outputs, targets = self.predict(params, examples, batch, compute)
        assert batch.weights is not None
        return jnp.vdot(batch.weights, self.row_loss(outputs, targets)) / jnp.sum(batch.weights)

    def row_loss(self, outputs: jax.Array, targets: jax.Array) -> jax.Array:
        """The loss of each row that is trained: times the weight of its class, where there are any."""
        loss = self.loss.value(outputs, targets)
        if self.class_weight is None:
            return loss
        return loss * self.row_weights(targets, jnp.asarray(self.class_weight, loss.dtype))

    def row_weights(self, targets: Any, weights: Any) -> Any:
        """Each row's entry of `weights`, which has one per class."""
        return weights[(targets > 0).astype(np.int32) if self.loss.name == "logistic" else targets]

    def predict(
        self, params: Params, examples: Examples, batch: Batch, compute: Narrow = None
    ) -> tuple[jax.Array, jax.Array]:
        """The model's outputs on a batch, and the targets; as in training where the batch has a key.

        `compute`: the type that the model computes in, where it is not that of the parameters.
        """
        x, y = examples
        if batch.rows is not None:
            x, y = (part.at[batch.rows].get(mode="promise_in_bounds") for part in (x, y))
        if x.dtype == jnp.uint8:  # images stay bytes until here
            x = x.astype(jnp.result_type(float)) / 255
        if batch.key is not None and self.model.train_apply is not None:
            return within(self.model.train_apply, compute)(params, x, batch.key), y
        return within(self.model.apply, compute)(params, x), y

    def ridge(self, params: Params) -> jax.Array:
        """l2/2 |x|^2."""
        if self.l2 == 0:
            return jnp.zeros((), jnp.result_type(float))
        return 0.5 * self.l2 * trees.squared_norm(params)
