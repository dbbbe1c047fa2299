"""What a model says of new rows: a prediction for each and, where it tells classes apart, probabilities."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from polyfed.core.errors import PolyfedError
from polyfed.data import Federation
from polyfed.data.tables.preparation import Preparation
from polyfed.models import Model, Params
from polyfed.problem.metrics.canonical import sigmoid, softmax
from polyfed.problem.problem import DType, Problem, precision

if TYPE_CHECKING:
    from pandas import DataFrame

Label = str | int | float
LINKS = {"softmax": "softmax", "logistic": "sigmoid", "squared": "identity"}
"""How the outputs of a model that was trained with a loss become probabilities, or predictions."""
BLOCK = 65_536
"""The rows that are scored at a time."""


@dataclass(frozen=True)
class Predictor:
    """Everything that scoring rows needs, apart from the parameters."""

    model: Model
    loss: str
    labels: tuple[Label, ...] | None
    """of the classes, in their order; None for real numbers"""
    features: tuple[int, ...]
    """the shape of an example"""
    preparation: Preparation | None
    dtype: DType
    kind: str = "float64"
    """the type of the numbers of its training examples, where these were arrays: bytes are shares of 255"""

    @classmethod
    def of(cls, problem: Problem, dtype: DType) -> Predictor:
        """That of a problem's model."""
        data = problem.federation
        preparation = data.preparation if isinstance(data, Federation) else None
        labels, kind = labels_of(problem), data.like.x.dtype.name
        return cls(problem.model, problem.loss.name, labels, data.feature_shape, preparation, dtype, kind)

    def predict(self, params: Params, rows: DataFrame | ArrayLike, site: str | None = None) -> DataFrame:
        """The rows' own columns, then `prediction` and, for two classes, the `probability` of the second.

        With more classes there is `probability_LABEL` for each, with several numbers to predict `prediction_0` and so
        on. `site` may lack columns that it lacked in training. An array has features, in their order.
        """
        import pandas as pd

        x = self.rows(rows, site)
        columns = self.columns(self.outputs(params, x))
        own = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(index=range(len(x)))
        for name in columns:
            if name in own.columns:
                raise PolyfedError(f"the rows have a column {name!r} already; rename it")
        return own.assign(**columns)

    def rows(self, rows: DataFrame | ArrayLike, site: str | None) -> np.ndarray:
        """The features of a table's rows, or of an array that has them."""
        import pandas as pd

        if isinstance(rows, pd.DataFrame):
            if self.preparation is None:
                raise PolyfedError("the model's features have no names, so that it reads arrays, not tables")
            if site is not None:
                self.preparation.check_columns(rows, site)
            unread: list[str] = []
            x = self.preparation.apply(rows, unread)
            for sentence in unread:
                warnings.warn(sentence, UserWarning, stacklevel=3)
            return x
        if self.preparation is not None and not self.preparation.is_plain:
            raise PolyfedError("the model reads tables, by the names of their columns; give a DataFrame")
        x = np.asarray(rows)
        if x.shape[1:] != self.features or x.dtype.kind not in "fiu":
            raise PolyfedError(f"the rows have shape {x.shape} and type {x.dtype}, expected (rows, {self.features})")
        return x

    def outputs(self, params: Params, x: np.ndarray) -> np.ndarray:
        """The model's outputs, in float64."""
        with precision(self.dtype):
            apply, real = jax.jit(self.model.apply), jnp.result_type(float)
            done = []
            some = x if len(x) else np.zeros((1, *x.shape[1:]), x.dtype)  # a model need not take no rows at all
            for first in range(0, len(some), BLOCK):
                block = some[first : first + BLOCK]
                if block.dtype == np.uint8:
                    block = block.astype(real) / 255
                done.append(np.asarray(apply(params, block.astype(real) if block.dtype.kind == "f" else block)))
        return np.concatenate(done).astype(np.float64)[: len(x)]

    @cached_property
    def column_names(self) -> list[str]:
        """The new columns."""
        if self.labels is None:
            params = jax.eval_shape(self.model.init, jax.random.key(0))
            shape = jax.eval_shape(self.model.apply, params, jax.ShapeDtypeStruct((1, *self.features), float)).shape
            return ["prediction"] if len(shape) == 1 else [f"prediction_{i}" for i in range(shape[1])]
        if len(self.labels) == 2:
            return ["prediction", "probability"]
        return ["prediction", *(f"probability_{label}" for label in self.labels)]

    def columns(self, outputs: np.ndarray) -> dict[str, Any]:
        """The new columns that follow from a model's outputs."""
        if self.labels is None:
            values = [outputs] if outputs.ndim == 1 else list(outputs.T)
            return dict(zip(self.column_names, values, strict=True))
        names = np.array(self.labels, dtype=object)
        if len(names) == 2:
            chance = sigmoid(outputs if self.loss == "logistic" else outputs[:, 1] - outputs[:, 0])
            values = [_plain(names[(chance > 0.5).astype(int)]), chance]
        else:
            chances = softmax(outputs)
            values = [_plain(names[chances.argmax(axis=1)]), *chances.T]
        return dict(zip(self.column_names, values, strict=True))


def labels_of(problem: Problem) -> tuple[Label, ...] | None:
    """What the classes are called; None for real numbers."""
    data, loss = problem.federation, problem.loss.name
    if loss == "squared":
        return None
    if loss == "tags" or data.like.y.ndim > 1:
        raise PolyfedError("rows with several labels at once are not predicted; `simulation.scores` has their scores")
    if data.label_names is not None:
        return tuple(data.label_names)
    if data.classes is not None:
        return tuple(range(data.classes))
    values = data.label_values()
    if values is None or set(values.tolist()) <= {-1, 1}:
        return (-1, 1)
    return tuple(values.tolist()) if len(values) == 2 else (-1, 1)


def _plain(labels: np.ndarray) -> Any:
    """Labels of one type as an array of it."""
    return np.array(labels.tolist()) if len(labels) else labels
