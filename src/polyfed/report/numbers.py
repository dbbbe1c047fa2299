"""Numbers as people read them: percentages, points, bits with a prefix, durations."""

from __future__ import annotations

import math
from collections.abc import Iterable

MISSING = "–"


def finite(value: object) -> float | None:
    """The value as a float, or None where it is missing, not a number, or not finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def average(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are not None; None where there is none."""
    there = [value for value in values if value is not None]
    return math.fsum(there) / len(there) if there else None


def strict_average(values: Iterable[float | None]) -> float | None:
    """The mean of the values; None as soon as one is missing, so that a failed seed is never averaged away."""
    there = list(values)
    return None if None in there else average(there)


def significant(value: float | None, digits: int = 4) -> str:
    """`value` with this many significant digits, and with an exponent only where a person would write one."""
    return MISSING if value is None else like(value, value, digits)


def like(value: float, model: float, digits: int = 4) -> str:
    """`value` to the last decimal that `model` has when it is written with this many significant digits."""
    magnitude = math.floor(math.log10(abs(float(f"{model:.{digits - 1}e}")))) if model else 0
    if value == 0:
        return "0"
    if -4 <= magnitude < 9:
        return minus(f"{value:.{max(digits - 1 - magnitude, 0)}f}")
    return minus(f"{value:.{digits - 1}e}")


def percent(share: float | None, decimals: int = 1) -> str:
    return MISSING if share is None else minus(f"{100 * share:.{decimals}f}") + "%"


def points(difference: float, decimals: int = 1) -> str:
    """A difference of two shares in percentage points, with its sign."""
    text = f"{100 * difference:+.{decimals}f}"
    return minus("0.0" if float(text) == 0 else text)


def bits(amount: float | None) -> str:
    """An amount of bits with the decimal prefix that keeps it short, e.g. 12.4 Mbit."""
    if amount is None:
        return MISSING
    for size, unit in ((1e12, "Tbit"), (1e9, "Gbit"), (1e6, "Mbit"), (1e3, "kbit")):
        if abs(amount) >= 0.9995 * size:
            return f"{significant(amount / size, 3)}\u202f{unit}"
    return f"{amount:.0f}\u202fbit"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return MISSING
    if seconds < 99.95:
        return f"{significant(seconds, 3) if seconds >= 0.001 else '0.00'}\u202fs"
    if seconds < 5970:
        return f"{seconds / 60:.1f}\u202fmin"
    return f"{seconds / 3600:.1f}\u202fh"


def minus(text: str) -> str:
    """The text with a true minus sign."""
    return text.replace("-", "−")
