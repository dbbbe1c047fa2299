"""Cells side by side: one process each, kept on one core."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Queue

from polyfed.studies.leaderboard.board import Board
from polyfed.studies.leaderboard.cell import Cell

Place = tuple[str, str]
"""A federation's name and a method's label."""


def side_by_side(places: Sequence[Place], jobs: int, more: Sequence[str] = ()) -> Iterator[tuple[Place, list[Cell]]]:
    """The cells of these places, as they end, with at most so many at work; none of one that could not be run.

    A process has one core, so that as many as there are cores do not wait for each other. `more`: further options of
    `polyfed leaderboard run`. What the processes say goes to this one's stderr.
    """
    cores: Queue[int] = Queue()
    mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    for job in range(jobs):
        cores.put(mine[job % len(mine)] if mine else job)
    with tempfile.TemporaryDirectory(prefix="polyfed-leaderboard-") as folder, ThreadPoolExecutor(jobs) as pool:

        def work(number: int, place: Place) -> list[Cell]:
            part = Path(folder) / f"{number}.csv"
            core = cores.get()
            if mine:
                os.sched_setaffinity(0, {core})  # of this thread, and so of the process that it starts
            name, label = place
            command = [sys.executable, "-m", "polyfed", "leaderboard", "run", name, "--method", label]
            subprocess.run([*command, "--table", str(part), *more], stdout=subprocess.DEVNULL, check=False)
            cores.put(core)
            return Board.read(part).cells

        futures = {pool.submit(work, number, place): place for number, place in enumerate(places)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
