"""A site's state of a run, on the site's own disk. It is written in one piece: a crash leaves the old or the new."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from polyfed.algorithms.contract import State
from polyfed.core.errors import PolyfedError
from polyfed.deploy.protocol.names import checked_name
from polyfed.engine.checkpoint.tensors import load_tree, named, save_tree

NEVER = -1
"""Stands for no round."""
KEPT_ROUNDS = 5
"""How many checkpoints a server keeps, and as many states a site: so far back can a run go."""
DIGEST = 32
"""The bytes of a state's digest."""


@dataclass(frozen=True)
class SavedState:
    """The state after the last round that the server counted, and after a later one that it may yet count."""

    state: State
    counted: int = NEVER
    """the last round (the first is 0) whose upload is known to be in the server's sum"""
    pending: State = None
    sent: int = NEVER
    """the round whose upload was sent and is not known to be counted"""

    def sending(self, round: int, state: State) -> SavedState:
        return replace(self, pending=state, sent=round)

    def settled(self, state: State) -> SavedState:
        """The server counted the round that was sent: its state, after `absorb`, is now the state."""
        return SavedState(state, self.sent)

    def dropped(self) -> SavedState:
        """The server did not count the round that was sent: it is forgotten."""
        return SavedState(self.state, self.counted)


class StateFile:
    """`folder/RUN/state.safetensors`, and `before-N.safetensors`, as it was after earlier rounds that counted."""

    def __init__(self, folder: Path, run: str, like: State, pending: State = None) -> None:
        """`like`, `pending`: states of the shapes of those between rounds, and of those after local work."""
        self.path = folder / checked_name(run, "the run") / "state.safetensors"
        self._like, self._pending = like, pending

    def read(self, counted: int) -> SavedState | None:
        """The saved state, or where it is newer or damaged that after round `counted`, if it is kept.

        None at the start of a run.
        """
        try:
            saved = self._read(self.path)
        except PolyfedError:
            saved = self._went_back(counted)
            if saved is None:
                raise
        if saved is not None and counted < saved.counted:
            saved = self._went_back(counted) or saved
        return saved

    def _went_back(self, counted: int) -> SavedState | None:
        """The state after an earlier round, for a server that goes on from there; None if it is not kept."""
        saved = self._read(self._before(counted))
        if saved is None:
            return None
        for path in self.path.parent.glob("before-*.safetensors"):  # of rounds that are undone
            if _round_in(path) > counted + 1:
                path.unlink()
        return saved.dropped()

    def keep_before(self, counted: int) -> None:
        """Keep the state that the next write replaces, which is that after round `counted`; the oldest one goes."""
        kept = self._before(counted)
        part = kept.with_name(f".{kept.name}.part")
        part.unlink(missing_ok=True)
        os.link(self.path, part)
        os.replace(part, kept)
        before = sorted(self.path.parent.glob("before-*.safetensors"), key=_round_in)
        for old in before[: -KEPT_ROUNDS + 1]:
            old.unlink()

    def _before(self, counted: int) -> Path:
        return self.path.with_name(f"before-{counted + 1}.safetensors")

    def _read(self, path: Path) -> SavedState | None:
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="np") as file:
                sent = int(file.get_tensor("sent"))
            like = self._tree(SavedState(self._like, NEVER, self._pending, sent))
            saved = load_tree(path, {**like, "digest": np.zeros(DIGEST, np.uint8)})
        except (OSError, SafetensorError) as error:
            raise PolyfedError(f"{path}: cannot be read: {error}{self._way_out()}") from None
        except PolyfedError as error:
            raise PolyfedError(f"{error}{self._way_out()}") from None
        if not np.array_equal(saved.pop("digest"), _digest(saved)):
            raise PolyfedError(f"{path}: this state is not as it was written{self._way_out()}")
        return SavedState(saved["state"], int(saved["counted"]), saved["pending"], sent)

    def _way_out(self) -> str:
        """What an operator can do about a damaged state."""
        kept = max(map(_round_in, self.path.parent.glob("before-*.safetensors")), default=0)
        return (
            f"; `polyfed deploy run --back-to {kept}` at the server goes on from what is kept here" if kept > 0 else ""
        )

    def write(self, saved: SavedState) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_name(f".{self.path.name}.part")
        tree = self._tree(saved)
        save_tree(part, {**tree, "digest": _digest(tree)})
        for file in (part, self.path.parent):
            handle = os.open(file, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            if file is part:
                os.replace(part, self.path)

    def _tree(self, saved: SavedState) -> dict[str, State]:
        return {
            "state": saved.state,
            "pending": saved.pending if saved.sent != NEVER else None,
            "counted": np.int64(saved.counted),
            "sent": np.int64(saved.sent),
        }


def _digest(tree: dict[str, State]) -> np.ndarray:
    """Of all arrays and their names: a bit that flipped on the disk must not go into a sum."""
    digest = hashlib.blake2b(digest_size=DIGEST)
    for name, leaf in sorted(named(tree).items()):
        digest.update(f"{name} {leaf.dtype} {leaf.shape}\n".encode())
        digest.update(np.ascontiguousarray(leaf).data)
    return np.frombuffer(digest.digest(), np.uint8)


def _round_in(path: Path) -> int:
    number = path.stem.removeprefix("before-")
    return int(number) if number.isdecimal() else -1
