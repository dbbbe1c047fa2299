"""The checkpoint before the newest: a run whose last round turns out to be bad can go back to it, once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from polyfed.core.errors import PolyfedError
from polyfed.engine.checkpoint import checkpoint as checkpoints

CHECKPOINT, BEFORE = "checkpoint", "before"


def keep_before(folder: Path) -> None:
    """Keep the newest checkpoint of a run apart: the next one takes its place."""
    newest, kept = checkpoints.latest(folder / CHECKPOINT), folder / BEFORE
    if newest is None or (kept / newest.name).exists():
        return
    part = kept.with_name(f".{BEFORE}.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(newest, part / newest.name, copy_function=os.link)
    shutil.rmtree(kept, ignore_errors=True)
    part.rename(kept)


def go_back(folder: Path) -> None:
    """Put the checkpoint before in the place of the newest."""
    newest, before = checkpoints.latest(folder / CHECKPOINT), checkpoints.latest(folder / BEFORE)
    if before is None or (newest is not None and before.name >= newest.name):
        raise PolyfedError(f"{folder}: there is no checkpoint before the newest to go back to")
    before.rename(folder / CHECKPOINT / before.name)
    if newest is not None:
        shutil.rmtree(newest)
    for name in ("finished.json", "stopped.txt"):
        (folder / name).unlink(missing_ok=True)
