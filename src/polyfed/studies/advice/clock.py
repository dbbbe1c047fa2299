"""How long `advise` may still work."""

from __future__ import annotations

import time


class OutOfTime(Exception):
    """The time is over in the middle of a part."""


class Clock:
    """Work asks it between its steps. It is over so much before the end as the longest step has taken.

    Nothing ends a step, such as compiling a program, and on a busy machine one may take a minute.
    """

    def __init__(self, seconds: float, kept: float, begun: float | None = None) -> None:
        """`kept`: the share of the time that is not for trying. `begun`: by default now."""
        self.begun = time.monotonic() if begun is None else begun
        self._end, self._kept = self.begun + seconds, kept * seconds
        self._looked, self._longest = time.monotonic(), 0.0

    def afterwards(self) -> None:
        """What follows may take the time that was kept for it."""
        self._kept = 0.0

    def look(self, ends: bool = True) -> None:
        """Between two steps: end the work if it is time and it may be ended."""
        now = time.monotonic()
        self._longest = max(self._longest, now - self._looked)
        self._looked = now
        if ends and not self.allows(0.0):
            raise OutOfTime

    def allows(self, seconds: float) -> bool:
        """Whether work of so many seconds would be done in time."""
        return time.monotonic() + seconds <= self._end - max(self._kept, self._longest)

    @property
    def spent(self) -> float:
        return time.monotonic() - self.begun
