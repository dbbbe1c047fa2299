"""What a site tells the server of its data, and what the server makes of it: the problem without its rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data import Federation, Split
from polyfed.data.split import offsets_of
from polyfed.problem.problem import Problem
from polyfed.problem.reference import Constants, Reference
from polyfed.studies.newcomers.fitting import DataKind

ALWAYS = ("kind", "rows", "columns")
"""What every site reports: what a row looks like and which labels there are, how many rows, and its own columns."""
ON_REQUEST = ("smoothness", "sampled")
"""What it reports only if the method's theory needs it: L_i and mu_i, and A_i for a size of batches."""
DTYPES = {"bytes": np.uint8, "whole numbers": np.int64, "real numbers": np.float64}


class Wanted(Exception):
    """The method cannot be resolved before the sites have reported this."""

    def __init__(self, fact: str, batch: int | None = None) -> None:
        super().__init__(fact)
        self.fact, self.batch = fact, batch


@dataclass(frozen=True)
class Request:
    """Which facts the server asks for."""

    facts: tuple[str, ...]
    loss: str
    problem: dict[str, Any]
    kind: dict[str, Any] | None = None
    batch: int | None = None
    private: bool = False
    """whether the run is differentially private"""


def report(federation: Federation, request: Request) -> dict[str, Any]:
    """The facts of a federation of one client, as JSON."""
    found: dict[str, Any] = {}
    if "kind" in request.facts:
        found["kind"] = dataclasses.asdict(DataKind.of(federation, request.loss))
    if "rows" in request.facts:
        found["rows"] = [int(federation.train.sizes[0]), int(federation.validation.sizes[0])]
    if "columns" in request.facts:
        found["columns"] = {name: float(values[0]) for name, values in federation.columns.items()}
    return found


def measured(problem: Problem, request: Request) -> dict[str, Any]:
    """The constants that were asked for, of a problem of one client."""
    found: dict[str, Any] = {}
    if "smoothness" in request.facts:
        constants = problem.constants
        found["smoothness"] = [
            float(values[0]) for values in (constants.smoothness, constants.convexity, constants.trace_bound)
        ]
    if "sampled" in request.facts:
        assert request.batch is not None
        found["sampled"] = [float(values[0]) for values in problem.sampled_constants(request.batch)]
    return found


def merged_kind(sites: Sequence[str], kinds: Sequence[DataKind], loss: str) -> DataKind:
    """What rows and labels look like in the whole federation; sites that do not fit are named."""
    first = kinds[0]
    for site, kind in zip(sites, kinds, strict=True):
        for name in ("features", "kind", "feature_names", "targets"):
            if getattr(kind, name) != getattr(first, name):
                raise PolyfedError(
                    f"site '{site}': {name.replace('_', ' ')} {getattr(kind, name)}, "
                    f"site '{sites[0]}' has {getattr(first, name)}"
                )
        if loss == "softmax" and (kind.label_names is None) != (first.label_names is None):
            raise PolyfedError(f"site '{site}' and site '{sites[0]}' have labels as text and as numbers")
    if loss == "softmax":
        if first.label_names is not None:
            names = tuple(sorted({name for kind in kinds for name in kind.label_names or ()}))
            return dataclasses.replace(first, label_names=names, classes=len(names), outputs=len(names))
        classes = max(kind.classes or 0 for kind in kinds)
        return dataclasses.replace(first, classes=classes, outputs=classes)
    if loss == "logistic" and len({kind.signs for kind in kinds}) > 1:
        if any(kind.signs is None or kind.signs[1] != 1 for kind in kinds):
            found = ", ".join(f"'{site}' has {kind.signs}" for site, kind in zip(sites, kinds, strict=True))
            raise PolyfedError(f"the sites' labels differ: {found}")
        return dataclasses.replace(first, signs=(-1.0, 1.0))
    return first


class Outline(Problem):
    """The whole problem as the server knows it: names, sizes and reported constants, and not one row."""

    def __init__(
        self, federation: Federation, model: Any, loss: str, l2: float, reported: dict[str, np.ndarray]
    ) -> None:
        super().__init__(federation, model, loss, l2)
        self._reported = reported

    @cached_property
    def constants(self) -> Constants:
        if self.model.design is None:
            raise PolyfedError("smoothness constants are known for linear models only; give the stepsize")
        if "smoothness" not in self._reported:
            raise Wanted("smoothness")
        return Constants(*self._reported["smoothness"].T)

    def sampled_constants(self, batch: int, solution: Reference | None = None) -> tuple[np.ndarray, np.ndarray]:
        if "sampled" not in self._reported:
            raise Wanted("sampled", batch)
        smoothness, noise = self._reported["sampled"].T
        return smoothness, noise

    def solve(self, alpha: Any = 1.0, tolerance: float = 1e-12, plm_tolerance: float = 1e-12) -> Reference:
        raise PolyfedError("the solution of the whole problem is not known across sites: give lr, and no accuracy")


def blank_federation(
    sites: Sequence[str], kind: DataKind, rows: Sequence[Sequence[int]], columns: dict[str, np.ndarray]
) -> Federation:
    """A federation of these sizes whose rows are all zero, and take no memory."""

    def split(sizes: Sequence[int]) -> Split:
        total = sum(sizes)
        label = np.int64 if kind.classes is not None else np.float64
        x = np.broadcast_to(np.zeros((), DTYPES[kind.kind]), (total, *kind.features))
        return Split(x, np.broadcast_to(np.zeros((), label), (total, *kind.targets)), offsets_of(sizes))

    return Federation(
        clients=tuple(sites),
        train=split([train for train, _ in rows]),
        validation=split([validation for _, validation in rows]),
        test=split([0] * len(sites)),
        classes=kind.classes,
        label_names=kind.label_names,
        feature_names=kind.feature_names,
        columns=columns,
    )
