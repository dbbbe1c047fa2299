"""An ONNX graph in the making: every operation is a call that gives the name of its result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper

OPSET, ML_OPSET = 20, 3
"""Of ONNX itself (20 has operations on words), and of its operators for machine learning."""
IR_VERSION = 9
"""The oldest form of file that has them, so that older runtimes read it, too."""
ML = "ai.onnx.ml"
ROWS = "rows"
"""The name of the first axis."""

Value = str
"""What a value is called in the graph."""


class Graph:
    """Nodes, constants, inputs and outputs. `names` are those of inputs and outputs; no other value has one of them."""

    def __init__(self, names: Iterable[str]) -> None:
        taken = set(names)
        self._prefix = "v"
        while any(name.startswith(self._prefix) for name in taken):
            self._prefix += "_"
        self._count = 0
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, kind: int, shape: Iterable[int | str]) -> Value:
        self._inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def output(self, name: str, value: Value, kind: int) -> None:
        """Give a value of one number or word per row to whoever runs the graph."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, kind, [ROWS]))

    def constant(self, value: ArrayLike) -> Value:
        """An array of numbers, or of words."""
        name, array = self._new(), np.asarray(value)
        if array.dtype.kind in "UO":
            words: Any = [str(word).encode() for word in array.ravel().tolist()]
            self._constants.append(helper.make_tensor(name, TensorProto.STRING, array.shape, words))
        else:
            self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def whole(self, number: int) -> Value:
        return self.constant(np.int64(number))

    def __call__(self, operator: str, *inputs: Value, domain: str = "", **attributes: Any) -> Value:
        """The result of an operation; of StringSplit, the first."""
        name = self._new()
        outputs = [name, self._new()] if operator == "StringSplit" else [name]
        self._nodes.append(helper.make_node(operator, list(inputs), outputs, domain=domain, **attributes))
        return name

    def cast(self, value: Value, kind: int) -> Value:
        return self("Cast", value, to=kind)

    def look_up(self, words: Value, table: Mapping[str, int], default: int) -> Value:
        """Whole numbers in place of words."""
        if not table:  # which the operator does not allow
            table = {"": default}
        return self(
            "LabelEncoder",
            words,
            domain=ML,
            keys_strings=list(table),
            values_int64s=list(table.values()),
            default_int64=default,
        )

    def model(self, about: Mapping[str, object]) -> onnx.ModelProto:
        """The graph as a model, with facts about it."""
        graph = helper.make_graph(self._nodes, "polyfed", self._inputs, self._outputs, self._constants)
        made = helper.make_model(
            graph,
            producer_name="polyfed",
            producer_version=str(about["polyfed"]),
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)],
        )
        helper.set_model_props(made, {key: json.dumps(value) for key, value in about.items()})
        onnx.checker.check_model(made)
        return made

    def _new(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"
