"""Where published datasets lie: the data folder, and what to say when a file is not there."""

from __future__ import annotations

import os
from pathlib import Path

from polyfed.core.errors import PolyfedError
from polyfed.core.startup import cache_folder
from polyfed.data.sources.catalogue import dataset_of


def data_folder() -> Path:
    """The folder of published datasets: POLYFED_DATA, or `data` in the user's cache folder."""
    given = os.environ.get("POLYFED_DATA")
    return Path(given).expanduser() if given else cache_folder() / "data"


def published_file(*parts: str) -> Path:
    """A file of the data folder, such as ("libsvm", "mushrooms"); if it is not there, the error says how to get it."""
    path = data_folder().joinpath(*parts)
    if not path.is_file():
        known = dataset_of("/".join(parts))
        get = f"`polyfed data fetch {known.name}` gets it" if known else f"put the published '{parts[-1]}' there"
        raise PolyfedError(
            f"{path}: no such file; {get}, or set POLYFED_DATA to the folder that holds {'/'.join(parts)}"
        )
    return path
