"""A trained model as one ONNX file, from a table's cells to what `predict` says of them."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto

from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject
from polyfed.export import columns, networks
from polyfed.export.graph import ROWS, Graph, Value
from polyfed.models import Params
from polyfed.problem.prediction import Label, Predictor

ARRAY = "x"
"""The one input of a model that reads arrays."""
REAL = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}


def onnx_model(predictor: Predictor, params: Params, about: JsonObject) -> ModelProto:
    """The model with its preparation. Outputs are the columns that `predict` adds, under their names."""
    family, preparation = predictor.model.family, predictor.preparation
    if family is None or not networks.fits(family):
        raise PolyfedError("this model does not fit into ONNX; a name that ends in .jax takes jax.export's form")
    if predictor.dtype == "float64" and isinstance(family, networks.Convolutional):
        raise PolyfedError(
            "convolutions in float64 do not fit into ONNX; a name that ends in .jax takes jax.export's form"
        )
    inputs = [ARRAY] if preparation is None else [column.name for column in preparation.used]
    graph, real = Graph([*inputs, *predictor.column_names]), REAL[predictor.dtype]
    for name in predictor.column_names:
        if name in inputs:
            raise PolyfedError(f"the model reads a column {name!r}, the name of what it predicts; rename it")
    if preparation is not None:
        x = graph.cast(columns.features(graph, preparation), real)
    else:
        x = _array(graph, predictor, real)
    outputs = networks.outputs(graph, family, params, x, predictor.features)
    _predict(graph, predictor, graph.cast(outputs, TensorProto.DOUBLE))
    return graph.model(about)


def _array(graph: Graph, predictor: Predictor, real: int) -> Value:
    """Examples: bytes as shares of 255 if the model was trained on bytes."""
    shape = (ROWS, *predictor.features)
    if predictor.kind != "uint8":
        return graph.input(ARRAY, real, shape)
    x = graph.cast(graph.input(ARRAY, TensorProto.UINT8, shape), real)
    return graph("Div", x, graph.constant(np.asarray(255, predictor.dtype)))


def _predict(graph: Graph, predictor: Predictor, outputs: Value) -> None:
    """The graph's outputs, from the model's; see `Predictor.columns`."""
    names, labels = predictor.column_names, predictor.labels

    def column(place: int) -> Value:
        return graph("Gather", outputs, graph.whole(place), axis=1)

    if labels is None:
        for place, name in enumerate(names):
            graph.output(name, outputs if names == ["prediction"] else column(place), TensorProto.DOUBLE)
        return
    if len(labels) == 2:
        score = outputs if predictor.loss == "logistic" else graph("Sub", column(1), column(0))
        chances = [graph("Sigmoid", score)]
        chosen = graph.cast(graph("Greater", chances[0], graph.constant(0.5)), TensorProto.INT64)
    else:
        outputs = graph("Softmax", outputs, axis=1)
        chances = [column(place) for place in range(len(labels))]
        chosen = graph("ArgMax", outputs, axis=1, keepdims=0)
    words, kind = _labels(labels)
    graph.output(names[0], graph("Gather", graph.constant(words), chosen), kind)
    for name, chance in zip(names[1:], chances, strict=True):
        graph.output(name, chance, TensorProto.DOUBLE)


def _labels(labels: tuple[Label, ...]) -> tuple[np.ndarray, int]:
    if all(isinstance(label, int) for label in labels):
        return np.array(labels, np.int64), TensorProto.INT64
    if all(isinstance(label, int | float) for label in labels):
        return np.array(labels, np.float64), TensorProto.DOUBLE
    return np.array(list(map(str, labels)), dtype=object), TensorProto.STRING
