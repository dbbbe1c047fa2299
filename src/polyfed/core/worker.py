"""Which process this is, where several run one simulation together. Asking loads no JAX.

On each host a guard (`engine/hosts/guard.py`) starts a worker, and tells it in an environment variable who it is.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

VARIABLE = "POLYFED_PROCESS"


@dataclass(frozen=True)
class Worker:
    """Process `index` of `count`, as its guard describes it."""

    coordinator: str
    """HOST:PORT of JAX's service in process 0"""
    count: int
    index: int
    log: int
    """the file descriptor that takes what C++ libraries write"""
    lifeline: int
    """the file descriptor that closes when the guard ends"""

    def environment(self) -> dict[str, str]:
        """What to add to a process's environment to make it this worker."""
        return {VARIABLE: json.dumps(asdict(self))}


def this_worker() -> Worker | None:
    """The worker that this process is; None where no guard has started it."""
    return Worker(**json.loads(os.environ[VARIABLE])) if VARIABLE in os.environ else None


def is_first() -> bool:
    """Whether this process speaks to the user: it is the only one, or worker 0."""
    worker = this_worker()
    return worker is None or worker.index == 0
