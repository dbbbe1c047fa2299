"""Checks of hyper-parameters: an error names the algorithm, the parameter, what was found and what was expected."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from numbers import Real
from typing import cast

import numpy as np

from polyfed.algorithms.contract import Algorithm
from polyfed.algorithms.shared.local_work import LocalSteps, Steps
from polyfed.core import checks
from polyfed.core.errors import PolyfedError
from polyfed.core.schedules import Decay, Inverse, InverseStep


def stepsize(owner: Algorithm, name: str, *, per_step: bool = False) -> None:
    """The field `name` must be a number above 0, or a schedule with such parts; of steps only if they are counted."""
    value = getattr(owner, name)
    if isinstance(value, InverseStep):
        if not per_step:
            raise PolyfedError(f"{owner.name}: {name} must be a number or a schedule of rounds, found one of steps")
        if isinstance(owner, LocalSteps) and owner.local_epochs is not None:
            raise PolyfedError(f"{owner.name}: {name} is a schedule of steps, give local_steps and not local_epochs")
    parts = vars(value) if isinstance(value, Decay | Inverse | InverseStep) else None
    for part, inner in (parts or {"": value}).items():
        _number(owner, f"{name}.{part}" if part else name, inner, 0.0, float("inf"), above=True)


def number(owner: Algorithm, name: str, low: float = 0.0, high: float = float("inf"), *, above: bool = False) -> None:
    """The field `name` must be a number in [low, high], or in (low, high] if `above`."""
    _number(owner, name, getattr(owner, name), low, high, above=above)


def of_clients(owner: Algorithm, name: str, high: float = float("inf")) -> None:
    """The field `name` must be a number in (0, high], or a list of such numbers, one for each client."""
    value: object = getattr(owner, name)
    value = cast(object, value.tolist()) if isinstance(value, np.ndarray) else value
    for each in cast(Sequence[object], value) if isinstance(value, list | tuple) else (value,):
        _number(owner, name, each, 0.0, high, above=True)


def _number(owner: Algorithm, name: str, value: object, low: float, high: float, *, above: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise PolyfedError(f"{owner.name}: {name} must be a number, found {value!r}")
    if not (isfinite(given := float(value)) and (given > low if above else given >= low) and given <= high):
        raise PolyfedError(f"{owner.name}: {name} must be {checks.bounds(low, high, above)}, found {value}")


def is_word(value: object) -> bool:
    """Whether what a config gave is a word."""
    return isinstance(value, str)


def whole(owner: Algorithm, name: str, low: int = 1) -> None:
    """The field `name` must be a whole number, at least `low`."""
    checks.whole(f"{owner.name}: {name}", getattr(owner, name), low)


def local_work(owner: LocalSteps, *, per_step: bool = False) -> None:
    """The fields that say what a client does in a round: lr, local_steps or local_epochs, batch."""
    stepsize(owner, "lr", per_step=per_step)
    local_steps(owner)
    batches(owner)


def momentum(owner: Algorithm, value: float | None) -> None:
    """The field `momentum`: none, or a number in [0, 1)."""
    if value is not None:
        number(owner, "momentum", 0.0, 1.0)
        if value == 1:
            raise PolyfedError(f"{owner.name}: momentum must be below 1, found {value}")


def local_steps(owner: LocalSteps) -> None:
    whole(owner, "local_steps")
    if owner.local_epochs is not None:
        whole(owner, "local_epochs")


def batches(owner: Steps, name: str = "batch") -> None:
    """The field `name` must be a number of rows, or "full"; and batches are cut in one way."""
    checks.rows(f"{owner.name}: {name}", getattr(owner, name))
    for how in ("replace", "even"):
        checks.flag(f"{owner.name}: {how}", getattr(owner, how))
    if owner.replace and owner.even:
        raise PolyfedError(f"{owner.name}: batches are cut by replace or by even, found both")
