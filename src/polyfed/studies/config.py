"""Configs: TOML with [data] [problem] [algorithm] [run] [privacy] [aggregate] [attack] [track] [tune], [[compare]].

Every key is checked; an error names the file, the key, what was found and what was expected.
"""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyfed import data
from polyfed.algorithms import FLIX, Local
from polyfed.algorithms.contract import REGISTRY, Algorithm, get_algorithm, hyper_parameters
from polyfed.algorithms.shared.local_work import Steps
from polyfed.algorithms.shared.mixture import MixtureMethod
from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.files import JsonObject
from polyfed.core.schedules import Decay, Inverse, InverseStep
from polyfed.engine.measure import FineTune
from polyfed.engine.privacy.mechanism import Privacy, privacy_settings
from polyfed.engine.robust.attack import Attack, attack_settings
from polyfed.engine.robust.settings import Aggregate, aggregate_settings
from polyfed.models import MODELS
from polyfed.problem.losses import LOSSES
from polyfed.problem.metrics import Metric
from polyfed.problem.problem import Problem
from polyfed.studies.run_settings import Draw, RunSettings, run_settings
from polyfed.studies.scoring import problem_metric
from polyfed.track.settings import Track, track_settings

if TYPE_CHECKING:
    from polyfed.studies.search_space import TunePlan

SECTIONS = ("data", "problem", "algorithm", "run", "privacy", "aggregate", "attack", "track", "tune", "compare")


@dataclass(frozen=True)
class Method:
    """One method of a config: its label and its algorithm; `finetune` deploys the fine-tuned global model."""

    label: str
    algorithm: Algorithm
    finetune: bool = False


@dataclass
class Config:
    """A checked config. `problem` is made from [data] and [problem] on first use."""

    data: JsonObject
    problem_section: JsonObject
    methods: list[Method]
    run: RunSettings
    where: str
    shared: JsonObject = field(default_factory=dict)
    tune: TunePlan | None = None
    privacy: Privacy | None = None
    aggregate: Aggregate | None = None
    attack: Attack | None = None
    track: Track | None = None
    _problem: Problem | None = None
    _federation: data.Federation | data.Population | None = None
    _redrawn: dict[int, Problem] = field(default_factory=dict)

    @property
    def problem(self) -> Problem:
        if self._problem is None:
            self._problem = self._build(self.federation)
        return self._problem

    def problem_of(self, draw: Draw) -> Problem:
        """The problem of one of a method's runs: its rows are split anew where `run.splits` says so."""
        if draw.split is None:
            return self.problem
        if draw.split not in self._redrawn:
            federation = self.federation
            if not isinstance(federation, data.Federation):
                raise PolyfedError(
                    f"{self.where}: run.splits needs the rows of all clients in memory; these are on demand"
                )
            with self.named():
                redrawn = federation.redrawn(draw.split)
            self._redrawn[draw.split] = self._build(redrawn)
        return self._redrawn[draw.split]

    @property
    def metric(self) -> Metric:
        """What tables, charts and the headline show."""
        return problem_metric(self.run.metric, self.problem, f"{self.where}: run.metric")

    @property
    def local(self) -> Algorithm:
        """Training alone: with the stepsize and the batches of [algorithm], as far as it names them.

        Where every method mixes in pure local models, those are it; its stepsize is then not one of local training.
        """
        mixtures = [method.algorithm for method in self.methods if isinstance(method.algorithm, MixtureMethod)]
        if mixtures and len(mixtures) == len(self.methods):
            return FLIX(alpha=0.0, lr=1.0, even=mixtures[0].even).trained_as(mixtures[0].local_training)
        given = {key: value for key, value in self.shared.items() if key in _hyper_parameters(Local.name)}
        return algorithm_from({**given, "name": Local.name}, "algorithm", self.where)

    def finetune(self, algorithm: Algorithm) -> FineTune | None:
        """How the fine-tuned model is made, for this algorithm."""
        if self.run.finetune_steps == 0:
            return None
        chosen = None if isinstance(algorithm, MixtureMethod) or not isinstance(algorithm, Steps) else algorithm.lr
        if isinstance(chosen, Decay):
            chosen = chosen.initial
        if self.run.finetune_lr is not None:
            chosen = self.run.finetune_lr
        lr = chosen if isinstance(chosen, int | float) else FineTune.lr
        return FineTune(self.run.finetune_steps, float(lr), self.run.finetune_batch)

    def resolved(self, method: Method) -> JsonObject:
        """All sections with every default filled in, for one method: what a run directory keeps."""
        algorithm = {"name": method.algorithm.name, "label": method.label, **as_table(method.algorithm)}
        if method.finetune:
            algorithm["finetune"] = True
        function = data.sources()[self.data["source"]][1]
        source = {"source": self.data["source"], **_defaults(function), **self.data}
        model = MODELS[self.problem_section["model"]]
        problem = {**_defaults(model), **self.problem_section, "loss": self.problem.loss.name, "l2": self.problem.l2}
        tables = {"data": source, "problem": problem, "algorithm": algorithm, "run": as_table(self.run)}
        chosen = {"privacy": self.privacy, "aggregate": self.aggregate, "attack": self.attack, "track": self.track}
        return tables | {name: as_table(owner) for name, owner in chosen.items() if owner is not None}

    @property
    def federation(self) -> data.Federation | data.Population:
        """The data that [data] describes."""
        if self._federation is None:
            options = dict(self.data)
            with self.named():
                self._federation = data.load(options.pop("source"), **options)
        return self._federation

    def _build(self, federation: data.Federation | data.Population) -> Problem:
        options = dict(self.problem_section)
        with self.named():
            model = MODELS[options.pop("model")]
            loss = options.pop("loss", None) or _natural_loss(federation)
            l2, weights = options.pop("l2", 0.0), options.pop("class_weight", None)
            return Problem(federation, model(**options), loss, l2, weights)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Within it, an error begins with the config's name."""
        try:
            yield
        except PolyfedError as error:
            said = str(error)  # a table's errors begin with its name, which is that of the config where there is none
            raise PolyfedError(said if said.startswith(f"{self.where}: ") else f"{self.where}: {said}") from None


def read_config(path: str | Path, changes: Sequence[str] = (), *, data_only: bool = False) -> Config:
    """Read a config file, with `section.key=value` changes on top; `data_only`: it need not name an algorithm."""
    path = Path(path)
    try:
        sections = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise PolyfedError(f"{path}: no such config file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise PolyfedError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise PolyfedError(f"{path}: not valid TOML: {error}") from None
    return make_config(sections, where=str(path), changes=changes, folder=path.parent, data_only=data_only)


def make_config(
    sections: JsonObject,
    *,
    where: str = "config",
    changes: Sequence[str] = (),
    folder: Path | None = None,
    data_only: bool = False,
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
            several = " (methods to compare are [[compare]])" if name == "algorithm" else ""
            raise PolyfedError(f"{where}: {name} must be a section, [{name}]{several}")
    source = _data(merged["data"], where, folder)
    problem = check_problem(merged["problem"], where)
    run = run_settings(merged["run"], where)
    if run.local_models is not None and folder is not None:
        run = dataclasses.replace(run, local_models=str((folder / run.local_models).resolve()))
    shared = merged["algorithm"]
    entries = merged.get("compare", [])
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise PolyfedError(f"{where}: compare must be a list of tables, [[compare]]")
    if entries:
        methods = [
            _method({**_fitting(shared, entry), **entry}, f"compare[{i}]", where) for i, entry in enumerate(entries)
        ]
        _check_shared(shared, entries, where)
    elif "name" in shared:
        methods = [_method(shared, "algorithm", where)]
    elif data_only:
        methods = []
    else:
        raise PolyfedError(f"{where}: algorithm.name is missing; `polyfed algorithms` lists the names")
    labels = [method.label for method in methods]
    for label in labels:
        if labels.count(label) > 1:
            raise PolyfedError(f"{where}: two [[compare]] entries are labelled '{label}'; give each its own label")
    privacy = privacy_settings(merged.get("privacy"), where)
    if privacy is not None and "tune" in merged:
        raise PolyfedError(f"{where}: [tune] does not go with [privacy]: what every candidate spends is not counted")
    aggregate, attack = aggregate_settings(merged.get("aggregate"), where), attack_settings(merged.get("attack"), where)
    if (aggregate or attack) and "tune" in merged:
        raise PolyfedError(f"{where}: [tune] does not go with [aggregate] or [attack]")
    tune = _tune(merged.get("tune"), methods, where)
    track = track_settings(merged.get("track"), where, folder)
    return Config(source, problem, methods, run, where, dict(shared), tune, privacy, aggregate, attack, track)


def algorithm_from(options: JsonObject, section: str = "algorithm", where: str = "config") -> Algorithm:
    """The algorithm that a section describes: its name and its hyper-parameters."""
    options = dict(options)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise PolyfedError(f"{where}: {section}.name is missing; `polyfed algorithms` lists the names")
    try:
        cls = get_algorithm(name)
        known = _hyper_parameters(name)
        for key in options:
            if key not in known:
                raise PolyfedError(f"unknown key {section}.{key} for {name}{suggestion(key, known)}")
        made = cls(**{key: hyper_parameter(value, f"{section}.{key}") for key, value in options.items()})
        made.check()
    except PolyfedError as error:
        raise PolyfedError(f"{where}: {error}") from None
    return made


def _method(options: JsonObject, section: str, where: str) -> Method:
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


def _tune(section: object, methods: Sequence[Method], where: str) -> TunePlan | None:
    if section is None:
        return None
    from polyfed.studies.search_space import tune_plan

    return tune_plan(section, {method.label: type(method.algorithm) for method in methods}, where)


def _fitting(shared: JsonObject, entry: JsonObject) -> JsonObject:
    """What of [algorithm] an entry of [[compare]] takes over: the keys that its algorithm has."""
    known = _hyper_parameters(entry.get("name"))
    return {key: value for key, value in shared.items() if key in known}


def _check_shared(shared: JsonObject, entries: Sequence[JsonObject], where: str) -> None:
    """Every key of [algorithm] must be one of some entry's algorithm."""
    known = set().union(*(_hyper_parameters(entry.get("name")) for entry in entries))
    for key in shared:
        if key not in known and key != "name":
            raise PolyfedError(f"{where}: no method of [[compare]] has algorithm.{key}{suggestion(key, known)}")


def _hyper_parameters(name: Any) -> set[str]:
    if name not in REGISTRY:
        return set()
    return {field.name for field in hyper_parameters(REGISTRY[name])}


def hyper_parameter(value: object, key: str) -> object:
    """A table {initial, rate}, {scale, offset} or {step_scale, step_offset} is a schedule; a list is a tuple."""
    if isinstance(value, Mapping) and key.endswith(".compressor"):
        return dict(value)
    if isinstance(value, Mapping):
        for kind in (Decay, Inverse, InverseStep):
            if set(value) == {f.name for f in dataclasses.fields(kind)}:
                return kind(**value)
        known = "{initial, rate}, {scale, offset} or {step_scale, step_offset}"
        raise PolyfedError(f"{key} must be a number, {known}, found {dict(value)}")
    return tuple(value) if isinstance(value, list) else value


def _data(section: JsonObject, where: str, folder: Path | None) -> JsonObject:
    if "source" not in section:
        raise PolyfedError(f"{where}: data.source is missing; `polyfed data list` names the sources")
    section = dict(section)
    if isinstance(section.get("path"), str) and folder is not None:
        section["path"] = str((folder / section["path"]).resolve())
    return section


def check_problem(section: JsonObject, where: str) -> JsonObject:
    """Check the section [problem]."""
    section = {"model": "linear", **section}
    if not isinstance(section["model"], str) or section["model"] not in MODELS:
        name = str(section["model"])
        raise PolyfedError(f"{where}: unknown problem.model '{name}'{suggestion(name, MODELS)}")
    if section.get("loss") is not None and str(section["loss"]) not in LOSSES:
        name = str(section["loss"])
        raise PolyfedError(f"{where}: unknown problem.loss '{name}'{suggestion(name, LOSSES)}")
    weights = section.get("class_weight", "balanced")
    if weights != "balanced" and not (isinstance(weights, list) and all(_is_number(weight) for weight in weights)):
        raise PolyfedError(
            f"{where}: problem.class_weight must be 'balanced' or a list with a number for each class, "
            f"found {weights!r}"
        )
    options = set(inspect.signature(MODELS[section["model"]]).parameters)
    known = {"model", "loss", "l2", "class_weight", *options}
    for key in section:
        if key not in known:
            raise PolyfedError(f"{where}: unknown key problem.{key} for {section['model']}{suggestion(key, known)}")
    return section


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _apply(sections: JsonObject, change: str) -> None:
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


def _natural_loss(federation: data.Federation | data.Population) -> str:
    """The loss that fits the targets: softmax for classes, logistic for +-1, squared for real numbers."""
    if federation.classes is not None:
        return "softmax"
    return "logistic" if set(map(float, set(federation.some_targets.tolist()))) <= {-1.0, 1.0} else "squared"


def _defaults(function: Callable[..., object]) -> JsonObject:
    """A function's optional arguments with their values, as TOML knows them: what is None is left out."""
    defaults = {}
    for name, parameter in inspect.signature(function).parameters.items():
        value = list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
        if isinstance(value, str | int | float | list):
            defaults[name] = value
    return defaults


def as_table(owner: Any) -> JsonObject:
    """A dataclass as a TOML table: what is None is left out."""
    table: JsonObject = {}
    for item in dataclasses.fields(owner):
        value = getattr(owner, item.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = dataclasses.asdict(value)
        if isinstance(value, tuple):
            value = list(value)
        if value is not None:
            table[item.name] = value if isinstance(value, str | int | float | bool | list | dict) else repr(value)
    return table
