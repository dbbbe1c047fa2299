"""How often XLA compiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jax import monitoring

EVENT = "/jax/core/compile/backend_compile_duration"


@contextmanager
def compilations() -> Iterator[list[float]]:
    """The seconds of each compilation while it is entered, of whole programs and of single operations alike."""
    seconds: list[float] = []

    def hear(event: str, duration_secs: float, **_: str | int) -> None:
        if event == EVENT:
            seconds.append(duration_secs)

    monitoring.register_event_duration_secs_listener(hear)
    try:
        yield seconds
    finally:
        monitoring.unregister_event_duration_listener(hear)
