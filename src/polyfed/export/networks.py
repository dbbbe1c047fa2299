"""Models as a part of an ONNX graph: linear models, multi-layer perceptrons and convolutional networks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyfed.core.trees import Tree
from polyfed.export.graph import Graph, Value
from polyfed.models import Architecture, Params
from polyfed.models.conv import Convolutional
from polyfed.models.dense import Linear, Perceptron


def fits(family: Architecture | None) -> bool:
    """Whether ONNX has what a model of this family computes."""
    return isinstance(family, Linear | Perceptron | Convolutional)


def outputs(graph: Graph, family: Architecture, params: Params, x: Value, features: tuple[int, ...]) -> Value:
    """The model's outputs for examples (rows, *features), in the parameters' precision."""
    if isinstance(family, Convolutional):
        return _convolutional(graph, family, params, x, features)
    if len(features) != 1:
        x = graph("Flatten", x, axis=1)
    if isinstance(family, Linear):
        return _affine(graph, x, params)
    assert isinstance(family, Perceptron)
    return _dense(graph, x, params, family.activation)


def _dense(graph: Graph, x: Value, layers: Tree, activation: str) -> Value:
    for layer in layers[:-1]:
        x = _activated(graph, _affine(graph, x, layer), activation, layer["w"])
    return _affine(graph, x, layers[-1])


def _affine(graph: Graph, x: Value, layer: Tree) -> Value:
    z = graph("MatMul", x, graph.constant(np.asarray(layer["w"])))
    return graph("Add", z, graph.constant(np.asarray(layer["b"]))) if "b" in layer else z


def _activated(graph: Graph, x: Value, activation: str, like: Any) -> Value:
    if activation in ("relu", "tanh"):
        return graph(activation.title(), x)

    def number(value: float) -> Value:
        return graph.constant(np.asarray(value, np.asarray(like).dtype))

    cube = graph("Mul", graph("Mul", x, x), x)  # GELU with tanh, as jax.nn.gelu has it
    inner = graph("Mul", graph("Add", x, graph("Mul", cube, number(0.044715))), number(math.sqrt(2 / math.pi)))
    share = graph("Add", graph("Tanh", inner), number(1.0))
    return graph("Mul", graph("Mul", x, share), number(0.5))


def _convolutional(graph: Graph, family: Convolutional, params: Tree, x: Value, features: tuple[int, ...]) -> Value:
    height, width, depth = (*features, 1)[:3]
    x = graph("Reshape", x, graph.constant(np.array([-1, height, width, depth])))
    x = graph("Transpose", x, perm=[0, 3, 1, 2])  # channels come first in ONNX
    for layer, size, pool in zip(params["conv"], family.kernel, family.pool, strict=True):
        w = graph.constant(np.asarray(layer["w"]).transpose(3, 2, 0, 1))
        before, after = ((size - 1) // 2, size // 2) if family.padding == "same" else (0, 0)
        x = graph("Conv", x, w, graph.constant(np.asarray(layer["b"])), pads=[before, before, after, after])
        x = _activated(graph, x, family.activation, layer["w"])
        if pool > 1:
            x = graph("MaxPool", x, kernel_shape=[pool, pool], strides=[pool, pool])
    x = graph("Flatten", graph("Transpose", x, perm=[0, 2, 3, 1]), axis=1)
    return _dense(graph, x, params["fc"], family.activation)
