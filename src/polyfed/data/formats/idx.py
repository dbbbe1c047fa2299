"""IDX files, the format of MNIST: two zero bytes, a type, the number of axes, their lengths, then the numbers."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from polyfed.core.errors import PolyfedError

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path, axes: int | None = None, kind: str | None = None) -> np.ndarray:
    """The array of an IDX file, packed with gzip or not; it must have these `axes` and this `kind` ("u1", "i4")."""
    data = unpacked(path)
    if len(data) < 4 or data[0] or data[1] or data[2] not in TYPES or not data[3]:
        start = data[:4].hex(" ") or "an empty file"
        raise PolyfedError(f"{path}: not an IDX file, it begins with {start}, expected 00 00, a type and the axes")
    dtype, count = np.dtype(TYPES[data[2]]), data[3]
    if (axes is not None and count != axes) or (kind is not None and dtype.str[1:] != kind):
        raise PolyfedError(
            f"{path}: an IDX file of {count} axes and type {dtype.str[1:]}, expected {axes} axes and type {kind}"
        )
    head = 4 + 4 * count
    shape = tuple(int(n) for n in np.frombuffer(data[4:head], ">u4")) if len(data) >= head else ()
    expected = head + math.prod(shape) * dtype.itemsize
    if len(shape) != count or len(data) != expected:
        what = f"{len(data):,} bytes where shape {shape} needs {expected:,}" if shape else f"{len(data):,} bytes"
        raise PolyfedError(f"{path}: an IDX file that is cut short or too long, it has {what}")
    return np.frombuffer(data, dtype, offset=head).reshape(shape)


def unpacked(path: Path) -> bytes:
    """The bytes of a file, unpacked if it is a gzip file."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise PolyfedError(f"{path}: a damaged or incomplete gzip file ({str(error).rstrip('.')})") from None
    except OSError as error:
        raise PolyfedError(f"{path}: cannot be read ({error.strerror})") from None
