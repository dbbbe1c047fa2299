"""A site's state of a run, on the site's own disk: written in one piece, so that a crash leaves the old or the new."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors import SafetensorError

from polyfed.algorithms.contract import State
from polyfed.core.errors import PolyfedError
from polyfed.engine.checkpoint.tensors import load_tree, save_tree

NEVER = -1


@dataclass(frozen=True)
class Kept:
    """The state up to the last round that the server counted, and the one after a round that it may yet count."""

    state: State
    counted: int = NEVER
    """the last round (the first is 0) whose upload is known to be in the server's sum"""
    pending: State = None
    sent: int = NEVER
    """the round whose upload was sent, and that is not known to be counted"""

    def sending(self, round: int, state: State) -> Kept:
        return replace(self, pending=state, sent=round)

    def settled(self, state: State) -> Kept:
        """The round that was sent is counted: its state, with what there was to absorb, is now the state."""
        return Kept(state, self.sent)

    def dropped(self) -> Kept:
        """The round that was sent is not counted: as if it had not been."""
        return Kept(self.state, self.counted)


class StateFile:
    """`folder/RUN/state.safetensors`."""

    def __init__(self, folder: Path, run: str, like: State) -> None:
        self.path, self._like = folder / run / "state.safetensors", like

    def read(self) -> Kept | None:
        """What was kept; None at the start of a run."""
        if not self.path.exists():
            return None
        try:
            found = load_tree(self.path, self._tree(Kept(self._like)))
        except (OSError, SafetensorError) as error:
            raise PolyfedError(f"{self.path}: cannot be read: {error}") from None
        sent = int(found["sent"])
        return Kept(found["state"], int(found["counted"]), None if sent == NEVER else found["pending"], sent)

    def write(self, kept: Kept) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_name(f".{self.path.name}.part")
        save_tree(part, self._tree(kept))
        for file in (part, self.path.parent):
            handle = os.open(file, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            if file is part:
                os.replace(part, self.path)

    def _tree(self, kept: Kept) -> dict[str, State]:
        pending = self._like if kept.sent == NEVER else kept.pending
        return {
            "state": kept.state,
            "pending": pending,
            "counted": np.int64(kept.counted),
            "sent": np.int64(kept.sent),
        }
