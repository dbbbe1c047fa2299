"""Numbers as people read them: percentages, points, bits with a prefix, durations."""

from __future__ import annotations

import math
from collections.abc import Iterable

from polyfed.studies.verdicts.intervals import Interval

MISSING = "–"
NO_INTERVAL = "no interval"


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


def told_apart(first: float, second: float, is_share: bool) -> tuple[str, str]:
    """Two values, with as many digits as it takes to see which is greater."""
    texts = [MISSING, MISSING]
    for more in range(6):
        texts = [percent(v, 1 + more) if is_share else significant(v, 4 + more) for v in (first, second)]
        if texts[0] != texts[1]:
            break
    return texts[0], texts[1]


def two_digits(value: float) -> int:
    """How many decimals show two significant digits of a value."""
    return min(max(1 - math.floor(math.log10(abs(value))), 0), 12) if value else 0


def decimals_of(interval: Interval, scale: float = 1.0) -> int:
    """How many decimals the ends deserve: as the reach, with two digits up to 3.5 and with one beyond.

    Where the reach is not known, three digits of the estimate itself.
    """
    reach = scale * (interval.high - interval.low) / 2
    known = math.isfinite(reach) and reach > 0
    size = reach if known else abs(scale * interval.estimate)
    if not size:
        return 0
    power = math.floor(math.log10(size))
    digits = (2 if size / 10**power < 3.55 else 1) if known else 3
    return min(max(digits - 1 - power, 0), 12)


def between(interval: Interval, is_share: bool) -> str:
    """The ends of an interval: 0.012 to 0.050, or in percentage points; of a share's difference where it is one."""
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return NO_INTERVAL
    scale, decimals = _scale(interval, is_share)
    return " to ".join(_unsigned(f"{scale * end:.{decimals}f}") for end in (interval.low, interval.high))


def gained(interval: Interval, is_share: bool) -> str:
    """A gain with its sign and at least two significant digits, in percentage points where it is one of shares."""
    scale, decimals = _scale(interval, is_share)
    decimals = max(decimals, two_digits(scale * interval.estimate))
    return _unsigned(f"{scale * interval.estimate:+.{decimals}f}")


def _scale(interval: Interval, is_share: bool) -> tuple[float, int]:
    """What to multiply by, and how many decimals to write then. Points have one or, where they reach less, more."""
    if not is_share:
        return 1.0, decimals_of(interval)
    return 100.0, max(1, decimals_of(interval, 100.0)) if interval.known and interval.high > interval.low else 1


def _unsigned(text: str) -> str:
    """The text with a true minus sign, and none at all before a zero."""
    return minus(text if float(text) else text.lstrip("+-"))


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
