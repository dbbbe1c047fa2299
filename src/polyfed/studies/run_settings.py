"""The section [run] of a config: its keys, their defaults, and their checks."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypedDict

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.files import JsonObject
from polyfed.core.precision import Compute, narrow_type
from polyfed.engine.participation import Bernoulli
from polyfed.engine.states.in_waves import STORES, Store
from polyfed.problem.problem import DType


class EngineOptions(TypedDict):
    """Arguments of `simulate_all` that a config says once for all of its runs."""

    init: Literal["zeros", "ones", "random"] | None
    dtype: DType
    compute: Compute | None
    devices: int | None
    chunk: int | None
    store: Store
    local_models: str | None


class Draw(NamedTuple):
    """What one of the runs of a method has of its own: its seed and, where rows are split several times, its split."""

    seed: int
    split: int | None = None

    @property
    def folder(self) -> str:
        """The name of its run directory."""
        return f"seed-{self.seed}" if self.split is None else f"split-{self.split}"


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
    splits: int = 1
    """draw train, validation and test rows so many times, the same draws for every method, each with its own seed"""
    metric: str | None = None
    """what tables, charts and the headline show; by default AUC for two classes, accuracy for more, RMSE for numbers"""
    init: Literal["zeros", "ones", "random"] | None = None
    """"zeros", "ones" or "random"; by default zeros for linear models, random for nets"""
    dtype: Literal["float32", "float64"] = "float32"
    """"float32" or "float64" """
    compute: Compute | None = None
    """"bfloat16": models compute in it in local training, with weights and all else in float32; by default the dtype"""
    eval_every: int = 5
    """rounds between evaluations"""
    eval_clients: int | None = None
    """evaluate so many clients, the same sample for every seed; by default all"""
    checkpoint_every: int = 10
    """rounds between checkpoints"""
    alone: bool = True
    """also train every client alone for as many rounds, to tell who is better off"""
    finetune_steps: int = 10
    """steps of local fine-tuning of the global model, for its evaluation; 0: none"""
    finetune_lr: float | None = None
    """its stepsize; by default the algorithm's lr where that is a number, else 0.05"""
    finetune_batch: int | Literal["full"] = 20
    """its rows per step, or "full" """
    adapt_on_test: bool = False
    """measure adapted and fine-tuned models after steps on test rows, as some papers do: leaks labels, and is marked"""
    save_models: bool = True
    """write the trained models to models/"""
    devices: int | None = None
    """devices to use, of each process; by default all"""
    chunk: int | None = None
    """clients that a device runs side by side; by default the engine's choice"""
    store: Literal["auto", "device", "host", "disk"] = "auto"
    """where clients' states are kept: "device", "host" (memory), "disk", or "auto", the first that has room"""
    local_models: str | None = None
    """the folder of a bank: pure local models are made once, and shared by all runs; by default every run's own"""

    @property
    def draws(self) -> tuple[Draw, ...]:
        """The runs of a method: one for each seed or, where rows are split several times, one for each split."""
        if self.splits == 1:
            return tuple(Draw(seed) for seed in self.seeds or (self.seed,))
        seeds = self.seeds or range(self.seed, self.seed + self.splits)
        return tuple(Draw(seed, split) for split, seed in enumerate(seeds))

    @property
    def engine(self) -> EngineOptions:
        """What every run of this config takes, whatever its method and its seed."""
        return {
            "init": self.init,
            "dtype": self.dtype,
            "compute": self.compute,
            "devices": self.devices,
            "chunk": self.chunk,
            "store": self.store,
            "local_models": self.local_models,
        }


def run_settings(section: JsonObject, where: str) -> RunSettings:
    """Check the section [run]; every mistake is named."""
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
    least = {"rounds": 1, "eval_every": 1, "checkpoint_every": 1, "finetune_steps": 0, "splits": 1}
    for key, low in least.items():
        if getattr(settings, key) < low:
            raise PolyfedError(f"{where}: run.{key} must be at least {low}, found {getattr(settings, key)}")
    if settings.splits == 2:
        raise PolyfedError(
            f"{where}: run.splits = 2 says nothing of how sure a gain is; take 1, or at least 3 (10 is usual)"
        )
    if settings.splits > 1 and settings.seeds and len(settings.seeds) != settings.splits:
        raise PolyfedError(
            f"{where}: run.splits = {settings.splits}, but run.seeds has {len(settings.seeds)}; every split has a seed "
            "of its own: list as many, or none"
        )
    if settings.eval_clients is not None and settings.eval_clients < 1:
        raise PolyfedError(f"{where}: run.eval_clients must be at least 1, found {settings.eval_clients}")
    batch = settings.finetune_batch
    if batch != "full" and (isinstance(batch, str) or batch < 1):
        raise PolyfedError(f"{where}: run.finetune_batch must be a whole number above 0 or 'full', found {batch!r}")
    if settings.finetune_lr is not None and not settings.finetune_lr > 0:
        raise PolyfedError(f"{where}: run.finetune_lr must be above 0, found {settings.finetune_lr}")
    if settings.dtype not in ("float32", "float64"):
        raise PolyfedError(f"{where}: run.dtype must be float32 or float64, found {settings.dtype!r}")
    narrow_type(settings.compute, settings.dtype, f"{where}: run.compute")
    if settings.store not in STORES:
        raise PolyfedError(f"{where}: run.store must be one of {', '.join(STORES)}, found {settings.store!r}")
    if settings.init not in (None, "zeros", "ones", "random"):
        raise PolyfedError(f"{where}: run.init must be zeros, ones or random, found {settings.init!r}")
    return settings


def _seeds(value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(isinstance(seed, int) and not isinstance(seed, bool) for seed in value):
        raise PolyfedError(f"{where}: run.seeds must be a list of whole numbers, found {value!r}")
    if len(set(value)) < len(value):
        raise PolyfedError(f"{where}: run.seeds repeats a seed: {value}")
    return tuple(value)


def _fits(value: object, hint: object) -> bool:
    if hint is Any:
        return True
    options = _kinds(hint)
    if isinstance(value, bool):
        return bool in options
    return isinstance(value, tuple(options)) or (float in options and isinstance(value, int))


def _type_names(hint: object) -> list[str]:
    words = {int: "a whole number", float: "a number", str: "a word", bool: "true or false"}
    return [words[option] for option in _kinds(hint) if option in words]


def _kinds(hint: Any) -> tuple[type, ...]:
    """The types that a value may have: a choice of words is a word."""
    parts = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    return tuple(dict.fromkeys(str if typing.get_origin(part) is Literal else part for part in parts))
