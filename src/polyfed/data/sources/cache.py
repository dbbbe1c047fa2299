"""Keeps what was read from files in this process, so that a second federation of the same files is quick."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, cast

import numpy as np

Value = TypeVar("Value", bound=tuple[object, ...])

LIMIT = 2**30
"""The most bytes that are kept; what was used least recently goes first."""
_kept: OrderedDict[tuple[object, ...], tuple[tuple[object, ...], int]] = OrderedDict()


def parsed(read: Callable[..., Value], files: Sequence[Path], *options: object) -> Value:
    """read(files, *options), or what it gave before if no file has changed since (in size or time of change).

    Its arrays are read-only, because others may be given the same ones.
    """
    marks = [(str(file.resolve()), file.stat().st_mtime_ns, file.stat().st_size) for file in files]
    key = (read.__module__, read.__qualname__, *marks, *options)
    if key not in _kept:
        value = read(files, *options)
        arrays = [part for part in value if isinstance(part, np.ndarray)]
        for array in arrays:
            array.setflags(write=False)
        _kept[key] = (value, sum(array.nbytes for array in arrays))
    _kept.move_to_end(key)
    value = cast(Value, _kept[key][0])  # what `read`, which is in the key, gave
    while sum(size for _, size in _kept.values()) > LIMIT:
        _kept.popitem(last=False)
    return value


def forget() -> None:
    """Empty the cache."""
    _kept.clear()
