"""Checks of a parameter's value; an error names the parameter, what was found and what was expected."""

from __future__ import annotations

from polyfed.core.errors import PolyfedError

INFINITE = float("inf")


def whole(name: str, value: object, low: int = 1) -> int:
    """A whole number, at least `low`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise PolyfedError(f"{name} must be a whole number, at least {low}, found {value!r}")
    return value


def rows(name: str, value: object) -> None:
    """The rows of a step: a whole number, or "full"."""
    if value != "full" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise PolyfedError(f"{name} must be a whole number, at least 1, or 'full', found {value!r}")


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise PolyfedError(f"{name} must be true or false, found {value!r}")
    return value


def bounds(low: float, high: float, above: bool) -> str:
    """The interval [low, high], or (low, high] if `above`, in words."""
    lower = f"above {low:g}" if above else f"at least {low:g}"
    return lower if high == INFINITE else f"{lower} and at most {high:g}"
