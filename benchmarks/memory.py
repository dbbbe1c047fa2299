"""The memory that a process and all its children take."""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path

PROC = Path("/proc")
PAUSE = 0.02


class Watch:
    """Watches a process and its children while it is entered; `peak` is the most that they held together, in MiB.

    A page that several of them share counts once (the proportional set size). None where the system does not say.
    """

    def __init__(self, process: int) -> None:
        self.process, self.peak = process, None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            sizes = [size for size in map(_held, family(self.process)) if size is not None]
            if sizes:
                self.peak = max(self.peak or 0.0, sum(sizes) / 1024)
            if self._done.wait(PAUSE):
                return


def family(process: int) -> list[int]:
    """The process and all that it started, directly or not."""
    children = defaultdict(list)
    for entry in PROC.iterdir() if PROC.exists() else ():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has ended meanwhile
                continue
            children[parent].append(int(entry.name))
    members = [process]
    for member in members:
        members += children[member]
    return members


def _held(process: int) -> int | None:
    """The memory that a process holds, in KiB."""
    try:
        lines = (PROC / str(process) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), None)
