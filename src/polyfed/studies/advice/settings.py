"""What `advise` is asked to do: its defaults, its checks, and the config for those who want to change what it tries."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.files import JsonObject
from polyfed.data import Federation
from polyfed.engine.identity import plain_value
from polyfed.engine.measure import FineTune
from polyfed.models import linear, mlp
from polyfed.models.base import Model
from polyfed.studies.advice.contenders import ALONE, BUDGET, Candidate, Contender, contenders
from polyfed.studies.config import algorithm_from

SECTIONS = ("data", "advise")
FINETUNE = ("finetune_steps", "finetune_lr", "finetune_batch")


@dataclass(frozen=True)
class AdviceSettings:
    """What is tried, for how long, and what gains are counted in; the section [advise] of a config."""

    minutes: float = 5.0
    splits: int = 10
    """draws of training, validation and test rows"""
    rounds: int = 50
    metric: str | None = None
    """what gains are counted in; by default as everywhere"""
    seed: int = 0
    epsilon: float | None = None
    """also say what this much privacy would cost"""
    l2: float = 1e-3
    hidden: tuple[int, ...] = (16,)
    """of the small network"""
    methods: tuple[str, ...] | None = None
    """those to try; all by default; going alone always is"""
    models: tuple[str, ...] | None = None
    """"linear" and "mlp" by default"""
    also: tuple[Contender, ...] = ()
    """more ways of training"""

    def check(self) -> None:
        """Refuse what makes no sense, with a sentence that names it."""
        for name in ("minutes", "epsilon"):
            value = getattr(self, name)
            if name == "epsilon" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise PolyfedError(f"{name} must be a number above 0, found {value!r}")
        for name, least in (("splits", 3), ("rounds", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise PolyfedError(f"{name} must be a whole number, at least {least}, found {value!r}")
        if isinstance(self.l2, bool) or not isinstance(self.l2, int | float) or not 0 <= self.l2 < float("inf"):
            raise PolyfedError(f"l2 must be a number, at least 0, found {self.l2!r}")
        if not self.hidden or not all(isinstance(width, int) and width > 0 for width in self.hidden):
            raise PolyfedError(f"hidden must be a list of whole numbers above 0, found {list(self.hidden)}")
        for name, known in (("methods", self._names), ("models", list(self._kinds))):
            for word in getattr(self, name) or ():
                if word not in known:
                    raise PolyfedError(f"unknown {name[:-1]} {word!r}{suggestion(str(word), known)}")
        for extra in self.also:
            if self._names.count(extra.name) > 1:
                raise PolyfedError(f"two ways of training are named {extra.name!r}; give each its own label")

    @property
    def ways(self) -> list[Contender]:
        """What is tried; going alone first."""
        usual = [way for way in contenders() if self.methods is None or way.name in {ALONE, *self.methods}]
        return [*usual, *self.also]

    @property
    def kinds(self) -> dict[str, Model]:
        """The models that are tried, by the names that people read."""
        return {
            label: model
            for word, (label, model) in self._kinds.items()
            if self.models is None or {word, label} & set(self.models)
        }

    @property
    def _kinds(self) -> dict[str, tuple[str, Model]]:
        label = f"MLP {list(self.hidden)}"
        both = {"linear": ("linear", linear()), "mlp": (label, mlp(list(self.hidden)))}
        return both | {label: both["mlp"]}

    @property
    def _names(self) -> list[str]:
        return [way.name for way in contenders()] + [way.name for way in self.also]

    def identity(self, federation: Federation) -> str:
        """Of all that a finished part depends on: with other minutes the same parts serve, with other rows none."""
        candidates = [
            (way.name, [(c.algorithm.name, _plain(c.algorithm), repr(c.finetune)) for c in way.candidates])
            for way in self.ways
        ]
        about = [federation.digest(), self.splits, self.rounds, self.seed, self.l2, [*self.kinds], candidates]
        return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()


def loss_for(federation: Federation) -> str:
    """The loss that a federation's labels ask for."""
    if federation.classes is not None:
        return "softmax"
    values = federation.label_values()
    return "logistic" if len(values) == 2 and set(values.tolist()) == {-1, 1} else "squared"


def _plain(algorithm: Any) -> JsonObject:
    return {name: plain_value(value) for name, value in vars(algorithm).items()}


def read_advice_config(path: Path) -> tuple[JsonObject, AdviceSettings]:
    """The section [data] of a config for `polyfed advise`, and what [advise] says."""
    try:
        sections = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise PolyfedError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise PolyfedError(f"{path}: not valid TOML: {error}") from None
    for name in sections:
        if name not in SECTIONS:
            raise PolyfedError(f"{path}: unknown section [{name}]{suggestion(name, SECTIONS)}")
    data = sections.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("source"), str):
        raise PolyfedError(f"{path}: data.source is missing; `polyfed data list` names the sources")
    if isinstance(data.get("path"), str):
        data = data | {"path": str((path.parent / data["path"]).resolve())}
    return data, advice_settings(sections.get("advise", {}), str(path))


def advice_settings(section: object, where: str) -> AdviceSettings:
    """Check the section [advise]; every mistake is named."""
    if not isinstance(section, Mapping):
        raise PolyfedError(f"{where}: advise must be a section, [advise]")
    known = [field.name for field in dataclasses.fields(AdviceSettings)]
    table: JsonObject = dict(section)
    for key in table:
        if key not in known:
            raise PolyfedError(f"{where}: unknown key advise.{key}{suggestion(str(key), known)}")
    for key in ("methods", "models", "hidden"):
        if key in table:
            if not isinstance(table[key], list):
                raise PolyfedError(f"{where}: advise.{key} must be a list, found {table[key]!r}")
            table[key] = tuple(table[key])
    also = table.get("also", [])
    if not isinstance(also, list) or not all(isinstance(entry, Mapping) for entry in also):
        raise PolyfedError(f"{where}: advise.also must be a list of tables, [[advise.also]]")
    table["also"] = tuple(_way(entry, f"advise.also[{place}]", where) for place, entry in enumerate(also))
    try:
        made = AdviceSettings(**table)
        made.check()
    except PolyfedError as error:
        raise PolyfedError(f"{where}: advise: {error}") from None
    return made


def _way(entry: JsonObject, section: str, where: str) -> Contender:
    """[[advise.also]]: a method whose listed hyper-parameters are its candidates, in all combinations."""
    options: JsonObject = dict(entry)
    label = options.pop("label", options.get("name"))
    if not isinstance(label, str) or not label.strip():
        raise PolyfedError(f"{where}: {section}.label must be a word, found {label!r}")
    lists = {key: value if isinstance(value, list) else [value] for key, value in options.items()}
    candidates = []
    for values in itertools.product(*lists.values()):
        chosen = dict(zip(lists, values, strict=True))
        tune = {key.removeprefix("finetune_"): chosen.pop(key) for key in FINETUNE if key in chosen}
        algorithm = algorithm_from(chosen, section, where)
        candidates.append(Candidate(algorithm, FineTune(**({"steps": 10, "batch": 20} | tune)) if tune else None))
    if len(candidates) != BUDGET:
        raise PolyfedError(
            f"{where}: {section} has {len(candidates)} candidates, expected {BUDGET}, as all others have; lists of "
            "hyper-parameters are tried in all combinations"
        )
    return Contender(label, label, tuple(candidates))
