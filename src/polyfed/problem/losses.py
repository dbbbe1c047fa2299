"""Losses: per-example value, the metric people read, and which labels they accept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from polyfed.core.errors import PolyfedError, suggestion

if TYPE_CHECKING:
    from polyfed.data import Federation, Population
    from polyfed.problem.metrics.metric import Kind

Convert = Callable[[np.ndarray], np.ndarray]
TOP = 5
"""The highest scores that the metric of tags looks at."""


@dataclass(frozen=True)
class Loss:
    """A loss of the model's outputs and the targets, one value per example."""

    name: str
    kind: Kind
    value: Callable[[jax.Array, jax.Array], jax.Array]
    metric_name: str
    metric: Callable[[jax.Array, jax.Array], jax.Array]
    outputs: Callable[[Federation | Population], int | None]
    """The width of the model's output layer; None where the output is one number per example, without an axis."""
    targets: Callable[[Federation | Population], Convert]
    """How a federation's targets become those that the loss wants; refuses labels that it cannot use, by name."""


def _softmax(logits: jax.Array, label: jax.Array) -> jax.Array:
    """-log softmax(logits)[label]; where a row has several labels, their mean."""
    own = label[..., None] == jnp.arange(logits.shape[-1])  # compared, as a gather's gradient is a slow scatter
    picked = jnp.sum(jnp.where(own, logits, 0), axis=-1)
    return _per_row(jax.nn.logsumexp(logits, axis=-1) - picked)


def _hits(logits: jax.Array, label: jax.Array) -> jax.Array:
    """Whether the largest logit is the label's; where a row has several labels, the share of those."""
    return _per_row(_first_largest(logits) == label)


def _first_largest(logits: jax.Array) -> jax.Array:
    """argmax over the last axis, NaN being the largest, as two plain reductions: a CPU runs these side by side."""
    classes = logits.shape[-1]
    largest = jnp.max(logits, axis=-1, keepdims=True)
    is_largest = (logits == largest) | jnp.isnan(logits)
    return jnp.min(jnp.where(is_largest, jnp.arange(classes), classes), axis=-1)


def _per_row(values: jax.Array) -> jax.Array:
    return values if values.ndim == 1 else jnp.mean(values, axis=tuple(range(1, values.ndim)))


def _logistic(logit: jax.Array, sign: jax.Array) -> jax.Array:
    """log(1 + exp(-b a.x)) with labels b = +-1."""
    return _softplus(-sign * logit)


@jax.custom_jvp
def _softplus(z: jax.Array) -> jax.Array:
    """log(1 + exp(z)); its derivative is written out, as one exponential per example instead of several."""
    return jax.nn.softplus(z)


@_softplus.defjvp
def _(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (z,), (dz,) = primals, tangents
    return _softplus(z), jax.nn.sigmoid(z) * dz


def _squared(output: jax.Array, target: jax.Array) -> jax.Array:
    """Half the squared residual, summed over the outputs."""
    residual = jnp.square(output - target)
    return 0.5 * (residual if residual.ndim == 1 else jnp.sum(residual, axis=1))


def _squared_error(output: jax.Array, target: jax.Array) -> jax.Array:
    """The squared residual, its mean over the outputs."""
    return _per_row(jnp.square(output - target))


def _tags(logits: jax.Array, own: jax.Array) -> jax.Array:
    """sum_t log(1 + exp(z_t)) - b_t z_t, with b_t = 1 for the tags of the row and 0 for the others."""
    return jnp.sum(_softplus(logits) - own * logits, axis=-1)


def _precision_at_top(logits: jax.Array, own: jax.Array) -> jax.Array:
    """The share of the row's highest scores whose tags it has."""
    _, highest = lax.top_k(logits, min(TOP, logits.shape[-1]))
    return jnp.mean(jnp.take_along_axis(own, highest, axis=-1), axis=-1)


def _class_targets(federation: Federation | Population) -> Convert:
    if federation.classes is None:
        binary = bool(np.isin(federation.some_targets, (-1, 1)).all())
        raise PolyfedError(
            "loss 'softmax' needs class labels 0, 1, ...; this federation's targets are "
            + ("+-1: use loss 'logistic'" if binary else "real numbers: use loss 'squared'")
        )
    return lambda y: y.astype(np.int32, copy=False)


def _binary_targets(federation: Federation | Population) -> Convert:
    """+-1. Of two labels the larger is +1. A population's labels, which nobody has seen, must be 0 and 1, or +-1."""
    values = federation.label_values()
    if values is None:
        return _known_signs
    if len(values) > 2:
        shown = ", ".join(f"{v:g}" for v in values[:5])
        raise PolyfedError(
            f"loss 'logistic' needs two labels, found {len(values)}: {shown}{', ...' if len(values) > 5 else ''}"
        )
    if set(values) <= {-1, 1} or set(values) <= {0, 1} or federation.classes == 2:
        positive = 1
    else:
        positive = values[-1]
    return lambda y: np.where(y == positive, 1.0, -1.0)


def _known_signs(y: np.ndarray) -> np.ndarray:
    for label in y[~np.isin(y, (-1, 0, 1))][:1]:
        raise PolyfedError(f"loss 'logistic' on a population needs labels -1 and 1 or 0 and 1, found {label:g}")
    return np.where(y == 1, 1.0, -1.0)


def _real_targets(federation: Federation | Population) -> Convert:
    return lambda y: y.astype(np.float64) if y.dtype.kind != "f" else y


def _real_outputs(federation: Federation | Population) -> int | None:
    shape = federation.like.y.shape[1:]
    return int(shape[0]) if shape else None


def _tag_targets(federation: Federation | Population) -> Convert:
    shape = federation.like.y.shape
    if len(shape) != 2 or shape[1] < 2:
        raise PolyfedError(
            "loss 'tags' needs a row of zeros and ones for each example, an entry for each of at least 2 tags; "
            f"found targets of shape (rows{''.join(f', {size}' for size in shape[1:])})"
        )
    values = federation.label_values()
    if values is not None:
        _zeros_and_ones(values)
    return _zeros_and_ones


def _zeros_and_ones(y: np.ndarray) -> np.ndarray:
    for value in y[~np.isin(y, (0, 1))][:1]:
        raise PolyfedError(f"loss 'tags' needs targets 0 and 1, found {value:g}")
    return y.astype(np.float64)


def _tag_outputs(federation: Federation | Population) -> int:
    return int(federation.like.y.shape[1])


LOSSES = {
    loss.name: loss
    for loss in (
        Loss(
            "softmax",
            "classes",
            _softmax,
            "accuracy",
            _hits,
            lambda federation: federation.classes,
            _class_targets,
        ),
        Loss(
            "logistic",
            "classes",
            _logistic,
            "accuracy",
            lambda logit, sign: jnp.where(logit > 0, 1, -1) == sign,
            lambda federation: None,
            _binary_targets,
        ),
        Loss("tags", "tags", _tags, f"precision_at_{TOP}", _precision_at_top, _tag_outputs, _tag_targets),
        Loss("squared", "real", _squared, "squared_error", _squared_error, _real_outputs, _real_targets),
    )
}


def get_loss(name: str) -> Loss:
    if name not in LOSSES:
        raise PolyfedError(f"unknown loss '{name}'{suggestion(name, LOSSES)}")
    return LOSSES[name]
