"""Runs that one report may put together: each given once, and all on the same data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from polyfed.core.errors import PolyfedError
from polyfed.studies.run_directory import RunRecord

DRAWN = {"seed", "seeds", "split", "splits"}
"""Keys by which runs of one comparison may differ."""


def check_same_data(runs: Sequence[RunRecord]) -> None:
    """Refuse a run that is given twice, and runs that cannot be compared.

    All need the same [data], but for its seed; those of one label, whose figures are averaged, also the same [problem]
    and the same [algorithm].
    """
    folders: dict[Path, RunRecord] = {}
    draws: dict[tuple[str, int, object], RunRecord] = {}
    labelled: dict[str, RunRecord] = {}
    for run in runs:
        if folders.setdefault(run.path.resolve(), run) is not run:
            raise PolyfedError(f"{run.path}: given twice; name each run once")
        same = labelled.setdefault(run.label, run)
        difference = _difference(runs[0], run, "data") or _rows(runs[0], run)
        if difference:
            raise PolyfedError(f"{difference}; runs in one report need the same data")
        difference = _difference(same, run, "problem") or _difference(same, run, "algorithm")
        if difference:
            raise PolyfedError(f"{difference}; runs that differ in it need labels of their own (algorithm.label)")
        twin = draws.setdefault((run.label, run.seed, run.summary.get("split")), run)
        if twin is not run and twin.clients == run.clients:
            raise PolyfedError(f"{twin.path} and {run.path} hold the same run; name it once")


def _difference(first: RunRecord, other: RunRecord, section: str) -> str:
    """The first key of a section in which two runs differ, in words; empty where there is none."""
    ours, theirs = (_settings(run, section) for run in (first, other))
    for key in dict.fromkeys([*ours, *theirs]):
        if ours.get(key) != theirs.get(key):
            values = [repr(values[key]) if key in values else "not set" for values in (ours, theirs)]
            return f"{section}.{key} is {values[0]} in {first.path} and {values[1]} in {other.path}"
    return ""


def _settings(run: RunRecord, section: str) -> Mapping[str, object]:
    return {key: value for key, value in (run.config.get(section) or {}).items() if key not in DRAWN}


def _rows(first: RunRecord, other: RunRecord) -> str:
    """A client with other rows although all settings are the same: the file has changed in between."""
    if (first.config.get("data") or {}).get("seed") != (other.config.get("data") or {}).get("seed"):
        return ""
    known = {row.get("client"): row.get("rows") for row in first.clients}
    for row in other.clients:
        ours, theirs = known.get(row.get("client")), row.get("rows")
        if isinstance(ours, float) and isinstance(theirs, float) and ours != theirs:
            return f"client '{row['client']}' has {ours:g} rows in {first.path} and {theirs:g} in {other.path}"
    return ""
