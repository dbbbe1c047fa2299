"""Trees of arrays as they travel: named arrays in a Flower record, compressed uploads as their code."""

from __future__ import annotations

import json
from typing import TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Array, ArrayRecord

from polyfed.compress import Code, Compressor, Sealed
from polyfed.core.trees import Tree
from polyfed.deploy.protocol.plain_values import Refused
from polyfed.engine.checkpoint.tensors import named
from polyfed.studies.newcomers.trained import from_json, to_json

Arrays = dict[str, np.ndarray]


class CodeHeader(TypedDict):
    """What is needed to read the code of one compressed part."""

    compressor: object
    """as JSON"""
    key: list[int]
    factor: float
    whole: bool


def as_record(arrays: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array, order="C")) for name, array in arrays.items()})


def as_arrays(record: ArrayRecord) -> Arrays:
    return {name: array.numpy() for name, array in record.items()}


def as_tree(arrays: Arrays, like: Tree, what: str) -> Tree:
    """The arrays in the structure of `like`, or a refusal that names the first that does not fit."""
    expected = named(like)
    if set(arrays) != set(expected):
        raise Refused(f"{what} has the arrays {sorted(arrays)}, expected {sorted(expected)}")
    for name, leaf in expected.items():
        _check(f"{what}: {name}", arrays[name], leaf.shape, leaf.dtype)
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in expected])


def encode_upload(values: Tree, sealed: Tree) -> tuple[Arrays, str]:
    """An upload's arrays, and how to read them: parts that were compressed are replaced by their code."""
    if sealed is None:
        return named(values), ""
    arrays: Arrays = {}
    headers: dict[str, CodeHeader] = {}
    for where, part in _parts(sealed):
        whole = bool(part.whole)
        code = {"values": np.asarray(part.vector)} if whole else part.compressor.encode(part.key, part.vector)
        arrays |= {f"{where}.{name}": array for name, array in code.items()}
        headers[where] = {
            "compressor": to_json(jax.tree.map(np.asarray, part.compressor)),
            "key": np.asarray(jax.random.key_data(part.key)).tolist(),
            "factor": float(part.factor),
            "whole": whole,
        }
    return arrays, json.dumps(headers)


def decode_upload(arrays: Arrays, headers: str, like: Tree) -> Tree:
    """What `encode_upload` was given, in the structure of `like`."""
    if not headers:
        return as_tree(arrays, like, "upload")
    shapes = {name: leaf.shape for name, leaf in named(like).items()}
    (dtype,) = {leaf.dtype for leaf in named(like).values()}
    leaves: Arrays = {}
    try:
        for where, header in json.loads(headers).items():
            mine = {name: s for name, s in shapes.items() if where == "value" or f"{name}/".startswith(f"{where}/")}
            code = {name.removeprefix(f"{where}."): a for name, a in arrays.items() if name.startswith(f"{where}.")}
            vector = _decoded_part(header, code, sum(int(np.prod(shape)) for shape in mine.values()), dtype)
            ends = np.cumsum([int(np.prod(shape)) for shape in mine.values()])
            for (name, shape), piece in zip(mine.items(), np.split(vector, ends[:-1]), strict=True):
                leaves[name] = piece.reshape(shape)
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"upload: its code cannot be read: {error}") from None
    return as_tree(leaves, like, "upload")


def _decoded_part(header: CodeHeader, code: Code, size: int, dtype: np.dtype) -> np.ndarray:
    """factor * C(x) of one compressed part."""
    if header["whole"]:
        _check("upload: values", code["values"], (size,), dtype)
        vector = code["values"]
    else:
        compressor: Compressor = from_json(header["compressor"])
        key = jax.random.wrap_key_data(jnp.asarray(header["key"], jnp.uint32), impl="threefry2x32")
        bits, room = 8 * sum(array.nbytes for array in code.values()), 8 * len(code)
        expected = int(np.asarray(compressor.bits(size, 8 * dtype.itemsize)))
        if not expected <= bits < expected + room:
            raise Refused(f"upload: a code of {bits} bits, expected {expected} for {size} numbers")
        vector = np.asarray(compressor.decode(key, code, size, dtype))
    return (header["factor"] * vector).astype(dtype)


def _parts(sealed: Tree) -> list[tuple[str, Sealed]]:
    """The compressed parts of an upload by their paths."""
    parts, _ = jax.tree_util.tree_flatten_with_path(sealed, is_leaf=lambda node: isinstance(node, Sealed))
    return [(jax.tree_util.keystr(where, simple=True, separator="/") or "value", part) for where, part in parts]


def _check(what: str, array: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> None:
    if array.shape != tuple(shape) or array.dtype != dtype:
        raise Refused(f"{what} is {array.dtype}{list(array.shape)}, expected {dtype}{list(shape)}")
