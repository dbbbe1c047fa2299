"""What ends a command early; mostly mistakes, each told in one sentence that says what was found and expected."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

USER_ERROR, LOST, INTERRUPTED = 2, 3, 130
"""A command's exit codes: a user's mistake, a process of the run that was lost, Ctrl-C."""


class PolyfedError(ValueError):
    """A mistake in the input. Its message is one sentence; the command line prints it and exits with code 2."""


class Interrupted(Exception):
    """Ctrl-C ended a run; its checkpoint is written."""

    def __init__(self, folder: Path, round: int) -> None:
        super().__init__(f"stopped after round {round}; --resume goes on from there")
        self.folder, self.round = folder, round


class LostProcess(Exception):
    """One of the processes of a run is gone, so the run has stopped."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """A hint to append to an error about the unknown name `word`: the closest known name, or else all of them."""
    known = sorted(known)
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(known)}"
