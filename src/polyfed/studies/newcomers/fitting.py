"""The newcomers' rows and labels as the run's model reads them, or an error that says how they differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject
from polyfed.data import Federation, Population, Split
from polyfed.data.split import PARTS
from polyfed.problem.losses import get_loss

KINDS = {"u": "bytes", "i": "whole numbers", "f": "real numbers"}


@dataclass(frozen=True)
class DataKind:
    """What a run's data looks like: one example, one target, and which labels there are."""

    features: tuple[int, ...]
    kind: str
    """"bytes" (images), "whole numbers" (tokens) or "real numbers" """
    feature_names: tuple[str, ...] | None
    targets: tuple[int, ...]
    outputs: int | None
    classes: int | None
    label_names: tuple[str, ...] | None
    signs: tuple[float, float] | None
    """For the logistic loss: the labels that are -1 and +1."""

    @classmethod
    def of(cls, federation: Federation | Population, loss: str) -> DataKind:
        signs = _signs(federation) if loss == "logistic" else None
        return cls(
            tuple(federation.feature_shape),
            KINDS[federation.like.x.dtype.kind],
            federation.feature_names,
            tuple(federation.like.y.shape[1:]),
            get_loss(loss).outputs(federation),
            federation.classes,
            federation.label_names,
            signs,
        )

    @classmethod
    def from_json(cls, fields: JsonObject) -> DataKind:
        """The way back from `dataclasses.asdict` and JSON, which knows lists only."""
        plain: JsonObject = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
        return cls(**plain)


def fitted(newcomers: Federation, run: DataKind, loss: str) -> Federation:
    """The newcomers with the run's classes: the same label has the same number."""
    x = _features(newcomers, run)
    newcomers = _with_labels(newcomers) if loss == "softmax" else newcomers
    targets = {"softmax": _classes, "logistic": _binary, "tags": _real, "squared": _real}[loss]
    mapped = targets(newcomers, run)
    parts = {}
    for part in PARTS:
        split = newcomers.split(part)
        parts[part] = Split(x(split.x), mapped(split.y), split.offsets)
    classes = run.classes if loss == "softmax" else None
    names = run.label_names if loss == "softmax" else None
    return dataclasses.replace(newcomers, **parts, classes=classes, label_names=names)


def _features(newcomers: Federation, run: DataKind) -> Callable[[np.ndarray], np.ndarray]:
    shape = tuple(newcomers.feature_shape)
    if shape != run.features:
        raise PolyfedError(f"the newcomers' rows have shape {shape}, expected {run.features} as in the run")
    kind = KINDS[newcomers.train.x.dtype.kind]
    if kind != run.kind and (kind, run.kind) != ("whole numbers", "real numbers"):
        raise PolyfedError(f"the newcomers' features are {kind}, expected {run.kind} as in the run")
    names = newcomers.feature_names
    if names is not None and run.feature_names is not None and names != run.feature_names:
        at = next(i for i, (a, b) in enumerate(zip(names, run.feature_names, strict=True)) if a != b)
        raise PolyfedError(
            f"the newcomers' feature {at} (counted from 0) is '{names[at]}', expected '{run.feature_names[at]}'"
        )
    return lambda x: x.astype(np.float64) if kind != run.kind else x


def _classes(newcomers: Federation, run: DataKind) -> Callable[[np.ndarray], np.ndarray]:
    assert run.classes is not None
    number = _named(newcomers, run)
    if number is None:
        if newcomers.classes is None:
            raise PolyfedError(f"the newcomers' targets are not class labels, expected 0 to {run.classes - 1}")
        _refuse_label(newcomers, lambda y: y >= run.classes, f"the run knows 0 to {run.classes - 1}")
    return lambda y: y.astype(np.int32) if number is None else number[y].astype(np.int32)


def _with_labels(newcomers: Federation) -> Federation:
    """Whole numbers that were taken for real ones, as a single client may have one label only, as labels."""
    values = newcomers.label_values()
    if newcomers.classes is not None or (values < 0).any() or (values != np.floor(values)).any():
        return newcomers
    parts = {}
    for part in PARTS:
        split = newcomers.split(part)
        parts[part] = Split(split.x, split.y.reshape(len(split.y)).astype(np.int32), split.offsets)
    return dataclasses.replace(newcomers, **parts, classes=int(values[-1]) + 1)


def _binary(newcomers: Federation, run: DataKind) -> Callable[[np.ndarray], np.ndarray]:
    """+-1; where the run's positive label is 1, a newcomer may write the other one as 0 or -1."""
    assert run.signs is not None
    number, (negative, positive) = _named(newcomers, run), run.signs
    known = {negative, positive} | ({0, -1} if positive == 1 else set())
    if number is None:
        wanted = f"the run knows {negative:g} and {positive:g}"
        _refuse_label(newcomers, lambda y: ~np.isin(y, list(known)), wanted)
    return lambda y: np.where((y if number is None else number[y]) == positive, 1, -1).astype(np.int32)


def _real(newcomers: Federation, run: DataKind) -> Callable[[np.ndarray], np.ndarray]:
    shape = tuple(newcomers.train.y.shape[1:])
    if newcomers.label_names is not None:
        raise PolyfedError("the newcomers' targets are text, expected numbers as in the run")
    if shape != run.targets:
        raise PolyfedError(f"the newcomers' targets have shape {shape}, expected {run.targets} as in the run")
    return lambda y: y.astype(np.float64) if y.dtype.kind != "f" else y


def _named(newcomers: Federation, run: DataKind) -> np.ndarray | None:
    """The run's number of each of the newcomers' named labels; None where labels are numbers."""
    mine, theirs = newcomers.label_names, run.label_names
    if mine is None and theirs is None:
        return None
    if (mine is None) != (theirs is None):  # labels such as 1 and 2 have names, 0 and 1 have none
        mine, theirs = mine or _numbers(newcomers.classes), theirs or _numbers(run.classes) or ("-1", "1")
        if not (are_numbers(mine) and are_numbers(theirs)):
            kind = ("numbers", "text") if newcomers.label_names is None else ("text", "numbers")
            raise PolyfedError(f"the newcomers' labels are {kind[0]}, expected {kind[1]} as in the run")
    assert mine is not None
    assert theirs is not None
    present = {mine[int(label)] for label in newcomers.label_values()}
    for name in sorted(present - set(theirs)):
        known = ", ".join(theirs[:8]) + (", ..." if len(theirs) > 8 else "")
        raise PolyfedError(f"a newcomer has the label '{name}', which the run does not know; it knows {known}")
    return np.array([theirs.index(name) if name in theirs else 0 for name in mine])


def _numbers(classes: int | None) -> tuple[str, ...]:
    return tuple(map(str, range(classes or 0)))


def are_numbers(names: Iterable[str]) -> bool:
    """Whether labels' names are whole numbers."""
    return all(name.removeprefix("-").isdecimal() for name in names)


def _refuse_label(newcomers: Federation, wrong: Callable[[np.ndarray], np.ndarray], wanted: str) -> None:
    for part in PARTS:
        split = newcomers.split(part)
        for row in np.flatnonzero(wrong(split.y))[:1]:
            client = newcomers.clients[int(np.searchsorted(split.offsets, row, side="right")) - 1]
            raise PolyfedError(f"client '{client}' has the label {split.y[row]:g} in its {part} rows, {wanted}")


def _signs(federation: Federation | Population) -> tuple[float, float]:
    """The labels that the logistic loss reads as -1 and +1."""
    labels = federation.label_values()
    values = [float(label) for label in (federation.some_targets if labels is None else labels)]
    if set(values) <= {-1, 1}:
        return -1.0, 1.0
    if set(values) <= {0, 1} or federation.classes == 2:
        return 0.0, 1.0
    return values[0], values[-1]
