"""Targets: class labels become int32 in 0..classes-1, regression targets stay floating point."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.option_checks import integer

Where = Callable[[int], str]  # flat row -> "client 'a', row 3 (counted from 0)"


def encode(y: np.ndarray, classes: int | None, where: Where) -> tuple[np.ndarray, int | None, tuple[str, ...] | None]:
    """(targets, classes, label_names).

    Text is mapped in sorted order and its names are kept. Integers and booleans are labels 0..classes-1, where classes
    is the largest label + 1 unless given; exactly {-1, +1} stays as it is, with classes None. Floating point is
    regression, unless `classes` is given, in which case it must hold whole numbers.
    """
    if classes is not None:
        integer("classes", classes, minimum=1)
    if y.dtype.kind in "U":
        return _encode_text(y, classes)
    if y.dtype.kind == "f":
        y = y.astype({2: np.float32, 4: np.float32}.get(y.dtype.itemsize, np.float64), copy=False)
        for row in _first_row(~np.isfinite(y)):
            raise PolyfedError(f"the target of {where(row)} is {_shown(y[row])}, expected a finite number")
        if classes is None:
            return y, None, None
        for row in _first_row(y != np.floor(y)):
            raise PolyfedError(
                f"the label of {where(row)} is {_shown(y[row])}, expected a whole number below {classes}"
            )
    elif y.dtype.kind not in "iub":
        raise PolyfedError(f"the target has type {y.dtype}, expected numbers or text")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.dtype.kind == "b" or y.size == 0:
        return y.astype(np.int32), classes or 2, None
    if classes is None and y.min() == -1 and ((y == -1) | (y == 1)).all() and y.max() == 1:
        return y.astype(np.int32), None, None
    expected = f"a label in 0..{classes - 1}" if classes else "a label that is not negative (or only -1 and +1)"
    wrong = (y < 0) | (y >= (classes or np.iinfo(np.int32).max))
    for row in _first_row(wrong):
        raise PolyfedError(f"the label of {where(row)} is {_shown(y[row])}, expected {expected}")
    return y.astype(np.int32), classes or int(y.max()) + 1, None


def _encode_text(y: np.ndarray, classes: int | None) -> tuple[np.ndarray, int, tuple[str, ...]]:
    names, labels = np.unique(y, return_inverse=True)
    if classes is not None and len(names) != classes:
        listed = ", ".join(map(repr, names[:5].tolist())) + (", ..." if len(names) > 5 else "")
        raise PolyfedError(f"the target has {len(names)} distinct labels ({listed}), expected classes = {classes}")
    return labels.reshape(y.shape).astype(np.int32), len(names), tuple(map(str, names.tolist()))


def client_targets(y: np.ndarray, classes: int | None, what: str) -> np.ndarray:
    """The targets of a single client, given the number of classes (None: real numbers, or labels -1 and +1)."""
    if y.dtype.kind == "U":
        raise PolyfedError(f"y of {what} is text, expected numbers")
    if classes is None and y.dtype.kind in "iub":
        for row in _first_row(~np.isin(y, (-1, 1))):
            raise PolyfedError(
                f"the label of {what}, row {row} (counted from 0) is {_shown(y[row])}, expected -1 or +1; "
                "for other labels give the number of classes"
            )
        return y.astype(np.int32)
    return encode(y, classes, lambda row: f"{what}, row {row} (counted from 0)")[0]


def as_targets(y: object, what: str) -> np.ndarray:
    """A client's y as an array of numbers or of fixed-width text; `what` names it in an error."""
    values = _to_numpy(y, what)
    if values.dtype.kind == "O":
        for value in values.ravel().tolist():
            if not isinstance(value, str):
                raise PolyfedError(f"{what} mixes types: found {value!r}, expected all numbers or all text")
        values = values.astype(np.str_)
    if values.dtype.kind == "S":
        values = values.astype(np.str_)
    if values.ndim not in (1, 2):
        raise PolyfedError(f"{what} has shape {values.shape}, expected (rows,) or (rows, k)")
    if values.ndim == 2 and values.shape[1] == 0:
        raise PolyfedError(f"{what} has shape {values.shape}, expected at least one column")
    return values


def _to_numpy(y: object, what: str) -> np.ndarray:
    try:
        return np.asarray(y)
    except ValueError:
        raise PolyfedError(f"{what} is ragged, expected an array of shape (rows,) or (rows, k)") from None


def _first_row(wrong: np.ndarray) -> list[int]:
    """The first row that has a wrong entry, if any."""
    return np.flatnonzero(wrong.reshape(len(wrong), -1).any(axis=1))[:1].tolist()


def _shown(value: object) -> str:
    return str(value.tolist() if isinstance(value, np.ndarray | np.generic) else value)
