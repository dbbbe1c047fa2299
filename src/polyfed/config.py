"""Configs: TOML with the sections [data] [problem] [algorithm] [run], and [[compare]] for several methods.

Every key is checked; an error names the file, the key, what was found and what was expected.
"""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyfed import data
from polyfed.algorithms.base import Algorithm, get_algorithm
from polyfed.engine.measure import FineTune
from polyfed.engine.participation import Bernoulli
from polyfed.errors import PolyfedError, suggestion
from polyfed.losses import LOSSES
from polyfed.models import MODELS
from polyfed.problem import Problem
from polyfed.schedules import Decay, Inverse

SECTIONS = ("data", "problem", "algorithm", "run", "compare")


@dataclass(frozen=True)
class RunSettings:
    """The section [run]."""

    rounds: int = 100
    """communication rounds"""
    participation: Any = 1.0
    """1.0 all clients, a share below 1, a whole number of clients, or {probability = q}"""
    seed: int = 0
    """of everything random in the run (the data has its own)"""
    seeds: tuple[int, ...] = ()
    """for `compare`: repeat every method with each of these seeds"""
    init: str | None = None
    """"zeros", "ones" or "random"; by default zeros for linear models, random for nets"""
    dtype: str = "float32"
    """"float32" or "float64" """
    eval_every: int = 5
    """rounds between evaluations"""
    checkpoint_every: int = 10
    """rounds between checkpoints"""
    alone: bool = True
    """also train every client alone for as many rounds, to tell who is better off"""
    finetune_steps: int = 10
    """steps of local fine-tuning of the global model, for its evaluation; 0: none"""
    finetune_lr: float | None = None
    """its stepsize; by default the algorithm's lr"""
    finetune_batch: int | str = 20
    """its rows per step, or "full" """
    save_models: bool = True
    """write the trained models to models/"""
    devices: int | None = None
    """devices to use; by default all"""
    chunk: int | None = None
    """clients that a device runs side by side; by default the engine's choice"""


@dataclass(frozen=True)
class Method:
    """One method of a config: its label and its algorithm; `finetune` deploys the fine-tuned global model."""

    label: str
    algorithm: Algorithm
    finetune: bool = False


@dataclass
class Config:
    """A checked config. `problem` is made from [data] and [problem] on first use."""

    data: dict[str, Any]
    problem_section: dict[str, Any]
    methods: list[Method]
    run: RunSettings
    where: str
    shared: dict[str, Any] = field(default_factory=dict)
    _problem: Problem | None = None

    @property
    def problem(self) -> Problem:
        if self._problem is None:
            self._problem = self._build()
        return self._problem

    def finetune(self, algorithm: Algorithm) -> FineTune | None:
        """How the fine-tuned model is made, for this algorithm."""
        if self.run.finetune_steps == 0:
            return None
        lr = self.run.finetune_lr
        if lr is None:
            chosen = getattr(algorithm, "lr", 0.05)
            lr = chosen.initial if isinstance(chosen, Decay) else chosen
        if not isinstance(lr, int | float) or lr <= 0:
            raise PolyfedError(f"{self.where}: run.finetune_lr must be given, a number above 0; found {lr!r}")
        return FineTune(self.run.finetune_steps, float(lr), self.run.finetune_batch)  # pyright: ignore

    def resolved(self, method: Method) -> dict[str, Any]:
        """All sections with every default filled in, for one method: what a run directory keeps."""
        algorithm = {"name": method.algorithm.name, **_plain(method.algorithm)}
        if method.finetune:
            algorithm["finetune"] = True
        problem = {"loss": self.problem.loss.name, "l2": self.problem.l2, **self.problem_section}
        return {"data": self.data, "problem": problem, "algorithm": algorithm, "run": _plain(self.run)}

    def _build(self) -> Problem:
        options = dict(self.data)
        try:
            federation = data.load(options.pop("source"), **options)
            options = dict(self.problem_section)
            model = MODELS[options.pop("model")]
            loss = options.pop("loss", None) or _natural_loss(federation)
            l2 = options.pop("l2", 0.0)
            return Problem(federation, model(**options), loss, l2)
        except PolyfedError as error:
            raise PolyfedError(f"{self.where}: {error}") from None


def read_config(path: str | Path, changes: Sequence[str] = ()) -> Config:
    """Read a config file, with `section.key=value` changes on top."""
    path = Path(path)
    try:
        sections = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise PolyfedError(f"{path}: no such config file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise PolyfedError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise PolyfedError(f"{path}: not valid TOML: {error}") from None
    return make_config(sections, where=str(path), changes=changes, folder=path.parent)


def make_config(
    sections: Mapping[str, Any], *, where: str = "config", changes: Sequence[str] = (), folder: Path | None = None
) -> Config:
    """Check the sections of a config and bring them together."""
    for name in sections:
        if name not in SECTIONS:
            raise PolyfedError(f"{where}: unknown section [{name}]{suggestion(name, SECTIONS)}")
    merged = {name: dict(s) if isinstance(s, Mapping) else s for name, s in sections.items()}
    for change in changes:
        _apply(merged, change)
    for name in ("data", "problem", "algorithm", "run"):
        if not isinstance(merged.setdefault(name, {}), dict):
            raise PolyfedError(f"{where}: {name} must be a section, [{name}]")
    source = _data(merged["data"], where, folder)
    problem = _problem(merged["problem"], where)
    run = _run(merged["run"], where)
    shared = merged["algorithm"]
    entries = merged.get("compare", [])
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise PolyfedError(f"{where}: compare must be a list of tables, [[compare]]")
    if entries:
        methods = [
            _method({**_fitting(shared, entry), **entry}, f"compare[{i}]", where) for i, entry in enumerate(entries)
        ]
    elif "name" in shared:
        methods = [_method(shared, "algorithm", where)]
    else:
        raise PolyfedError(f"{where}: algorithm.name is missing; `polyfed algorithms` lists the names")
    labels = [method.label for method in methods]
    for label in labels:
        if labels.count(label) > 1:
            raise PolyfedError(f"{where}: two [[compare]] entries are labelled '{label}'; give each its own label")
    return Config(source, problem, methods, run, where, dict(shared))


def algorithm_from(options: Mapping[str, Any], section: str = "algorithm", where: str = "config") -> Algorithm:
    """The algorithm that a section describes: its name and its hyper-parameters."""
    options = dict(options)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise PolyfedError(f"{where}: {section}.name is missing; `polyfed algorithms` lists the names")
    try:
        cls = get_algorithm(name)
        known = {f.name for f in dataclasses.fields(cls)}  # pyright: ignore[reportArgumentType]
        for key in options:
            if key not in known:
                raise PolyfedError(f"unknown key {section}.{key} for {name}{suggestion(key, known)}")
        made = cls(**{key: _schedule(value, f"{section}.{key}") for key, value in options.items()})
        made.check()
    except PolyfedError as error:
        raise PolyfedError(f"{where}: {error}") from None
    return made


def _method(options: Mapping[str, Any], section: str, where: str) -> Method:
    options = dict(options)
    label, finetune = options.pop("label", None), options.pop("finetune", False)
    if not isinstance(finetune, bool):
        raise PolyfedError(f"{where}: {section}.finetune must be true or false, found {finetune!r}")
    algorithm = algorithm_from(options, section, where)
    if label is None:
        label = algorithm.name + (" + fine-tuning" if finetune else "")
    if not isinstance(label, str) or not label.strip():
        raise PolyfedError(f"{where}: {section}.label must be a word, found {label!r}")
    return Method(label, algorithm, finetune)


def _fitting(shared: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """What of [algorithm] an entry of [[compare]] takes over: the keys that its algorithm has."""
    if not isinstance(entry.get("name"), str):
        return {}
    known = {f.name for f in dataclasses.fields(get_algorithm(entry["name"]))}  # pyright: ignore[reportArgumentType]
    return {key: value for key, value in shared.items() if key in known}


def _schedule(value: Any, key: str) -> Any:
    """A table {initial, rate} or {scale, offset} is a schedule; a list is a tuple."""
    if isinstance(value, Mapping):
        for kind in (Decay, Inverse):
            if set(value) == {f.name for f in dataclasses.fields(kind)}:
                return kind(**value)
        raise PolyfedError(f"{key} must be a number, {{initial, rate}} or {{scale, offset}}, found {dict(value)}")
    return tuple(value) if isinstance(value, list) else value


def _data(section: dict[str, Any], where: str, folder: Path | None) -> dict[str, Any]:
    if "source" not in section:
        raise PolyfedError(f"{where}: data.source is missing; `polyfed data list` names the sources")
    section = dict(section)
    if isinstance(section.get("path"), str) and folder is not None:
        section["path"] = str((folder / section["path"]).resolve())
    return section


def _problem(section: dict[str, Any], where: str) -> dict[str, Any]:
    section = {"model": "linear", **section}
    if section["model"] not in MODELS:
        name = str(section["model"])
        raise PolyfedError(f"{where}: unknown problem.model '{name}'{suggestion(name, MODELS)}")
    if section.get("loss") is not None and section["loss"] not in LOSSES:
        name = str(section["loss"])
        raise PolyfedError(f"{where}: unknown problem.loss '{name}'{suggestion(name, LOSSES)}")
    options = set(inspect.signature(MODELS[section["model"]]).parameters)
    known = {"model", "loss", "l2", *options}
    for key in section:
        if key not in known:
            raise PolyfedError(f"{where}: unknown key problem.{key} for {section['model']}{suggestion(key, known)}")
    return section


def _run(section: dict[str, Any], where: str) -> RunSettings:
    section = dict(section)
    hints = typing.get_type_hints(RunSettings)
    for key, value in section.items():
        if key not in hints:
            raise PolyfedError(f"{where}: unknown key run.{key}{suggestion(key, hints)}")
        if key == "participation" and isinstance(value, Mapping):
            if set(value) != {"probability"}:
                raise PolyfedError(
                    f"{where}: run.participation must be a number or {{probability = q}}, found {dict(value)}"
                )
            section[key] = Bernoulli(value["probability"])
        elif key == "seeds":
            section[key] = _seeds(value, where)
        elif not _fits(value, hints[key]):
            wanted = " or ".join(_type_names(hints[key]))
            raise PolyfedError(f"{where}: run.{key} must be {wanted}, found {value!r}")
    settings = RunSettings(**section)
    for key, low in (("rounds", 1), ("eval_every", 1), ("checkpoint_every", 1), ("finetune_steps", 0)):
        if getattr(settings, key) < low:
            raise PolyfedError(f"{where}: run.{key} must be at least {low}, found {getattr(settings, key)}")
    if settings.dtype not in ("float32", "float64"):
        raise PolyfedError(f"{where}: run.dtype must be float32 or float64, found {settings.dtype!r}")
    if settings.init not in (None, "zeros", "ones", "random"):
        raise PolyfedError(f"{where}: run.init must be zeros, ones or random, found {settings.init!r}")
    return settings


def _seeds(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(isinstance(seed, int) and not isinstance(seed, bool) for seed in value):
        raise PolyfedError(f"{where}: run.seeds must be a list of whole numbers, found {value!r}")
    if len(set(value)) < len(value):
        raise PolyfedError(f"{where}: run.seeds repeats a seed: {value}")
    return tuple(value)


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if isinstance(value, bool):
        return bool in options
    return isinstance(value, tuple(options)) or (float in options and isinstance(value, int))


def _type_names(hint: Any) -> list[str]:
    words = {int: "a whole number", float: "a number", str: "a word", bool: "true or false"}
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return [words[option] for option in options if option in words]


def _apply(sections: dict[str, Any], change: str) -> None:
    """Apply one `section.key=value`."""
    key, separator, text = change.partition("=")
    parts = key.strip().split(".")
    if not separator or len(parts) < 2 or not all(parts):
        raise PolyfedError(f"--set {change}: expected section.key=value")
    if parts[0] not in SECTIONS or parts[0] == "compare":
        raise PolyfedError(f"--set {change}: unknown section '{parts[0]}'{suggestion(parts[0], SECTIONS[:-1])}")
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    place = sections.setdefault(parts[0], {})
    for part in parts[1:-1]:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise PolyfedError(f"--set {change}: {part} is not a table")
    place[parts[-1]] = value


def _natural_loss(federation: data.Federation) -> str:
    """The loss that fits the targets: softmax for classes, logistic for +-1, squared for real numbers."""
    if federation.classes is not None:
        return "softmax"
    return "logistic" if set(map(float, set(federation.train.y.ravel()[:1000].tolist()))) <= {-1.0, 1.0} else "squared"


def _plain(owner: Any) -> dict[str, Any]:
    """A dataclass as a TOML table: what is None is left out."""
    found: dict[str, Any] = {}
    for item in dataclasses.fields(owner):
        value = getattr(owner, item.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = dataclasses.asdict(value)
        if isinstance(value, tuple):
            value = list(value)
        if value is not None:
            found[item.name] = value if isinstance(value, str | int | float | bool | list | dict) else repr(value)
    return found
