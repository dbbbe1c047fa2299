"""The checkpoint before the newest: a run whose last round turns out to be bad can go back to it, once."""

from __future__ import annotations

import shutil
from pathlib import Path

from polyfed.core.errors import PolyfedError
from polyfed.engine.checkpoint import checkpoint as checkpoints


def go_back(folder: Path) -> None:
    """Remove the newest checkpoint of a run, so that it goes on from the one before."""
    place = folder / "checkpoint"
    kept = checkpoints.names(place)
    if len(kept) < 2:
        raise PolyfedError(f"{folder}: there is no checkpoint before the newest to go back to")
    shutil.rmtree(place / kept[0])
    for name in ("finished.json", "stopped.txt"):
        (folder / name).unlink(missing_ok=True)
