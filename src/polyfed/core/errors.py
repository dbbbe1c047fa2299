"""Errors that a user can act on: one sentence that names what was found and what was expected."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class PolyfedError(ValueError):
    """A mistake in the input. Its message is one sentence; the command line prints it and exits with code 2."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """A hint to append to an error about the unknown name `word`: the close match, or all the names there are."""
    known = sorted(known)
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(known)}"
