"""An npz file with an array that says which client owns each row."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

import numpy as np

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.data.arrays import from_owned_rows
from polyfed.data.option_checks import PathLike, existing_path, text
from polyfed.data.split import ReadOptions

if TYPE_CHECKING:
    from polyfed.data.federation import Federation


def from_npz(
    cls: type[Federation], path: PathLike, *, client: str, target: str, features: str, **options: Unpack[ReadOptions]
) -> Federation:
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
    source: dict[str, object] = {"name": "npz", "path": str(path), **keys, **options}
    try:
        return from_owned_rows(cls, owner, x, y, source=source, **options)
    except PolyfedError as error:
        raise PolyfedError(f"{file}: {error}") from None
