"""`result.save`: a run that was made in Python, in a folder like those of `polyfed run`."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject, check_folder
from polyfed.engine.participation import Bernoulli, Sampling
from polyfed.engine.result import Result
from polyfed.models import MODELS, Architecture
from polyfed.studies.config import Config, Method, as_table
from polyfed.studies.experiment import RunWriter, doubts_of, write_outcome
from polyfed.studies.run_outcome import measure_scores, run_outcome
from polyfed.studies.run_settings import Draw, RunSettings
from polyfed.studies.saved_models import FOLDER, write_models


@dataclass
class PythonConfig(Config):
    """Of a run that no config file describes: what is known of it, in the same sections."""

    def resolved(self, method: Method) -> JsonObject:
        algorithm = {"name": method.algorithm.name, "label": method.label, **as_table(method.algorithm)}
        source = {key: value for key, value in self.data.items() if isinstance(value, str | int | float | bool)}
        problem = {**self.problem_section, "loss": self.problem.loss.name, "l2": self.problem.l2}
        if self.problem.class_weight is not None:
            problem["class_weight"] = self.problem.class_weight.tolist()
        return {"data": source, "problem": problem, "algorithm": algorithm, "run": as_table(self.run)}


def save_result(result: Result, folder: str | Path) -> Path:
    """Write a run's folder; models of one's own are kept as weights alone, as a folder cannot hold their code."""
    folder, simulation, problem = Path(folder), result.simulation, result.problem
    check_folder(folder)
    if (folder / "metrics.jsonl").exists():
        raise PolyfedError(f"{folder}: there is a run already; take another folder")
    if simulation.layout.hosts > 1:
        raise PolyfedError("a run of several processes is saved by `polyfed run`, not from Python")
    settings = RunSettings(
        rounds=max(simulation.round, 1),
        seed=simulation.seed,
        dtype=simulation.dtype,
        compute=None if simulation.compute == simulation.dtype else simulation.compute,
        eval_every=max([1, *np.diff([row["round"] for row in result.rows[:2]]).tolist()]),
        participation=_participation(simulation.sampling),
        eval_clients=None if len(simulation.evaluated) == len(problem) else len(simulation.evaluated),
        alone=False,
        finetune_steps=0,
    )
    data = {"source": "python", **problem.federation.source}
    data["source"] = data.pop("name", data["source"])
    method = Method(result.algorithm.name, result.algorithm)
    config = PythonConfig(data, model_section(problem.model.family), [method], settings, "result.save")
    config._problem = problem
    draw = Draw(simulation.seed)
    outcome = run_outcome(config, method, draw, result, None)
    gains = measure_scores(config, method, [outcome])
    with RunWriter(folder, config, method, simulation.seed, []) as writer:
        for row in result.rows:
            writer.write(row)
        writer.open()
        writer.shares.finish()
    write_models(folder / FOLDER, simulation)
    write_outcome(folder, config, method, outcome, gains, 0, problem.cautions, doubts_of(outcome))
    return folder


def model_section(family: Architecture | None) -> JsonObject:
    """The keys of [problem] that describe a model; "own" where nothing but its code does."""
    if family is None:
        return {"model": "own"}
    name = getattr(family, "name", None) or next(
        name for name, make in MODELS.items() if type(make()) is type(family) and not hasattr(family, "name")
    )
    options = {key: getattr(family, key) for key in inspect.signature(MODELS[name]).parameters}
    listed = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    return {"model": name, **{key: value for key, value in listed.items() if value is not None}}


def _participation(sampling: Sampling) -> Any:
    if sampling.probability is not None:
        return Bernoulli(sampling.probability)
    return 1.0 if sampling.full else sampling.capacity
