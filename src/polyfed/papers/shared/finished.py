"""Runs that ended: in memory for the figures that share them, and on disk until their reproduction is finished.

A reproduction that was stopped goes on from there, with the same numbers.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

import polyfed
from polyfed.core.errors import Interrupted, PolyfedError
from polyfed.papers.shared.folder import hardware
from polyfed.studies.finished_runs import FinishedRuns

T = TypeVar("T")
R = TypeVar("R", bound=Hashable)
JOURNAL = "runs.jsonl"
_open: FinishedRuns | None = None


class Stopped(Interrupted):
    """Ctrl-C ended a reproduction; the runs that ended before are kept."""

    def __init__(self, folder: Path) -> None:
        Exception.__init__(self, "stopped; runs that ended are kept, and --resume goes on from there")
        self.folder = folder


class Kept(Generic[T]):
    """What became of runs, by all that decides their numbers."""

    def __init__(self, plain: Callable[[T], Any], made: Callable[[Any], T]) -> None:
        """`plain`: as JSON has it, but for arrays; `made`: the way back."""
        self._plain, self._made = plain, made
        self._memory: dict[Hashable, T] = {}

    def get(self, run: Hashable) -> T | None:
        if run not in self._memory and _open is not None and (key := _key(run)) in _open.done:
            self._memory[run] = self._made(_decoded(_open.done[key]))
        found = self._memory.get(run)
        if found is not None:
            self._write(run, found)
        return found

    def __getitem__(self, run: Hashable) -> T:
        return self._memory[run]

    def put(self, run: Hashable, found: T) -> None:
        self._memory[run] = found
        self._write(run, found)

    def of(self, run: R, compute: Callable[[R], T]) -> T:
        """What became of a run, which is computed unless it is known."""
        if self.get(run) is None:
            self.put(run, compute(run))
        return self[run]

    def clear(self) -> None:
        """Forget what is in memory."""
        self._memory.clear()

    def _write(self, run: Hashable, found: T) -> None:
        if _open is not None and (key := _key(run)) not in _open.done:
            _open.add(key, repr(run), _encoded(self._plain(found)))


@contextmanager
def keeping(place: Path, resume: bool = False, overwrite: bool = False) -> Iterator[None]:
    """Within it runs that end are kept in the folder `place`, which is removed when all are done."""
    global _open
    if place.exists() and not (resume or overwrite):
        raise PolyfedError(f"{place}: a reproduction was stopped here; use --resume, --overwrite or another --out")
    if not resume:
        shutil.rmtree(place, ignore_errors=True)
    _open = FinishedRuns(place / JOURNAL, resume)
    try:
        yield
    except (KeyboardInterrupt, Interrupted):
        raise Stopped(place.parent) from None
    finally:
        _open = None
    shutil.rmtree(place, ignore_errors=True)


def folder_of(work: Hashable) -> Path | None:
    """Where work that keeps its own parts may do so while a reproduction is under way."""
    return None if _open is None or _open.path is None else _open.path.parent / _key(work)


def _key(run: Hashable) -> str:
    return hashlib.blake2b(
        f"{_code()} {hardware()} {type(run).__module__} {run!r}".encode(), digest_size=16
    ).hexdigest()


@cache
def _code() -> str:
    """A digest of all code: what other code computed may be other numbers."""
    root = Path(polyfed.__file__).parent
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def _encoded(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "numbers": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {name: _encoded(inner) for name, inner in value.items()}
    return [_encoded(inner) for inner in value] if isinstance(value, list | tuple) else value


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"dtype", "numbers"}:
            return np.array(value["numbers"], value["dtype"])
        return {name: _decoded(inner) for name, inner in value.items()}
    return [_decoded(inner) for inner in value] if isinstance(value, list) else value
