"""Checks of the options of sources, partitions and readers: each refuses with a sentence that names the option."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path

from polyfed.core.errors import PolyfedError, suggestion

PathLike = str | os.PathLike[str]


def integer(name: str, value: object, minimum: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        raise PolyfedError(f"{name} must be a whole number of at least {minimum}, found {value!r}")
    return int(value)


def number(name: str, value: object, minimum: float | None = None, *, above: float | None = None) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise PolyfedError(f"{name} must be a finite number, found {value!r}")
    if minimum is not None and value < minimum:
        raise PolyfedError(f"{name} must be at least {minimum}, found {value!r}")
    if above is not None and value <= above:
        raise PolyfedError(f"{name} must be greater than {above}, found {value!r}")
    return float(value)


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise PolyfedError(f"{name} must be true or false, found {value!r}")
    return value


def interval(name: str, value: object, *, above: float | None = None) -> tuple[float, float]:
    """A pair (low, high) of numbers with low <= high."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise PolyfedError(f"{name} must be a pair of numbers [low, high], found {value!r}")
    low, high = (number(name, v, above=above) for v in value)
    if low > high:
        raise PolyfedError(f"{name} must be a pair [low, high] with low <= high, found {value!r}")
    return low, high


def choice(name: str, value: object, known: Iterable[str]) -> str:
    known = list(known)
    if not isinstance(value, str) or value not in known:
        raise PolyfedError(f"{name} has the unknown value {value!r}{suggestion(str(value), known)}")
    return value


def text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise PolyfedError(f"{name} must be a non-empty string, found {value!r}")
    return value


def existing_path(name: str, value: object) -> Path:
    if not isinstance(value, str | os.PathLike):
        raise PolyfedError(f"{name} must be a path, found {value!r}")
    path = Path(value)
    if not path.exists():
        raise PolyfedError(f"{path}: no such file or folder")
    return path


def fractions(validation: object, test: object) -> tuple[float, float]:
    """The held-out shares, each in [0, 1) and together below 1."""
    shares = _share("validation", validation), _share("test", test)
    if sum(shares) >= 1:
        raise PolyfedError(f"validation + test must be below 1 to leave training rows, found {validation} + {test}")
    return shares


def _share(name: str, value: object) -> float:
    share = number(name, value)
    if not 0 <= share < 1:
        raise PolyfedError(f"{name} is a share of a client's rows and must lie in [0, 1), found {value!r}")
    return share


def option_names(function: Callable[..., object]) -> tuple[set[str], set[str]]:
    """The names of a function's options: (all, required)."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    return {p.name for p in parameters}, {p.name for p in parameters if p.default is p.empty}


def check_options(what: str, options: Mapping[str, object], known: set[str], required: set[str]) -> None:
    """Refuse an unknown or a missing option of `what` (a source, a partition) by name."""
    for name in options:
        if name not in known:
            raise PolyfedError(f"{what} has no option {name!r}{suggestion(name, known)}")
    for name in sorted(required - options.keys()):
        raise PolyfedError(f"{what} needs the option {name!r}")
