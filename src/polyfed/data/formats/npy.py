"""A population in a folder of .npy files: only the rows of the clients in use are ever read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.formats.failures import reason
from polyfed.data.option_checks import PathLike, existing_path
from polyfed.data.split import HeldOut, Pair

if TYPE_CHECKING:
    from polyfed.data.population import Population

BLOCK = 1 << 22
"""The labels that are read at once to count the classes."""


class RowFile:
    """The rows of an .npy file, read on request: what was read does not stay in the process's memory."""

    def __init__(self, path: Path) -> None:
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise PolyfedError(f"{path}: no such file; expected x.npy, y.npy and offsets.npy") from None
        except (OSError, ValueError, EOFError) as error:
            raise PolyfedError(f"{path}: cannot be read as an .npy file of plain numbers ({reason(error)})") from None
        if not isinstance(array, np.memmap) or not array.ndim or not array.flags.c_contiguous:
            raise PolyfedError(f"{path}: expected one array in C order, with an axis of rows")
        self.path, self.dtype, self._start = path, array.dtype, int(array.offset)
        self.shape = array.shape
        self._row = int(np.prod(array.shape[1:]))

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, first: int, stop: int) -> np.ndarray:
        """Rows first..stop-1."""
        count, offset = (stop - first) * self._row, first * self._row * self.dtype.itemsize
        rows = np.fromfile(self.path, self.dtype, count, offset=self._start + offset)
        if len(rows) != count:
            raise PolyfedError(f"{self.path}: ends before row {stop - 1}, which its header promises")
        return rows.reshape(stop - first, *self.shape[1:])


def from_npy(cls: type[Population], path: PathLike, *, classes: int | None, **shares: Unpack[HeldOut]) -> Population:
    """See `Population.from_npy`."""
    folder = existing_path("path", path)
    x, y = RowFile(folder / "x.npy"), RowFile(folder / "y.npy")
    ends = RowFile(folder / "offsets.npy")
    offsets = ends.read(0, len(ends))
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) < 2 or offsets[0] != 0:
        raise PolyfedError(f"{ends.path}: expected whole numbers, from 0 to the number of rows")
    offsets = offsets.astype(np.int64)
    if (np.diff(offsets) < 0).any() or not offsets[-1] == len(x) == len(y):
        raise PolyfedError(
            f"{ends.path}: must grow to the number of rows, found a last offset of {offsets[-1]} for {len(x)} rows of "
            f"x.npy and {len(y)} of y.npy"
        )

    def rows(client: int) -> Pair:
        place = int(offsets[client]), int(offsets[client + 1])
        return x.read(*place), y.read(*place)

    try:
        return cls(
            rows,
            np.diff(offsets),
            classes=_classes(y) if classes is None else classes,
            names=_names(folder / "clients.txt"),
            source={"name": "npy", "path": str(path), "classes": classes, **shares},
            **shares,
        )
    except PolyfedError as error:
        raise PolyfedError(f"{folder}: {error}") from None


def _classes(y: RowFile) -> int | None:
    """The largest label + 1; None for real numbers and for labels -1 and +1."""
    if y.dtype.kind not in "iub":
        return None
    blocks = (y.read(first, min(first + BLOCK, len(y))) for first in range(0, len(y), BLOCK))
    ends = [(int(block.min()), int(block.max())) for block in blocks if block.size]
    first, last = min(ends)[0], max(last for _, last in ends)
    if 0 < first < last:  # read as they are, they would make a class that nobody has
        raise PolyfedError(
            f"y.npy: the labels are {first} to {last}, expected labels from 0 on: subtract {first}, or give "
            f"classes = {last + 1} if there is a class 0 that no row has"
        )
    return None if first < 0 else last + 1


def _names(path: Path) -> tuple[str, ...] | None:
    try:
        return tuple(path.read_text().splitlines()) if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise PolyfedError(f"{path}: cannot be read: {error}") from None
