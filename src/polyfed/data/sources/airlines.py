"""Late flights out of New York in 2013, by airline: a real table with text, dates and missing values, embedded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from polyfed.data.federation import Federation
from polyfed.data.tables.sums import MIN_COUNT

FILE = Path(__file__).parent / "files" / "airlines.csv.xz"
CLIENT, TARGET = "airline", "late"


def airlines(
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
    columns: Mapping[str, object] | None = None,
    min_count: int = MIN_COUNT,
) -> Federation:
    """13,305 flights of 16 airlines, 29 to 1,000 each; whether one left late (24% did), from 15 columns (CC0)."""
    federation = Federation.from_csv(
        FILE,
        client=CLIENT,
        target=TARGET,
        validation=validation,
        test=test,
        seed=seed,
        columns=columns,
        min_count=min_count,
    )
    known = {key: value for key, value in federation.source.items() if key != "path"}  # which is this machine's
    return replace(federation, source={**known, "name": "airlines"})
