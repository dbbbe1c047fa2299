"""The memory of this machine and of this process."""

from __future__ import annotations

import os
import sys

try:
    import resource
except ImportError:  # not on Windows
    resource = None

USUAL_MEMORY = 16 << 30


def memory_bytes() -> int:
    """The machine's memory, or what machines usually have where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return USUAL_MEMORY


def peak_memory_bytes() -> int | None:
    """The most memory that this process has held so far; None where the system does not say."""
    if resource is None:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
