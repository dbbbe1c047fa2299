"""What all parties of a run agree on: the run as its server knows it, and the terms that each site gets."""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import dataclass
from typing import Any, TypedDict

import jax
import numpy as np

import polyfed
from polyfed.algorithms.contract import Algorithm, get_algorithm
from polyfed.core.precision import Compute
from polyfed.engine.participation import Bernoulli
from polyfed.engine.privacy.mechanism import Privacy
from polyfed.models import MODELS, Architecture
from polyfed.problem.problem import DType
from polyfed.studies.newcomers.fitting import DataKind
from polyfed.studies.newcomers.trained import from_json, to_json

ProblemSection = dict[str, Any]
"""A checked section [problem]: model and its options, loss, l2, class weights."""


@dataclass(frozen=True)
class DeployedRun:
    """A run across sites, as its server knows it before any site has reported."""

    name: str
    """sites keep the run's state under it"""
    sites: tuple[str, ...]
    """the roster: who may take part, in the order in which uploads are added up"""
    problem: ProblemSection
    method: Algorithm
    rounds: int
    participation: float | Bernoulli = 1.0
    seed: int = 0
    init: str | None = None
    dtype: DType = "float32"
    compute: Compute | None = None
    privacy: Privacy | None = None

    @property
    def architecture(self) -> Architecture:
        return architecture(self.problem)


@dataclass(frozen=True)
class Terms:
    """What one site is told: the method with its own hyper-parameters, the model, and the sizes it must agree on."""

    run: str
    site: str
    method: Algorithm
    """resolved; where sites have values of their own, with this site's"""
    problem: ProblemSection
    kind: DataKind
    """features, targets and labels of the whole federation"""
    longest: int
    """the training rows of the largest site: it decides how batches are laid out"""
    seed: int
    init: str | None
    dtype: DType
    compute: Compute | None = None
    clip: float | None = None
    """the longest upload that privacy allows; None without privacy"""

    def to_json(self) -> str:
        plain = {**vars(self), "method": method_to_json(self.method), "kind": vars(self.kind)}
        return json.dumps(plain, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Terms:
        terms = json.loads(text)
        terms["method"] = method_from_json(terms["method"])
        terms["kind"] = DataKind.from_json(terms["kind"])
        return cls(**terms)

    @property
    def fingerprint(self) -> str:
        """A digest of the terms and of the code that carries them out: both sides must have the same."""
        digest = hashlib.blake2b(self.to_json().encode(), digest_size=16)
        digest.update(code_version(type(self.method)).encode())
        return digest.hexdigest()


class MethodJson(TypedDict):
    """An algorithm as JSON."""

    name: str
    hyper_parameters: dict[str, object]


def own_method(method: Algorithm, site: int) -> Algorithm:
    """The method with one site's values where sites have their own: vectors keep their axis, of length one."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[site : site + 1] if np.ndim(leaf) == 1 else leaf, method)


def method_to_json(method: Algorithm) -> MethodJson:
    return {"name": method.name, "hyper_parameters": {name: to_json(value) for name, value in vars(method).items()}}


def method_from_json(described: MethodJson) -> Algorithm:
    hyper = {name: from_json(value) for name, value in described["hyper_parameters"].items()}
    return get_algorithm(described["name"])(**hyper)


def architecture(section: ProblemSection) -> Architecture:
    """The model that a section [problem] describes."""
    options = {key: value for key, value in section.items() if key not in ("model", "loss", "l2", "class_weight")}
    return MODELS[section.get("model", "linear")](**options)


def code_version(kind: type[Algorithm]) -> str:
    """This installation's version, and a digest of the algorithm's source."""
    module = inspect.getmodule(kind)
    source = inspect.getsource(module) if module is not None else kind.__qualname__
    return f"{polyfed.__version__}:{hashlib.blake2b(source.encode(), digest_size=8).hexdigest()}"
