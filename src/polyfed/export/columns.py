"""The preparation of a table as a part of an ONNX graph: an input for each column, by its name."""

from __future__ import annotations

import math
import re
from itertools import product

import numpy as np
from onnx import TensorProto

from polyfed.data.tables.cells import MISSING, NO, PARTS, YES
from polyfed.data.tables.columns import Category, Moment, Number, Used, YesNo
from polyfed.data.tables.preparation import Preparation
from polyfed.export.dates import moments
from polyfed.export.graph import ROWS, Graph, Value


def features(graph: Graph, preparation: Preparation) -> Value:
    """(rows, features) in float64, from inputs (rows, 1): numbers, NaN where missing, or words, "" where missing."""
    blocks = []
    for column in preparation.used:
        kind = TensorProto.DOUBLE if isinstance(column, Number) else TensorProto.STRING
        cells = graph.input(column.name, kind, (ROWS, 1))
        own, gone = _block(graph, column, cells)
        blocks += [own] if column.own_features else []
        blocks += [graph.cast(gone, TensorProto.DOUBLE)] if column.indicator else []
    return graph("Concat", *blocks, axis=1)


def _block(graph: Graph, column: Used, cells: Value) -> tuple[Value, Value]:
    """A column's own features, and where its cells are missing."""
    if isinstance(column, Number):
        return _number(graph, column, cells)
    if isinstance(column, Moment):
        return _moment(graph, column, cells)
    words = dict.fromkeys(MISSING.union(column.missing), -1)
    if isinstance(column, YesNo):
        known = {text: int(word in YES) for word in YES | NO for text in _any_case(word)} | {"1.0": 1, "0.0": 0}
        codes = graph.look_up(cells, known | words, -1)
        gone = graph("Less", codes, graph.whole(0))
        value = graph.cast(codes, TensorProto.DOUBLE)
        return graph("Where", gone, graph.constant(column.commonest), value), gone
    assert isinstance(column, Category)
    codes = graph.look_up(cells, _places(column) | words, len(column.categories))
    gone = graph("Less", codes, graph.whole(0))
    commonest = column.categories.index(column.commonest) if column.commonest in column.categories else None
    place = len(column.categories) if commonest is None else commonest
    codes = graph("Where", gone, graph.whole(place), codes)
    own = graph("Equal", codes, graph.constant(np.arange(len(column.own_features))[None]))
    return graph.cast(own, TensorProto.DOUBLE), gone


def _number(graph: Graph, column: Number, cells: Value) -> tuple[Value, Value]:
    gone = graph("IsNaN", cells)
    for number in filter(math.isfinite, map(_as_number, column.missing)):
        gone = graph("Or", gone, graph("Equal", cells, graph.constant(number)))
    fill = column.centre if column.fill is None else column.fill
    if column.complete:
        return cells, gone
    known = graph("Where", gone, graph.constant(float(fill)), cells)
    shifted = graph("Sub", known, graph.constant(float(column.centre)))
    return graph("Div", shifted, graph.constant(float(column.scale or 1.0))), gone


def _moment(graph: Graph, column: Moment, cells: Value) -> tuple[Value, Value]:
    words = graph("Reshape", cells, graph.constant(np.array([-1])))
    if column.missing:
        absent = graph.look_up(words, dict.fromkeys(column.missing, 1), 0)
        words = graph("Where", graph.cast(absent, TensorProto.BOOL), graph.constant(""), words)
    places = np.array([PARTS.index(part) for part in column.parts])
    values = graph("Gather", moments(graph, words, column.formats, column.name), graph.constant(places), axis=1)
    gone = graph("IsNaN", values)
    shift = [mean if part == "year" else 0.0 for part, mean in zip(column.parts, column.means, strict=True)]
    scale = [column.scale if part == "year" else 1.0 for part in column.parts]
    known = graph("Where", gone, graph.constant(np.array(column.means)), values)
    own = graph("Div", graph("Sub", known, graph.constant(np.array(shift))), graph.constant(np.array(scale)))
    unread = graph("ReduceMin", graph.cast(gone, TensorProto.INT64), graph.constant(np.array([1])), keepdims=1)
    return own, graph.cast(unread, TensorProto.BOOL)


def _places(column: Category) -> dict[str, int]:
    """Each category's place, also where a whole number is written 7.0."""
    places = {f"{word}.0": i for i, word in enumerate(column.categories) if re.fullmatch(r"-?\d+", word)}
    return places | {word: i for i, word in enumerate(column.categories)}


def _any_case(word: str) -> list[str]:
    return ["".join(letters) for letters in product(*({letter.lower(), letter.upper()} for letter in word))]


def _as_number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan
