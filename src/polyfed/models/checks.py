"""The options of models, checked; an error names the model and the option."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyfed.core.errors import PolyfedError, suggestion


def listed(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def widths(where: str, value: Any, empty: bool = False) -> tuple[int, ...]:
    """A list of positive whole numbers."""
    if not listed(value) or not (value or empty) or any(type(width) is not int or width < 1 for width in value):
        raise PolyfedError(f"{where} must be a list of positive whole numbers, found {value!r}")
    return tuple(value)


def whole(where: str, value: Any) -> int:
    if type(value) is not int or value < 1:
        raise PolyfedError(f"{where} must be a positive whole number, found {value!r}")
    return value


def per_layer(where: str, value: Any, layers: int) -> tuple[int, ...]:
    """One positive whole number for all layers, or a list with one for each."""
    if type(value) is int:
        value = (value,) * layers
    if not listed(value) or len(value) != layers or any(type(size) is not int or size < 1 for size in value):
        raise PolyfedError(f"{where} must be a positive whole number, or a list of {layers}, found {value!r}")
    return tuple(value)


def rates(where: str, value: Any, count: int) -> tuple[float, ...]:
    """One share in [0, 1) for all, or a list of `count`."""
    if isinstance(value, int | float):
        value = (value,) * count
    wrong = not listed(value) or len(value) != count
    if wrong or any(isinstance(v, bool) or not isinstance(v, int | float) or not 0 <= v < 1 for v in value):
        several = f", or a list of {count}" if count > 1 else ""
        raise PolyfedError(f"{where} must be a number in [0, 1){several}, found {value!r}")
    return tuple(float(v) for v in value)


def word(where: str, value: Any, known: Sequence[str]) -> str:
    if value not in known:
        raise PolyfedError(f"{where} must be one of {', '.join(known)}, found {value!r}{suggestion(str(value), known)}")
    return value
