"""An npz file with an array that says which client owns each row."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.data.arrays import from_owned_rows
from polyfed.data.formats.failures import reason
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
    owner, y, x = read_arrays(file, [(f"{role} array", key) for role, key in keys.items()])
    source: dict[str, object] = {"name": "npz", "path": str(path), **keys, **options}
    try:
        return from_owned_rows(cls, owner, x, y, source=source, **options)
    except PolyfedError as error:
        raise PolyfedError(f"{file}: {error}") from None


def read_arrays(file: Path, wanted: Sequence[tuple[str, str]]) -> list[np.ndarray]:
    """Arrays of an npz file, wanted as (what to call it in an error, its name in the file)."""
    try:
        with file.open("rb") as handle:
            content = np.load(handle, allow_pickle=False)
            if not isinstance(content, Mapping):
                raise PolyfedError(f"{file}: a single array, expected an npz file with several")
            for what, name in wanted:
                if name not in content:
                    raise PolyfedError(f"{file}: there is no {what} {name!r}{suggestion(name, map(str, content))}")
            return [content[name] for _, name in wanted]
    except PolyfedError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise PolyfedError(f"{file}: cannot be read as an npz file of plain arrays ({reason(error)})") from None
