"""Trees of arrays as safetensors files, written and read in parts, so that none of them need be in memory whole."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import DTypeLike
from safetensors import safe_open

from polyfed.core import trees
from polyfed.core.errors import PolyfedError
from polyfed.core.trees import Tree

READ_BYTES = 64 << 20
"""The bytes of rows that are read at a time."""
CODES = {
    np.dtype(name): code
    for name, code in {
        "float64": "F64",
        "float32": "F32",
        "float16": "F16",
        "int64": "I64",
        "int32": "I32",
        "int16": "I16",
        "int8": "I8",
        "uint64": "U64",
        "uint32": "U32",
        "uint16": "U16",
        "uint8": "U8",
        "bool": "BOOL",
    }.items()
}


class TensorFile:
    """A safetensors file to be filled in: all names, shapes and types are given at the start, and `again` later."""

    def __init__(
        self, path: Path, arrays: Mapping[str, tuple[tuple[int, ...], DTypeLike]], again: bool = False
    ) -> None:
        kinds = {name: (shape, np.dtype(dtype)) for name, (shape, dtype) in arrays.items()}
        header, self._starts, self._kinds, end = {}, {}, kinds, 0
        for name, (shape, dtype) in sorted(kinds.items(), key=lambda item: -item[1][1].itemsize):  # so all are aligned
            first, end = end, end + prod(shape) * dtype.itemsize
            header[name] = {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": [first, end]}
            self._starts[name] = first
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self._data = 8 + len(text)
        head = struct.pack("<Q", len(text)) + text
        self._file = path.open("r+b") if again else os.fdopen(_owners(path), "wb")
        if again:
            if self._file.read(len(head)) != head or path.stat().st_size != self._data + end:
                raise PolyfedError(f"{path}: the arrays in this file are not those that were begun here")
        else:
            self._file.write(head)
            self._file.truncate(self._data + end)

    def write(self, name: str, array: np.ndarray, row: int = 0) -> None:
        """Put an array's values, or its rows from `row` on, in their place."""
        shape, dtype = self._kinds[name]
        values = np.ascontiguousarray(array, dtype)
        self._file.seek(self._data + self._starts[name] + row * prod(shape[1:]) * dtype.itemsize)
        self._file.write(values.reshape(-1).view(np.uint8).data)

    def sync(self) -> None:
        """Wait until all that was written is on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _owners(path: Path) -> int:
    """A new file that its owner alone can read."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.fchmod(handle, 0o600)
    return handle


def save_tree(path: Path, tree: Tree) -> None:
    """A pytree of arrays as one file, each array under its path."""
    arrays = named(tree)
    with TensorFile(path, {name: (leaf.shape, leaf.dtype) for name, leaf in arrays.items()}) as file:
        for name, leaf in arrays.items():
            file.write(name, leaf)


def save_rows(path: Path, blocks: Iterable[Tree], count: int) -> None:
    """Trees with a leading axis, joined along it to `count` rows, as one file."""
    blocks = iter(blocks)
    first = next(blocks, None)
    kinds = {name: ((count, *leaf.shape[1:]), leaf.dtype) for name, leaf in named(first).items()}
    with TensorFile(path, kinds) as file:
        done = 0
        for block in chain([first], blocks):
            for name, leaf in named(block).items():
                file.write(name, leaf, done)
            done += trees.length(block)


def load_tree(path: Path, like: Tree) -> Tree:
    """Read back what `save_tree` wrote, in the structure of `like`; shapes and types must be the same."""
    expected = named(like)
    with _opened(path, expected) as file:
        arrays = [file.get_tensor(name) for name in expected]
    for (name, leaf), array in zip(expected.items(), arrays, strict=True):
        _refuse_other(path, name, array.shape, array.dtype, leaf)
    return jax.tree.unflatten(jax.tree.structure(like), arrays)


def load_rows(path: Path, like: Tree, count: int) -> Iterator[Tree]:
    """Read back what `save_rows` wrote, block by block; a row must be like `like`."""
    expected = named(like) if count else {}
    with _opened(path, expected) as file:
        for name, row in expected.items():
            part = file.get_slice(name)
            wanted = np.broadcast_to(row, (count, *row.shape))
            _refuse_other(path, name, tuple(part.get_shape()), part[:0].dtype, wanted)
    for piece in _pieces(like, count):
        with _opened(path, expected) as file:  # anew: what is read through an open file stays in memory until it closes
            rows = [file.get_slice(name)[piece] for name in expected]
        yield jax.tree.unflatten(jax.tree.structure(like), rows)


def load_row(path: Path, like: Tree, place: int) -> Tree:
    """One row of what `save_rows` wrote, like `like`."""
    expected = named(like)
    with _opened(path, expected) as file:
        rows = [file.get_slice(name)[place] for name in expected]
    for (name, leaf), row in zip(expected.items(), rows, strict=True):
        _refuse_other(path, name, row.shape, row.dtype, leaf)
    return jax.tree.unflatten(jax.tree.structure(like), rows)


def blank_rows(like: Tree, count: int) -> Iterator[Tree]:
    """Zeros in the shape of what `load_rows` reads, block by block."""
    for piece in _pieces(like, count):
        rows = piece.stop - piece.start
        yield jax.tree.map(lambda leaf, rows=rows: np.zeros((rows, *np.shape(leaf)), np.asarray(leaf).dtype), like)


def _pieces(like: Tree, count: int) -> Iterator[slice]:
    """The rows of each block; none where a row holds nothing."""
    size = max(1, READ_BYTES // max(1, trees.bits(like) // 8))
    for first in range(0, count if jax.tree.leaves(like) else 0, size):
        yield slice(first, min(first + size, count))


def _opened(path: Path, expected: dict[str, np.ndarray]) -> Any:
    file = safe_open(path, framework="np")
    if set(file.keys()) != set(expected):
        raise PolyfedError(f"{path}: the arrays in this file are not those of this run")
    return file


def named(tree: Tree) -> dict[str, np.ndarray]:
    """The arrays by their paths."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        jax.tree_util.keystr(where, simple=True, separator="/") or "value": np.asarray(leaf) for where, leaf in leaves
    }


def _refuse_other(path: Path, name: str, shape: tuple[int, ...], dtype: DTypeLike, expected: np.ndarray) -> None:
    if shape != expected.shape or dtype != expected.dtype:
        raise PolyfedError(
            f"{path}: {name} is {dtype}{list(shape)}, this run has {expected.dtype}{list(expected.shape)}"
        )
