"""Finished runs: in memory for the figures that share them, and on disk until their reproduction ends.

A reproduction that was stopped goes on from there, to the same numbers.
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
    """Ctrl-C ended a reproduction; its finished runs are kept."""

    def __init__(self, folder: Path) -> None:
        Exception.__init__(self, "stopped; runs that ended are kept, and --resume goes on from there")
        self.folder = folder


class RunCache(Generic[T]):
    """The outcomes of runs, by everything that decides their numbers."""

    def __init__(self, to_plain: Callable[[T], object], from_plain: Callable[[Any], T]) -> None:
        """Plain is what JSON can hold, and arrays."""
        self._to_plain, self._from_plain = to_plain, from_plain
        self._memory: dict[Hashable, T] = {}

    def get(self, run: Hashable) -> T | None:
        if run not in self._memory and _open is not None and (key := _key(run)) in _open.done:
            self._memory[run] = self._from_plain(_decoded(_open.done[key]))
        outcome = self._memory.get(run)
        if outcome is not None:
            self._write(run, outcome)
        return outcome

    def __getitem__(self, run: Hashable) -> T:
        return self._memory[run]

    def put(self, run: Hashable, outcome: T) -> None:
        self._memory[run] = outcome
        self._write(run, outcome)

    def of(self, run: R, compute: Callable[[R], T]) -> T:
        """The outcome of a run, which is computed unless it is known."""
        if self.get(run) is None:
            self.put(run, compute(run))
        return self[run]

    def clear(self) -> None:
        """Forget what is in memory."""
        self._memory.clear()

    def _write(self, run: Hashable, outcome: T) -> None:
        if _open is not None and (key := _key(run)) not in _open.done:
            _open.add(key, repr(run), _encoded(self._to_plain(outcome)))


@contextmanager
def resumable(folder: Path, resume: bool = False, overwrite: bool = False) -> Iterator[None]:
    """Store the runs that finish within it in `folder`, which is removed when all are done."""
    global _open
    if folder.exists() and not (resume or overwrite):
        raise PolyfedError(f"{folder}: a reproduction was stopped here; use --resume, --overwrite or another --out")
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    _open = FinishedRuns(folder / JOURNAL, resume)
    try:
        yield
    except (KeyboardInterrupt, Interrupted):
        raise Stopped(folder.parent) from None
    finally:
        _open = None
    shutil.rmtree(folder, ignore_errors=True)


def work_folder(work: Hashable) -> Path | None:
    """Where work that stores its own parts may do so; None unless a reproduction is under way."""
    return None if _open is None or _open.path is None else _open.path.parent / _key(work)


def _key(run: Hashable) -> str:
    return hashlib.blake2b(
        f"{_code()} {hardware()} {type(run).__module__} {run!r}".encode(), digest_size=16
    ).hexdigest()


@cache
def _code() -> str:
    """A digest of all code, since other code may give other numbers."""
    root = Path(polyfed.__file__).parent
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def _encoded(value: object) -> object:
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
