"""What is searched: the section [tune] of a config, and the candidates of a method, as many for each."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyfed.algorithms.contract import Algorithm, kinds
from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.extras import extra_package
from polyfed.problem.metrics import Metric

SEARCHES = ("grid", "random", "optuna")
TRIES = 200
"""Draws for each candidate that is wanted, before a space counts as too small."""
DIGITS = 4
"""Significant digits of a drawn number, so that a config shows all of it."""


@dataclass(frozen=True)
class TuneSettings:
    """The section [tune], apart from its spaces."""

    budget: int = 12
    """candidates per method, the same for all"""
    rounds: int | None = None
    """rounds per candidate; by default run.rounds"""
    repeats: int = 1
    """runs per candidate, each with another seed: its score is their mean"""
    search: str = "grid"
    """"grid", "random" or "optuna" """
    by: str = "loss"
    """what chooses, on validation rows: "loss", or a metric; ties go to the better loss, then to the middle"""
    seed: int = 0
    """of the random draws"""


@dataclass(frozen=True)
class Axis:
    """One hyper-parameter: the values that are listed, or a range."""

    name: str
    kind: str
    """"real", "whole" or "other" """
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False

    @property
    def numbers(self) -> bool:
        """Whether the listed values are numbers that others may lie between."""
        return self.kind == "real" and len(self.values) > 1 and all(isinstance(v, float) for v in self.values)

    def points(self, count: int) -> list[Any]:
        """The listed values; of a range, `count` evenly spaced ones with both ends."""
        if self.values:
            return list(self.values)
        space = np.geomspace if self.log else np.linspace
        return list(dict.fromkeys(self.number(value) for value in space(self.low, self.high, count)))

    def draw(self, random: np.random.Generator, between: bool) -> Any:
        """A draw from a range or the list; with `between`, listed numbers are the ends of a range."""
        if not self.values:
            return self._drawn(random, self.low, self.high, self.log)
        if between and self.numbers:
            low, high = min(self.values), max(self.values)
            return self._drawn(random, low, high, low > 0 and high >= 10 * low)
        return self.values[random.integers(len(self.values))]

    def _drawn(self, random: np.random.Generator, low: float, high: float, log: bool) -> Any:
        share = random.uniform()
        value = low * (high / low) ** share if log else low + (high - low) * share
        return self.number(min(max(value, low), high))

    def number(self, value: Any) -> float | int:
        return round(float(value)) if self.kind == "whole" else float(f"{float(value):.{DIGITS}g}")


Space = tuple[Axis, ...]


@dataclass(frozen=True)
class TunePlan:
    """A checked section [tune]: settings, and the space of each method, by its label."""

    settings: TuneSettings = field(default_factory=TuneSettings)
    spaces: dict[str, Space] = field(default_factory=dict)

    def candidates(self, label: str) -> list[tuple[str, dict[str, Any]]]:
        """(how it was found, values) of each candidate of a method; a method with an empty space has one."""
        settings, space, owner = self.settings, self.spaces[label], f"tune.space of '{label}'"
        if not space:
            return [("fixed", {})]
        random = np.random.default_rng([settings.seed, label_number(label)])
        candidates: dict[str, tuple[str, dict[str, Any]]] = {}
        if settings.search == "grid":
            for values in _grid(space, settings.budget, owner):
                candidates.setdefault(values_key(values), ("grid", values))
        for _ in range(TRIES * settings.budget):
            if len(candidates) >= settings.budget:
                return list(candidates.values())
            values = {axis.name: axis.draw(random, settings.search == "grid") for axis in space}
            candidates.setdefault(values_key(values), ("random", values))
        raise self.too_few(label, len(candidates))

    def count(self, label: str) -> int:
        """How many candidates a method gets."""
        return self.settings.budget if self.spaces[label] else 1

    def too_few(self, label: str, found: int) -> PolyfedError:
        """What is wrong with a space that is smaller than the budget."""
        return PolyfedError(
            f"tune.space of '{label}': has {found} different candidates, fewer than tune.budget = "
            f"{self.settings.budget}; give a range or more values, or lower the budget"
        )


def tune_plan(section: Any, methods: Mapping[str, type[Algorithm]], where: str) -> TunePlan:
    """Check the section [tune]; `methods` are the config's, by label."""
    if not isinstance(section, Mapping):
        raise PolyfedError(f"{where}: tune must be a section, [tune]")
    section = dict(section)
    spaces = section.pop("space", {})
    known = {f.name for f in dataclasses.fields(TuneSettings)}
    for key in section:
        if key not in known:
            raise PolyfedError(f"{where}: unknown key tune.{key}{suggestion(key, [*known, 'space'])}")
    settings = TuneSettings(**section)
    for key, low in (("budget", 1), ("rounds", 1), ("repeats", 1), ("seed", 0)):
        value = getattr(settings, key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < low):
            raise PolyfedError(f"{where}: tune.{key} must be a whole number, at least {low}, found {value!r}")
    if settings.search not in SEARCHES:
        raise PolyfedError(f"{where}: tune.search must be one of {', '.join(SEARCHES)}, found {settings.search!r}")
    if settings.search == "optuna":
        extra_package("optuna", "optuna", f"{where}: tune.search = 'optuna'")
    if not isinstance(settings.by, str):
        shown = f"the metric '{settings.by.name}' of your own" if isinstance(settings.by, Metric) else repr(settings.by)
        raise PolyfedError(f"{where}: tune.by must be 'loss' or the name of a metric, found {shown}")
    if not isinstance(spaces, Mapping):
        raise PolyfedError(f"{where}: tune.space must be a table of tables, [tune.space.METHOD]")
    return TunePlan(settings, _spaces(spaces, methods, where) if methods else {})


def _spaces(spaces: Mapping[str, Any], methods: Mapping[str, type[Algorithm]], where: str) -> dict[str, Space]:
    """Each method's space: the one under its label, else the one under its algorithm's name."""
    names = {cls.name for cls in methods.values()}
    for key in spaces:
        if key not in methods and key not in names:
            raise PolyfedError(f"{where}: tune.space.{key} is no method of this config{suggestion(key, methods)}")
    checked = {}
    for label, cls in methods.items():
        key = label if label in spaces else cls.name
        if key not in spaces:
            raise PolyfedError(
                f"{where}: '{label}' has no space, so that it would get less tuning than others; give [tune.space."
                f"{cls.name}], empty if it is to stay as it is"
            )
        if not isinstance(spaces[key], Mapping):
            raise PolyfedError(f"{where}: tune.space.{key} must be a table of hyper-parameters")
        axes = [_axis(cls, name, given, f"{where}: tune.space.{key}.{name}") for name, given in spaces[key].items()]
        checked[label] = tuple(axes)
    return checked


def _axis(cls: type[Algorithm], name: str, given: Any, what: str) -> Axis:
    known = kinds(cls)
    if name not in known:
        raise PolyfedError(f"{what}: {cls.name} has no such hyper-parameter{suggestion(name, known)}")
    kind = known[name].numbers
    if isinstance(given, Sequence) and not isinstance(given, str):
        if not given:
            raise PolyfedError(f"{what} is an empty list, expected values to try")
        return Axis(name, kind, tuple(_value(value, kind) for value in given))
    if not isinstance(given, Mapping) or not {"low", "high"} <= set(given) <= {"low", "high", "log"}:
        raise PolyfedError(f"{what} must be a list of values or {{low, high}} or {{low, high, log}}, found {given!r}")
    low, high, log = given["low"], given["high"], given.get("log", False)
    if kind == "other" or not all(_is_number(value) for value in (low, high)):
        raise PolyfedError(f"{what}: only a number has a range, give a list of values")
    if not isinstance(log, bool) or not low < high or (log and low <= 0):
        raise PolyfedError(f"{what}: low must be below high and, with log = true, above 0; found {dict(given)}")
    return Axis(name, kind, (), float(low), float(high), log)


def _value(value: Any, kind: str) -> Any:
    """A whole number where a real one is meant is real: the compiled program stays the same."""
    return float(value) if kind == "real" and isinstance(value, int) and not isinstance(value, bool) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _grid(space: Space, budget: int, owner: str) -> list[dict[str, Any]]:
    """All combinations: listed values as they are, each range at as many points as the budget allows, at least two."""
    ranges = [axis for axis in space if not axis.values]
    listed = math.prod(len(axis.values) for axis in space if axis.values)
    count = max(2, int((budget / listed) ** (1 / len(ranges)) + 1e-9)) if ranges else 0
    size = listed * count ** len(ranges)
    if size > budget:
        raise PolyfedError(
            f"{owner}: the grid has {size} candidates, more than tune.budget = {budget}; raise the budget, list fewer "
            "values, or set tune.search = 'random'"
        )
    names = [axis.name for axis in space]
    return [
        dict(zip(names, values, strict=True)) for values in itertools.product(*(axis.points(count) for axis in space))
    ]


def values_key(values: Mapping[str, Any]) -> str:
    """What makes two candidates of a method the same."""
    return json.dumps(values, sort_keys=True, default=repr)


def label_number(label: str) -> int:
    """A number from a label, so that each method's draws are its own."""
    return int.from_bytes(hashlib.blake2b(label.encode(), digest_size=8).digest())
