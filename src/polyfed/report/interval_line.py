"""A gain's interval as a line around zero, and its figures, for pages without scripts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

WIDE = 4.0
"""How many times the usual reach a line shows: one interval far wider than the others does not set the scale."""
HALF = 90


def reach_of(ends: Iterable[float | None]) -> float:
    """The largest value that lines show, from the ends of all intervals."""
    sizes = [abs(end) for end in ends if end is not None and math.isfinite(end)]
    return min(max(sizes), WIDE * median(sizes)) or 1.0 if sizes else 1.0


def interval_line(gain: float, low: float, high: float, verdict: str | None, reach: float) -> str:
    """What lies beyond the reach ends at the edge."""
    ends = (min(max(value / reach, -1.05), 1.05) * HALF + HALF + 5 for value in (low, gain, high))
    left, middle, right = ends
    colour = {"gains": "var(--good)", "loses": "var(--bad)"}.get(verdict or "", "var(--alone)")
    return (
        "<svg class='span' viewBox='0 0 190 14' role='img' aria-label='interval'>"
        "<line x1='95' x2='95' y1='0' y2='14' stroke='var(--alone)'/>"
        f"<line x1='{left:.1f}' x2='{right:.1f}' y1='7' y2='7' stroke='{colour}' stroke-width='3'/>"
        f"<circle cx='{middle:.1f}' cy='7' r='4' fill='{colour}'/></svg>"
    )


def shown(value: float | None) -> str:
    """Four digits; a dash for what is not known."""
    return "–" if value is None or math.isnan(value) else f"{value:.4f}"


def signed(value: float | None) -> str:
    """The same with its sign."""
    return "–" if value is None or math.isnan(value) else f"{value:+.4f}".replace("-", "−")
