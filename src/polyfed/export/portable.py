"""A trained model in the portable form of `jax.export`: any model, from features to predictions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import export

from polyfed.core.files import JsonObject
from polyfed.models import Params
from polyfed.problem.prediction import Predictor
from polyfed.problem.problem import precision

PLATFORMS = ("cpu", "cuda", "tpu")


def portable_model(predictor: Predictor, params: Params) -> bytes:
    """What `jax.export.deserialize` reads: a function of examples, any number of them, to a dictionary of arrays.

    Its keys are the names of `predict`'s columns; the prediction of a class is its place among the labels.
    """
    with precision(predictor.dtype):
        real = jnp.result_type(float)
        whole = predictor.preparation is None and jnp.issubdtype(predictor.kind, jnp.integer)
        kind = real if not whole else jnp.uint8 if predictor.kind == "uint8" else jnp.int32
        scope = export.SymbolicScope()
        (rows,) = export.symbolic_shape("rows", scope=scope)
        like = jax.ShapeDtypeStruct((rows, *predictor.features), kind)

        def of_row(x: jax.Array) -> jax.Array:
            x = x.astype(real) / 255 if x.dtype == jnp.uint8 else x
            return predictor.model.apply(params, x[None])[0]  # row by row, so that it may ask how many rows it has

        def predicted(x: jax.Array) -> dict[str, jax.Array]:
            return _columns(predictor, jax.vmap(of_row)(x))

        return bytes(export.export(jax.jit(predicted), platforms=PLATFORMS)(like).serialize())


def portable_facts(predictor: Predictor, about: JsonObject) -> JsonObject:
    """What stands beside the function: how rows become examples, and what classes are called."""
    preparation = predictor.preparation
    return {
        **about,
        "features": predictor.features,
        "feature_names": None if preparation is None else preparation.feature_names,
        "preparation": None if preparation is None else preparation.to_json(),
    }


def _columns(predictor: Predictor, outputs: jax.Array) -> dict[str, jax.Array]:
    """See `Predictor.columns`."""
    names, labels = predictor.column_names, predictor.labels
    if labels is None:
        values = [outputs] if outputs.ndim == 1 else list(outputs.T)
    elif len(labels) == 2:
        score = outputs if predictor.loss == "logistic" else outputs[:, 1] - outputs[:, 0]
        values = [(score > 0).astype(jnp.int32), jax.nn.sigmoid(score)]
    else:
        values = [outputs.argmax(axis=1).astype(jnp.int32), *jax.nn.softmax(outputs).T]
    return dict(zip(names, values, strict=True))
