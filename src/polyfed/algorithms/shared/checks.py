"""Checks of hyper-parameters: an error names the algorithm, the parameter, what was found and what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyfed.core import checks
from polyfed.core.errors import PolyfedError
from polyfed.core.schedules import Decay, Inverse, InverseStep


def stepsize(owner: Any, name: str, *, per_step: bool = False) -> None:
    """The field `name` must be a number above 0, or a schedule with such parts; of steps only if they are counted."""
    value = getattr(owner, name)
    if isinstance(value, InverseStep):
        if not per_step:
            raise PolyfedError(f"{owner.name}: {name} must be a number or a schedule of rounds, found one of steps")
        if owner.local_epochs is not None:
            raise PolyfedError(f"{owner.name}: {name} is a schedule of steps, give local_steps and not local_epochs")
    parts = vars(value) if isinstance(value, Decay | Inverse | InverseStep) else None
    for part, inner in (parts or {"": value}).items():
        _number(owner, f"{name}.{part}" if part else name, inner, 0.0, float("inf"), above=True)


def number(owner: Any, name: str, low: float = 0.0, high: float = float("inf"), *, above: bool = False) -> None:
    """The field `name` must be a number in [low, high], or in (low, high] if `above`."""
    _number(owner, name, getattr(owner, name), low, high, above=above)


def _number(owner: Any, name: str, value: Any, low: float, high: float, *, above: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise PolyfedError(f"{owner.name}: {name} must be a number, found {value!r}")
    if not (np.isfinite(value) and (value > low if above else value >= low) and value <= high):
        raise PolyfedError(f"{owner.name}: {name} must be {checks.bounds(low, high, above)}, found {value}")


def whole(owner: Any, name: str, low: int = 1) -> None:
    """The field `name` must be a whole number, at least `low`."""
    checks.whole(f"{owner.name}: {name}", getattr(owner, name), low)


def choice(owner: Any, name: str, *options: str) -> None:
    """The field `name` must be one of the words."""
    value = getattr(owner, name)
    if value not in options:
        raise PolyfedError(f"{owner.name}: {name} must be one of {', '.join(options)}; found {value!r}")


def flag(owner: Any, name: str) -> None:
    """The field `name` must be true or false."""
    checks.flag(f"{owner.name}: {name}", getattr(owner, name))


def local_work(owner: Any, *, per_step: bool = False) -> None:
    """The fields that say what a client does in a round: lr, local_steps or local_epochs, batch, replace."""
    stepsize(owner, "lr", per_step=per_step)
    whole(owner, "local_steps")
    if owner.local_epochs is not None:
        whole(owner, "local_epochs")
    batches(owner)


def batches(owner: Any) -> None:
    """The fields that say what a batch is: batch, replace."""
    if owner.batch != "full":
        value = owner.batch
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise PolyfedError(f"{owner.name}: batch must be a whole number, at least 1, or 'full', found {value!r}")
    flag(owner, "replace")
