"""What was used last, of what takes long to make: a bounded number of things, by what they depend on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from threading import Lock
from typing import Any


class Recent:
    """Keeps so many things; the one that was not used for longest goes first. Threads may share it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._things: dict[Hashable, Any] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._things)

    def __iter__(self) -> Iterator[Any]:
        """What is kept, the latest used last."""
        return iter(list(self._things.values()))

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What is kept under the key, made first if nothing is."""
        with self._lock:
            if key in self._things:
                thing = self._things[key] = self._things.pop(key)  # the latest used stands last
                return thing
        thing = make()
        with self._lock:
            self._things[key] = thing
            while len(self._things) > self.most:
                del self._things[next(iter(self._things))]
        return thing

    def clear(self) -> None:
        with self._lock:
            self._things.clear()
