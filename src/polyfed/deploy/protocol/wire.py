"""Trees of arrays as they travel: named arrays in a Flower record, compressed uploads as their code."""

from __future__ import annotations

import io
import json
from math import isfinite, prod
from typing import Any, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Array, ArrayRecord

from polyfed.compress import Code, Compressor, Sealed
from polyfed.core.trees import Tree
from polyfed.deploy.protocol.plain_values import Refused
from polyfed.engine.checkpoint.tensors import named

Arrays = dict[str, np.ndarray]


class CodeHeader(TypedDict):
    """What is needed to read the code of one compressed part; by which compressor is known to both sides."""

    key: list[int]
    factor: float
    whole: bool


def as_record(arrays: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array, order="C")) for name, array in arrays.items()})


def as_arrays(record: ArrayRecord) -> Arrays:
    return {name: _as_array(array, name) for name, array in record.items()}


def _as_array(array: Array, name: str) -> np.ndarray:
    """The array that travelled. A head that claims more than there are bytes is refused before it is believed."""
    if array.stype != "numpy.ndarray":
        raise Refused(f"array '{name:.60}' is serialised in an unknown way")
    stream = io.BytesIO(array.data)
    try:
        version = np.lib.format.read_magic(stream)
        read: Any = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, _, dtype = read(stream)
        if dtype.hasobject or dtype.kind not in "biuf":
            raise ValueError("it is not of numbers")
        if any(size < 0 for size in shape) or len(shape) > 8:
            raise ValueError("its shape is none")
        if prod(shape) * dtype.itemsize != len(array.data) - stream.tell():
            raise ValueError("its bytes are not as many as its head says")
        stream.seek(0)
        return np.lib.format.read_array(stream, allow_pickle=False)
    except Exception as error:  # NumPy parses the head as Python, and fails in many ways
        why = str(error) if isinstance(error, ValueError) else type(error).__name__
        raise Refused(f"array '{name:.60}' cannot be read: {why:.120}") from None


def as_tree(arrays: Arrays, like: Tree, what: str) -> Tree:
    """The arrays in the structure of `like`, or a refusal that names the first that does not fit."""
    expected = named(like)
    if set(arrays) != set(expected):
        raise Refused(f"{what} has the arrays {sorted(arrays)!s:.200}, expected {sorted(expected)}")
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
            "key": np.asarray(jax.random.key_data(part.key)).tolist(),
            "factor": float(part.factor),
            "whole": whole,
        }
    return arrays, json.dumps(headers)


def decode_upload(arrays: Arrays, headers: str, like: Tree, compressor: Compressor | None = None) -> Tree:
    """What `encode_upload` was given, in the structure of `like`; `compressor` is the one that its site must use."""
    if not headers:
        return as_tree(arrays, like, "upload")
    if compressor is None:
        raise Refused("upload: a code, although nothing is compressed")
    shapes = {name: leaf.shape for name, leaf in named(like).items()}
    (dtype,) = {leaf.dtype for leaf in named(like).values()}
    leaves: Arrays = {}
    seen = 0
    try:
        for where, header in json.loads(headers).items():
            mine = {name: s for name, s in shapes.items() if where == "value" or f"{name}/".startswith(f"{where}/")}
            code = {name.removeprefix(f"{where}."): a for name, a in arrays.items() if name.startswith(f"{where}.")}
            if not mine or set(mine) & set(leaves):
                raise ValueError(f"no part '{where:.60}'")
            seen += len(code)
            size = sum(int(np.prod(shape)) for shape in mine.values())
            vector = _decoded_part(header, code, compressor, size, dtype)
            ends = np.cumsum([int(np.prod(shape)) for shape in mine.values()])
            for (name, shape), piece in zip(mine.items(), np.split(vector, ends[:-1]), strict=True):
                leaves[name] = piece.reshape(shape)
        if seen != len(arrays):
            raise ValueError("it has arrays that no part needs")
    except Refused:
        raise
    except Exception as error:  # whatever a code that is none runs into
        why = str(error) if isinstance(error, ValueError) else type(error).__name__
        raise Refused(f"upload: its code cannot be read: {why:.200}") from None
    return as_tree(leaves, like, "upload")


def _decoded_part(header: CodeHeader, code: Code, compressor: Compressor, size: int, dtype: np.dtype) -> np.ndarray:
    """factor * C(x) of one compressed part."""
    key, factor = header["key"], header["factor"]
    if not isinstance(factor, int | float) or not isfinite(factor) or not isinstance(header["whole"], bool):
        raise ValueError("its factor is no number")
    if not isinstance(key, list) or not all(type(word) is int and 0 <= word < 2**32 for word in key) or len(key) != 2:
        raise ValueError("its key is none")
    if header["whole"]:
        _check("upload: values", code["values"], (size,), dtype)
        vector = code["values"]
    else:
        made = jax.random.wrap_key_data(jnp.asarray(key, jnp.uint32), impl="threefry2x32")
        like = compressor.encode(jax.random.key(0), jnp.zeros(size, dtype))
        if set(code) != set(like):
            raise Refused(f"upload: a code of {sorted(code)!s:.100}, expected {sorted(like)}")
        for name, array in like.items():
            _check(f"upload: the code's {name}", code[name], array.shape, np.dtype(array.dtype))
        vector = np.asarray(compressor.decode(made, code, size, dtype))
    return (factor * vector).astype(dtype)


def _parts(sealed: Tree) -> list[tuple[str, Sealed]]:
    """The compressed parts of an upload by their paths."""
    parts, _ = jax.tree_util.tree_flatten_with_path(sealed, is_leaf=lambda node: isinstance(node, Sealed))
    return [(jax.tree_util.keystr(where, simple=True, separator="/") or "value", part) for where, part in parts]


def _check(what: str, array: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> None:
    if array.shape != tuple(shape) or array.dtype != dtype:
        raise Refused(f"{what} is {array.dtype}{list(array.shape)}, expected {dtype}{list(shape)}")
