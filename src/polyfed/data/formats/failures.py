"""Why a file could not be read."""

from __future__ import annotations


def reason(error: Exception) -> str:
    """The first line of what an error says, or its type if it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
