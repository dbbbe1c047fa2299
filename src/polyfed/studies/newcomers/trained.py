"""What a newcomer needs of a run: the resolved method, the server's state, the model, and what its data looks like."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError

from polyfed.algorithms.contract import Algorithm, Server, get_algorithm
from polyfed.compress import COMPRESSORS
from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject, owner_only, write_text
from polyfed.core.schedules import Decay, Inverse, InverseStep
from polyfed.engine.checkpoint.tensors import load_tree, save_tree
from polyfed.engine.measure import FineTune
from polyfed.engine.simulation import Simulation, as_traced
from polyfed.models import MODELS, Model
from polyfed.problem.problem import DType, precision
from polyfed.studies.newcomers.fitting import DataKind
from polyfed.studies.run_directory import find_runs, read_run

FORMAT = 1
FOLDER = "server"
PARTS: dict[str, Callable[..., object]] = {
    kind.__name__: kind for kind in (Decay, Inverse, InverseStep, *COMPRESSORS.values())
}
"""What a hyper-parameter may be made of, by name."""


@dataclass(frozen=True)
class Trained:
    """A run as a newcomer meets it."""

    method: Algorithm
    server: Server
    model: Model
    loss: str
    l2: float
    data: DataKind
    round: int
    seed: int
    dtype: DType
    finetune: FineTune | None = None
    """The rule, where what clients deploy is the fine-tuned global model."""
    class_weight: Sequence[float] | None = None

    @classmethod
    def of(cls, simulation: Simulation, finetune: FineTune | None = None) -> Trained:
        problem = simulation.problem
        return cls(
            simulation.method,
            simulation.server,
            problem.model,
            problem.loss.name,
            problem.l2,
            DataKind.of(problem.federation, problem.loss.name),
            simulation.round,
            simulation.seed,
            simulation.dtype,
            finetune,
            None if problem.class_weight is None else problem.class_weight.tolist(),
        )


def save(folder: Path, trained: Trained) -> None:
    """Write `server/` into a run's folder: the server's state, and method.json, which names the rest."""
    place = folder / FOLDER
    shutil.rmtree(place, ignore_errors=True)
    owner_only(place)
    save_tree(place / "state.safetensors", trained.server)
    about = {
        "format": FORMAT,
        "algorithm": trained.method.name,
        "hyper_parameters": {name: to_json(value) for name, value in vars(trained.method).items()},
        "round": trained.round,
        "seed": trained.seed,
        "dtype": trained.dtype,
        "finetune": None if trained.finetune is None else dataclasses.asdict(trained.finetune),
        "data": dataclasses.asdict(trained.data),
        "class_weight": trained.class_weight,
    }
    write_text(place / "method.json", json.dumps(about, indent=1) + "\n")


def read(path: str | Path) -> Trained:
    """The run of a directory, or an error that says why nobody can join it."""
    path = Path(path)
    runs = find_runs(path) if path.is_dir() and not (path / "config.toml").is_file() else [path]
    if len(runs) > 1 or runs[0] != path:
        raise PolyfedError(f"{path}: a folder of runs, expected one of them, such as {runs[0]}")
    record = read_run(path)
    if record.summary.get("diverged"):
        raise PolyfedError(f"{path}: this run diverged, so that it has no model to start from")
    if not (path / FOLDER / "method.json").is_file():
        raise PolyfedError(
            f"{path}: the server's state is missing; runs keep it in {FOLDER}/ unless run.save_models is false"
        )
    try:
        return restored(path / FOLDER, record.config["problem"])
    except (OSError, KeyError, TypeError, json.JSONDecodeError, SafetensorError) as error:
        raise PolyfedError(f"{path / FOLDER}: cannot be read: {error}") from None


def restored(folder: Path, section: JsonObject) -> Trained:
    """Read what `save` wrote; `section` is [problem] of the run's config."""
    about = json.loads((folder / "method.json").read_text())
    if about["format"] != FORMAT:
        raise PolyfedError(f"{folder}: format {about['format']!r}, this version reads {FORMAT}")
    hyper = {name: from_json(value) for name, value in about["hyper_parameters"].items()}
    method = get_algorithm(about["algorithm"])(**hyper)
    data = DataKind.from_json(about["data"])
    options = dict(section)
    options.pop("class_weight", None)  # the numbers that follow from it are known
    architecture, loss, l2 = MODELS[options.pop("model")], options.pop("loss"), options.pop("l2")
    model = architecture(**options).build(data.features, data.outputs)
    with precision(about["dtype"]):
        params = jax.eval_shape(model.init, jax.random.key(0))
        shapes = jax.eval_shape(as_traced(method).init_server, params)
        like = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        server = load_tree(folder / "state.safetensors", like)
    finetune = None if about["finetune"] is None else FineTune(**about["finetune"])
    return Trained(
        method,
        server,
        model,
        loss,
        l2,
        data,
        about["round"],
        about["seed"],
        about["dtype"],
        finetune,
        about.get("class_weight"),
    )


def to_json(value: object) -> Any:
    """A hyper-parameter as JSON: schedules, compressors and arrays say what they are."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, **{name: to_json(inner) for name, inner in vars(value).items()}}
    if isinstance(value, np.ndarray):
        return {"kind": "array", "values": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    return list(value) if isinstance(value, tuple) else value


def from_json(value: object) -> Any:
    """The way back from `to_json`."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, dict) or "kind" not in value:
        return value
    inner = {name: from_json(part) for name, part in value.items() if name != "kind"}
    if value["kind"] == "array":
        return np.asarray(value["values"])
    return PARTS[value["kind"]](**inner)
