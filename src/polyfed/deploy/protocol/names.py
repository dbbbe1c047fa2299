"""Names of sites and runs: they become files and folders, so they are checked wherever they arrive."""

from __future__ import annotations

import re

from polyfed.core.errors import PolyfedError

NAME = re.compile(r"\w(?:[\w .-]{0,62}[\w-])?")


def is_name(value: object) -> bool:
    """Letters, digits, spaces, points, '-' and '_', at most 64, beginning with a letter, a digit or '_'."""
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def checked_name(value: object, what: str) -> str:
    """The name, or an error that says what it was to be the name of."""
    if isinstance(value, str) and is_name(value):
        return value
    raise PolyfedError(
        f"{what} must be a name of at most 64 letters, digits, spaces, points, '-' and '_', beginning with a letter "
        f"or a digit, found {value!r:.80}"
    )
