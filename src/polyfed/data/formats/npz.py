"""One npz file with an array that says whose row each is."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.data.arrays import from_arrays
from polyfed.data.federation import Federation, PathLike
from polyfed.data.options import existing_path, text
from polyfed.data.partitions import by_column


def from_npz(path: PathLike, *, client: str, target: str, features: str, **options: Any) -> Federation:
    """See `Federation.from_npz`."""
    file = existing_path("path", path)
    keys = {"client": text("client", client), "target": text("target", target), "features": text("features", features)}
    try:
        with file.open("rb") as handle:
            content = np.load(handle, allow_pickle=False)
            if not isinstance(content, Mapping):
                raise PolyfedError(f"{file}: a single array, expected an npz file with several")
            for role, key in keys.items():
                if key not in content:
                    raise PolyfedError(f"{file}: there is no {role} array {key!r}{suggestion(key, map(str, content))}")
            owner, y, x = (content[key] for key in keys.values())
    except PolyfedError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise PolyfedError(f"{file}: cannot be read as an npz file of plain arrays ({reason})") from None
    source = {"name": "npz", "path": str(path), **keys, **options}
    try:
        return by_client(owner, x, y, source=source, **options)
    except PolyfedError as error:
        raise PolyfedError(f"{file}: {error}") from None


def by_client(owner: np.ndarray, x: np.ndarray, y: np.ndarray, **options: Any) -> Federation:
    """A federation of rows that lie together, by the client that each belongs to."""
    for name, array in (("client", owner), ("target", y), ("features", x)):
        if array.ndim < 1 or len(array) != len(owner):
            found = f"{len(array)} entries" if array.ndim else "a single value"
            raise PolyfedError(f"the {name} array has {found}, expected one for each of {owner.size} rows")
    if owner.ndim != 1 or owner.dtype.kind not in "iuUSb":
        raise PolyfedError(
            f"the client array has shape {owner.shape} and type {owner.dtype}, expected a name or a number per row"
        )
    if not len(owner):
        raise PolyfedError("there are no rows")
    groups = by_column(np.char.decode(owner) if owner.dtype.kind == "S" else owner)
    flat = x.reshape(len(x), 1) if x.ndim == 1 else x
    return from_arrays({name: (flat[rows], y[rows]) for name, rows in groups.items()}, **options)
