"""The options of models, checked; an error names the model and the option."""

from __future__ import annotations

from collections.abc import Sequence

from polyfed.core.errors import PolyfedError, suggestion


def widths(where: str, value: object, empty: bool = False) -> tuple[int, ...]:
    """A list of positive whole numbers."""
    sizes = _listed(value)
    if sizes is None or not (sizes or empty) or not all(map(_positive, sizes)):
        raise PolyfedError(f"{where} must be a list of positive whole numbers, found {value!r}")
    return sizes


def whole(where: str, value: int) -> int:
    if not _positive(value):
        raise PolyfedError(f"{where} must be a positive whole number, found {value!r}")
    return value


def per_layer(where: str, value: object, layers: int) -> tuple[int, ...]:
    """One positive whole number for all layers, or a list with one for each."""
    if type(value) is int:
        value = (value,) * layers
    sizes = _listed(value)
    if sizes is None or len(sizes) != layers or not all(map(_positive, sizes)):
        raise PolyfedError(f"{where} must be a positive whole number, or a list of {layers}, found {value!r}")
    return sizes


def rates(where: str, value: object, count: int) -> tuple[float, ...]:
    """One share in [0, 1) for all, or a list of `count`."""
    if isinstance(value, int | float):
        value = (value,) * count
    shares = _listed(value)
    if shares is None or len(shares) != count or not all(map(_share, shares)):
        several = f", or a list of {count}" if count > 1 else ""
        raise PolyfedError(f"{where} must be a number in [0, 1){several}, found {value!r}")
    return tuple(float(share) for share in shares)


def word(where: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise PolyfedError(f"{where} must be one of {', '.join(known)}, found {value!r}{suggestion(str(value), known)}")
    return value


def _listed(value: object) -> tuple | None:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else None


def _positive(value: object) -> bool:
    return type(value) is int and value >= 1


def _share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1
