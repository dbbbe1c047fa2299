"""Targets: class labels become int32 in 0..classes-1, regression targets stay floating point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.option_checks import integer
from polyfed.data.tables.cells import NO, YES

FEW = 20
"""Real numbers with at most so many distinct values, all whole, may be meant as classes."""
MANY = 100
"""Whole numbers with more distinct values may be meant as real numbers."""
Where = Callable[[int], str]  # flat row -> "client 'a', row 3 (counted from 0)"


@dataclass(frozen=True)
class Targets:
    """Targets as a federation keeps them, and what was decided about them."""

    y: np.ndarray
    classes: int | None
    """of labels 0..classes-1; None for real numbers and for labels -1 and +1"""
    label_names: tuple[str, ...] | None = None
    labels: str | None = None
    """which value became which class, where that is not plain"""
    note: str | None = None
    """a choice that the values do not settle, and how to make the other one"""

    def described(self, source: dict[str, object]) -> dict[str, object]:
        """A federation's `source` with what was decided."""
        known = {"labels": self.labels, "note": self.note}
        return {**{key: value for key, value in known.items() if value is not None}, **source}


def encode(y: np.ndarray, classes: int | None, where: Where) -> Targets:
    """All targets of a federation as classes or as real numbers.

    Two distinct values, of any kind, are two classes: the smaller is class 0, the larger class 1, the positive one;
    exactly {-1, +1} stays as it is, with classes None. Text is numbered in sorted order, but
    yes comes after no in any language. Whole numbers from 0 on are
    labels 0..classes-1, where classes is the largest label + 1; from 1 on they are numbered in their order. Other
    floating point is regression. `classes` given: labels below it, also in floating point; 0: real numbers.
    """
    if classes is not None:
        integer("classes", classes, minimum=0)
    if y.ndim == 2 and y.shape[1] == 1 and (y.dtype.kind not in "f" or classes):
        y = y[:, 0]
    if y.dtype.kind == "U":
        return _text(y, classes)
    if y.dtype.kind not in "fiub":
        raise PolyfedError(f"the target has type {y.dtype}, expected numbers or text")
    if y.dtype.kind == "f":
        y = y.astype({2: np.float32, 4: np.float32}.get(y.dtype.itemsize, np.float64), copy=False)
        for row in _first_row(~np.isfinite(y)):
            raise PolyfedError(f"the target of {where(row)} is {_shown(y[row])}, expected a finite number")
    if classes == 0:
        return Targets(y if y.dtype.kind == "f" else y.astype(np.float64), None)
    if y.dtype.kind == "b" or y.size == 0:
        real = y.dtype.kind == "f" and not classes
        return Targets(y if real else y.astype(np.int32), None if real else classes or 2)
    values = np.unique(y)
    single = y.ndim == 1 or y.shape[1] == 1
    if single and len(values) == 2 and classes in (None, 2) and (y.dtype.kind in "iu" or y.size > 2):
        return _two_values(y.reshape(len(y)), values, classes is not None)
    if classes is not None:
        return Targets(_below(y, classes, where), classes)
    if y.dtype.kind == "f":
        return Targets(y, None, note=_looks_like_classes(values, y.size) if single else None)
    return _whole_numbers(y, values, where)


def _two_values(y: np.ndarray, values: np.ndarray, asked: bool) -> Targets:
    """Two classes. 0 and 1, and -1 and +1, need no names. `asked`: the caller gave the number of classes."""
    if values.tolist() == [-1, 1] and not asked:
        return Targets(y.astype(np.int32), None)
    classes = (y == values[1]).astype(np.int32)
    if values.tolist() == [0, 1]:
        floats = "labels 0 and 1, written as real numbers, are two classes; classes = 0 reads them as real numbers"
        return Targets(classes, 2, note=floats if y.dtype.kind == "f" and not asked else None)
    names = tuple(f"{value:.12g}" for value in values)
    return Targets(classes, 2, names, _arrows(names))


def _whole_numbers(y: np.ndarray, values: np.ndarray, where: Where) -> Targets:
    """Three or more whole numbers, or a single one: labels from 0 on, or those of people who count from 1."""
    for row in _first_row(y < 0):
        raise PolyfedError(
            f"the label of {where(row)} is {_shown(y[row])}, expected a label that is not negative (or only -1 and "
            "+1); classes = 0 reads real numbers"
        )
    many = None
    if len(values) > MANY:
        many = f"the target's {len(values)} whole numbers are so many classes; classes = 0 reads them as real numbers"
    if values[0] == 0 or len(values) == 1 or y.ndim > 1:  # a single value may be one site's share of several
        if values[-1] >= np.iinfo(np.int32).max:
            raise PolyfedError(f"the target has the label {values[-1]}, which does not fit into 32 bits")
        return Targets(y.astype(np.int32), int(values[-1]) + 1, note=many)
    names = tuple(map(str, values.tolist()))
    return Targets(np.searchsorted(values, y).astype(np.int32), len(values), names, _arrows(names), many)


def _below(y: np.ndarray, classes: int, where: Where) -> np.ndarray:
    """Whole numbers in 0..classes-1 as labels."""
    for row in _first_row(y != np.floor(y)):
        raise PolyfedError(f"the label of {where(row)} is {_shown(y[row])}, expected a whole number below {classes}")
    for row in _first_row((y < 0) | (y >= classes)):
        raise PolyfedError(f"the label of {where(row)} is {_shown(y[row])}, expected a label in 0..{classes - 1}")
    return y.astype(np.int32)


def _looks_like_classes(values: np.ndarray, rows: int) -> str | None:
    """What to say of real numbers that are few and whole, such as grades."""
    if not 2 < len(values) <= FEW or 4 * len(values) > rows or values[0] < 0 or (values != np.floor(values)).any():
        return None
    shown = f"the target's {len(values)} whole numbers, {values[0]:g} to {values[-1]:g}, are taken as real numbers"
    return f"{shown}; classes = {values[-1] + 1:g} reads them as labels from 0 on"


def _text(y: np.ndarray, classes: int | None) -> Targets:
    names, labels = np.unique(y, return_inverse=True)
    if classes is not None and len(names) != classes:
        listed = ", ".join(map(repr, names[:5].tolist())) + (", ..." if len(names) > 5 else "")
        raise PolyfedError(f"the target has {len(names)} distinct labels ({listed}), expected classes = {classes}")
    known = tuple(map(str, names.tolist()))
    if len(known) == 2 and known[0].lower() in YES and known[1].lower() in NO:  # ja and nein: yes is the positive one
        known, labels = known[::-1], 1 - labels
    arrows = _arrows(known) if len(known) == 2 else None
    return Targets(labels.reshape(y.shape).astype(np.int32), len(known), known, arrows)


def _arrows(names: Sequence[str]) -> str:
    """Which value became which class."""
    shown = [f"{name} -> {code}" for code, name in enumerate(names)]
    if len(names) == 2:
        shown[1] += " (the positive class)"
    return ", ".join(shown if len(shown) <= 10 else [*shown[:3], "...", shown[-1]])


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
    where: Where = lambda row: f"{what}, row {row} (counted from 0)"  # noqa: E731
    if classes is None:
        return encode(y, 0, where).y
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    for row in _first_row(~np.isfinite(y)):
        raise PolyfedError(f"the target of {where(row)} is {_shown(y[row])}, expected a finite number")
    return _below(y, classes, where)


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
    return np.flatnonzero(wrong.any(axis=tuple(range(1, wrong.ndim))))[:1].tolist()


def _shown(value: object) -> str:
    return str(value.tolist() if isinstance(value, np.ndarray | np.generic) else value)
