"""Going back: a run some of whose last rounds turn out to be bad goes on from a checkpoint before them."""

from __future__ import annotations

from pathlib import Path

from polyfed.core.errors import PolyfedError
from polyfed.deploy.server.handover import FINISHED
from polyfed.engine.checkpoint import checkpoint as checkpoints


def kept_rounds(folder: Path) -> list[int]:
    """The rounds after which a run can go on, the newest first."""
    return [checkpoints.round_of(name) for name in checkpoints.names(folder / "checkpoint")]


def round_before(folder: Path) -> int:
    """The round of the checkpoint before the newest."""
    kept = kept_rounds(folder)
    if len(kept) < 2:
        raise PolyfedError(f"{folder}: there is no checkpoint before the newest to go back to")
    return kept[1]


def go_back(folder: Path, round: int) -> None:
    """Remove the checkpoints of later rounds. Done twice, it is as if done once."""
    kept = kept_rounds(folder)
    if round not in kept:
        there = ", ".join(map(str, sorted(kept))) or "none"
        raise PolyfedError(f"{folder}: there is no checkpoint of round {round} to go back to (kept: {there})")
    checkpoints.clear(folder / "checkpoint", checkpoints.name_of(round))
    for name in (FINISHED, "stopped.txt"):
        (folder / name).unlink(missing_ok=True)
