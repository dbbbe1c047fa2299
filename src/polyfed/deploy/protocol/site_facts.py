"""What a site tells the server about its data, and what the server makes of it: the problem without its rows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NotRequired, TypedDict

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject
from polyfed.data import Federation, Split
from polyfed.data.labels import encode
from polyfed.data.split import offsets_of
from polyfed.deploy.protocol.bounds import ANY, CLASS_ROWS, read_kind
from polyfed.deploy.protocol.plain_values import Refused
from polyfed.deploy.protocol.tables import read_preparation
from polyfed.deploy.protocol.terms import ProblemSection
from polyfed.models import Architecture
from polyfed.problem.losses import LOSSES
from polyfed.problem.problem import Problem
from polyfed.problem.reference import Constants, Reference
from polyfed.studies.config import check_problem
from polyfed.studies.newcomers.fitting import DataKind, are_numbers

ALWAYS = ("kind", "rows", "columns")
"""What every site reports: what a row looks like and which labels there are, how many rows, and its own columns."""
ON_REQUEST = ("smoothness", "sampled")
"""What a site reports only if the method's theory needs it: L_i and mu_i, or A_i for a batch size."""
DTYPES = {"bytes": np.uint8, "whole numbers": np.int64, "real numbers": np.float64}


class MissingFact(Exception):
    """The method cannot be resolved before the sites have reported this fact."""

    def __init__(self, fact: str, batch: int | None = None, replace: bool = False, even: bool = False) -> None:
        super().__init__(fact)
        self.fact, self.batch, self.replace, self.even = fact, batch, replace, even


class ConstantFacts(TypedDict, total=False):
    """The constants of a site's objective, as JSON."""

    smoothness: list[float]
    """L_i, mu_i and the trace bound"""
    sampled: list[float]
    """A_i and C_i"""


class SiteFacts(ConstantFacts):
    """All that a site reported, as JSON."""

    kind: dict[str, object]
    rows: list[int]
    """training and validation rows"""
    columns: dict[str, float]
    class_rows: NotRequired[list[int]]
    """training rows of each class"""


@dataclass(frozen=True)
class FactRequest:
    """Which facts the server asks for."""

    facts: Sequence[str]
    loss: str
    problem: ProblemSection
    kind: dict[str, object] | None = None
    batch: int | None = None
    replace: bool = False
    """whether batches are drawn with replacement"""
    even: bool = False
    """whether a pass is cut into batches of nearly equal size"""
    private: bool = False
    """whether the run is differentially private"""
    preparation: JsonObject | None = None
    """of the sites' tables"""

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> FactRequest:
        try:
            request = cls(**json.loads(text))
            if not set(request.facts) <= {*ALWAYS, *ON_REQUEST, CLASS_ROWS} or request.loss not in LOSSES:
                raise ValueError("facts that no site reports")
            if not all(isinstance(flag, bool) for flag in (request.replace, request.even, request.private)):
                raise ValueError("a flag that is none")
            if request.batch is not None and not (type(request.batch) is int and 0 < request.batch < 2**31):
                raise ValueError("a batch that is none")
            if request.kind is not None:
                read_kind(request.kind, ANY)
            check_problem(request.problem, "problem")
            read_preparation(request.preparation)
        except (Refused, PolyfedError) as error:
            raise Refused(f"the request of facts is wrong: {error}") from None
        except Exception as error:
            raise Refused(f"the request of facts cannot be read ({type(error).__name__})") from None
        return request


def data_facts(federation: Federation, loss: str) -> SiteFacts:
    """The facts that every site reports; `federation` has this site as its one client."""
    return {
        "kind": dataclasses.asdict(DataKind.of(federation, loss)),
        "rows": [int(federation.train.sizes[0]), int(federation.validation.sizes[0])],
        "columns": {name: float(values[0]) for name, values in federation.columns.items()},
    }


def constant_facts(problem: Problem, request: FactRequest) -> ConstantFacts:
    """The constants that were asked for; `problem` has this site as its one client."""
    facts: ConstantFacts = {}
    if "smoothness" in request.facts:
        constants = problem.constants
        facts["smoothness"] = [
            float(values[0]) for values in (constants.smoothness, constants.convexity, constants.trace_bound)
        ]
    if "sampled" in request.facts:
        assert request.batch is not None
        sampled = problem.sampled_constants(request.batch, replace=request.replace, even=request.even)
        facts["sampled"] = [float(values[0]) for values in sampled]
    return facts


def merged_kind(sites: Sequence[str], kinds: Sequence[DataKind], loss: str) -> DataKind:
    """What rows and labels look like in the whole federation. A site that does not fit the others is named."""
    first = kinds[0]
    for site, kind in zip(sites, kinds, strict=True):
        for name in ("features", "kind", "feature_names", "targets"):
            if getattr(kind, name) != getattr(first, name):
                raise PolyfedError(
                    f"site '{site}': {name.replace('_', ' ')} {getattr(kind, name)}, "
                    f"site '{sites[0]}' has {getattr(first, name)}"
                )
        if loss == "softmax" and are_numbers(_names(kind)) != are_numbers(_names(first)):
            raise PolyfedError(f"site '{site}' and site '{sites[0]}' have labels as text and as numbers")
    if loss == "softmax":
        if any(kind.label_names is not None for kind in kinds):
            words = {name for kind in kinds for name in _names(kind)}
            names = tuple(sorted(words, key=int)) if are_numbers(_names(first)) else _ordered(words)
            return dataclasses.replace(first, label_names=names, classes=len(names), outputs=len(names))
        classes = max(kind.classes or 0 for kind in kinds)
        return dataclasses.replace(first, classes=classes, outputs=classes)
    if loss == "logistic" and len({kind.label_names for kind in kinds}) > 1:
        words = {name for kind in kinds for name in _names(kind)}
        if all(kind.label_names is not None for kind in kinds) and len(words) == 2:  # some have rows of one class only
            return dataclasses.replace(first, label_names=_ordered(words), classes=2, signs=(0.0, 1.0))
        labels = ", ".join(f"'{site}' has {_names(kind)}" for site, kind in zip(sites, kinds, strict=True))
        raise PolyfedError(f"the sites' labels differ: {labels}")
    if loss == "logistic" and len({kind.signs for kind in kinds}) > 1:
        if any(kind.signs is None or kind.signs[1] != 1 for kind in kinds):
            labels = ", ".join(f"'{site}' has {kind.signs}" for site, kind in zip(sites, kinds, strict=True))
            raise PolyfedError(f"the sites' labels differ: {labels}")
        return dataclasses.replace(first, signs=(-1.0, 1.0))
    return first


def _ordered(words: set[str]) -> tuple[str, ...]:
    """The names of classes in the order that a table of all rows has: yes comes after no."""
    return encode(np.array(sorted(words)), None, str).label_names or ()


def _names(kind: DataKind) -> tuple[str, ...]:
    """The names of a site's classes; those of labels 0, 1, ... are these numbers."""
    return tuple(map(str, range(kind.classes or 0))) if kind.label_names is None else kind.label_names


class RowlessProblem(Problem):
    """The whole problem as the server knows it: names, sizes and reported constants, but no rows."""

    def __init__(
        self,
        federation: Federation,
        model: Architecture,
        loss: str,
        l2: float,
        class_weight: Sequence[float] | None,
        reported: dict[str, np.ndarray],
    ) -> None:
        super().__init__(federation, model, loss, l2, class_weight)
        self._reported = reported

    @cached_property
    def constants(self) -> Constants:
        if self.model.design is None:
            raise PolyfedError("smoothness constants are known for linear models only; give the stepsize")
        if "smoothness" not in self._reported:
            raise MissingFact("smoothness")
        return Constants(*self._reported["smoothness"].T)

    def sampled_constants(
        self, batch: int, solution: Reference | None = None, *, replace: bool = False, even: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        if "sampled" not in self._reported:
            raise MissingFact("sampled", batch, replace, even)
        smoothness, noise = self._reported["sampled"].T
        return smoothness, noise

    def solve(self, alpha: object = 1.0, tolerance: float = 1e-12, plm_tolerance: float = 1e-12) -> Reference:
        raise PolyfedError("the solution of the whole problem is not known across sites: give lr, and no accuracy")


def blank_federation(
    sites: Sequence[str], kind: DataKind, rows: Sequence[Sequence[int]], columns: dict[str, np.ndarray]
) -> Federation:
    """A federation of these sizes. Its rows are all zero and take no memory."""

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
