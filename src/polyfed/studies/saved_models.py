"""A run's models as files that are complete: weights, and one JSON with all that it takes to score new rows."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import ArrayLike
from safetensors import SafetensorError

from polyfed import __version__
from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.files import JsonObject, owner_only, write_text
from polyfed.data import Federation
from polyfed.data.tables.preparation import Preparation
from polyfed.engine import hosts
from polyfed.engine.checkpoint.tensors import load_row, load_tree, save_rows, save_tree
from polyfed.engine.finetuned import finetuned_blocks
from polyfed.engine.measure import FineTune
from polyfed.engine.simulation import Simulation
from polyfed.export import export_model
from polyfed.models import MODELS, Model, Params
from polyfed.problem.prediction import LINKS, Label, Predictor, labels_of
from polyfed.problem.problem import DType, Problem, precision
from polyfed.studies.run_directory import find_runs

if TYPE_CHECKING:
    from pandas import DataFrame

FORMAT = 1
FOLDER = "models"
OWN = "own"
"""What stands in the place of a model's name where no name makes it."""
ABOUT, GLOBAL, PERSONAL = "model.json", "global.safetensors", "personal.safetensors"


def write_models(folder: Path, simulation: Simulation, finetune: FineTune | None = None) -> None:
    """models/global.safetensors and, where clients differ, models/personal.safetensors: its first axis is the clients.

    Those that were evaluated, in the order of clients.csv. `finetune`: they deploy the fine-tuned global model.
    """
    blocks: Iterable[Any] | None = simulation.personal_blocks() if simulation.facts.personalizes else None
    if finetune is not None:
        blocks = finetuned_blocks(simulation, finetune) if simulation.layout.hosts == 1 else None
    if not hosts.is_first():
        deque(blocks or (), maxlen=0)  # to have them sent
        return
    owner_only(folder)
    shared = simulation.global_params
    if shared is not None:
        save_tree(folder / GLOBAL, shared)
    if blocks is not None:
        save_rows(folder / PERSONAL, blocks, len(simulation.evaluated))


def write_about(folder: Path, simulation: Simulation, label: str, section: JsonObject, *, finetuned: bool) -> None:
    """model.json beside the weights; `section` is [problem] of the run's resolved config.

    `finetuned`: clients deploy the fine-tuned global model.
    """
    problem, data = simulation.problem, simulation.problem.federation
    try:
        labels = labels_of(problem)
    except PolyfedError:  # of tags and sequences, which nothing predicts
        labels = None
    about = saved_about(
        problem,
        simulation.dtype,
        method={"name": simulation.method.name, "label": label, "round": simulation.round},
        section=section,
        labels=labels,
        preparation=data.preparation if isinstance(data, Federation) else None,
        columns={key: data.source.get(key) for key in ("client", "target")},
        clients=[str(data.clients[client]) for client in simulation.evaluated.tolist()],
        deploys="personal" if simulation.facts.personalizes or finetuned else "global",
    )
    write_saved_about(folder, about, [GLOBAL, PERSONAL])


def saved_about(
    problem: Problem,
    dtype: DType,
    *,
    method: JsonObject,
    section: JsonObject,
    labels: tuple[Label, ...] | None,
    preparation: Preparation | None,
    columns: JsonObject,
    clients: Sequence[str],
    deploys: str,
) -> JsonObject:
    """What model.json says, but for the weights."""
    return {
        "format": FORMAT,
        "polyfed": __version__,
        "method": method,
        "problem": section,
        "loss": problem.loss.name,
        "link": LINKS.get(problem.loss.name),
        "labels": labels,
        "data": {
            "features": problem.federation.feature_shape,
            "outputs": problem.loss.outputs(problem.federation),
            "type": problem.federation.like.x.dtype.name,
            "digest": problem.fingerprint,
        },
        "columns": columns,
        "preparation": None if preparation is None else preparation.to_json(),
        "dtype": dtype,
        "deploys": deploys,
        "clients": list(clients),
    }


def write_saved_about(folder: Path, about: JsonObject, weights: Iterable[str]) -> None:
    """Write model.json; it has a digest of every file of weights in the folder."""
    digests = {name: _digest(folder / name) for name in weights if (folder / name).is_file()}
    about = json.loads(json.dumps({**about, "weights": digests}))
    write_text(folder / ABOUT, json.dumps({**about, "checksum": _checksum(about)}, indent=1) + "\n")


@dataclass(frozen=True)
class SavedModels:
    """The models of a run, read from its folder."""

    path: Path
    about: JsonObject
    predictor: Predictor

    @property
    def clients(self) -> list[str]:
        """Those who have a model here."""
        return list(self.about["clients"])

    @property
    def client_column(self) -> str | None:
        """The column that said whose row it is, if the run's data was a table."""
        return self.about["columns"]["client"]

    @property
    def preparation(self) -> Preparation | None:
        return self.predictor.preparation

    def personal(self, client: str) -> Params:
        """The model that a client deploys."""
        if client not in self.clients:
            raise PolyfedError(f"{self.path}: there is no client {client!r}{suggestion(str(client), self.clients)}")
        if "site_model" in self.about:  # of a site, which has one model of each kind
            with self._reading(self.about["site_model"]) as file:
                return load_tree(file, self._like)
        if self.about["deploys"] == "global":
            return self.global_params
        if PERSONAL not in self.about["weights"]:
            raise PolyfedError(f"{self.path}: a run of several processes, which keeps no fine-tuned models")
        with self._reading(PERSONAL) as file:
            return load_row(file, self._like, self.clients.index(client))

    @property
    def global_params(self) -> Params:
        """The global model."""
        if GLOBAL not in self.about["weights"]:
            raise PolyfedError(f"{self.path}: {self.about['method']['label']} has no global model")
        with self._reading(GLOBAL) as file:
            return load_tree(file, self._like)

    def predict(self, client: str | None, rows: DataFrame | ArrayLike) -> DataFrame:
        """What a client's model (None: the global one) says of new rows: see `Predictor.predict`."""
        params = self.global_params if client is None else self.personal(client)
        return self.predictor.predict(params, rows, client)

    def export(self, path: str | Path, client: str | None) -> list[Path]:
        """A client's model (None: the global one) for other programs: see `export_model`."""
        params = self.global_params if client is None else self.personal(client)
        facts = {"client": client, "method": self.about["method"]["label"], "data": self.about["data"]["digest"]}
        return export_model(path, self.predictor, params, facts)

    def predict_each(self, owners: Iterable[str], rows: DataFrame) -> DataFrame:
        """Every row by the model of its own client."""
        import pandas as pd

        of = np.asarray(list(owners), dtype=object)
        parts = [self.predict(name, rows.iloc[np.flatnonzero(of == name)]) for name in dict.fromkeys(of.tolist())]
        places = [np.flatnonzero(of == name) for name in dict.fromkeys(of.tolist())]
        whole = pd.concat(parts) if parts else self.predict(self.clients[0], rows)
        return whole.iloc[np.argsort(np.concatenate(places))] if places else whole

    @cached_property
    def _like(self) -> Params:
        """Parameters of the model's shapes."""
        with precision(self.about["dtype"]):
            shapes = jax.eval_shape(_model(self.about).init, jax.random.key(0))
        return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)

    def _reading(self, name: str) -> _Reading:
        return _Reading(_folder(self.path) / name, self.about["weights"][name])


class _Reading:
    """Within it a file of weights is read; a damaged one is refused by name."""

    def __init__(self, file: Path, digest: str) -> None:
        self.file, self.digest = file, digest

    def __enter__(self) -> Path:
        if not self.file.is_file():
            raise PolyfedError(f"{self.file}: no such file, though {ABOUT} names it")
        if _digest(self.file) != self.digest:
            raise PolyfedError(f"{self.file}: damaged, or of another run: its checksum is not the one in {ABOUT}")
        return self.file

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, SafetensorError):
            raise PolyfedError(f"{self.file}: cannot be read: {error}") from None


def load(run: str | Path) -> SavedModels:
    """The models of a run's folder, ready to score rows; a damaged file, or one of another version, is refused."""
    about, path = read_about(run), Path(run)
    try:
        return SavedModels(path, about, _predictor(about))
    except (KeyError, TypeError, AttributeError) as error:
        raise PolyfedError(f"{_folder(path) / ABOUT}: cannot be read as a saved model: {error!r}") from None
    except PolyfedError as error:
        raise PolyfedError(f"{_folder(path) / ABOUT}: {error}") from None


def read_about(run: str | Path) -> JsonObject:
    """The model.json of a run's folder."""
    path = Path(run)
    file = _folder(path) / ABOUT
    if not file.is_file():
        if not path.exists():
            raise PolyfedError(f"{path}: no such folder, expected that of a finished run")
        if (path / "advice.json").is_file():
            raise PolyfedError(f"{path}: an advice without its models; `polyfed advise` writes them with --resume")
        if path.is_dir() and not (path / "config.toml").is_file():
            raise PolyfedError(f"{path}: a folder of runs, expected one of them, such as {find_runs(path)[0]}")
        raise PolyfedError(f"{path}: no {FOLDER}/{ABOUT}; a finished run has it unless run.save_models is false")
    try:
        about = json.loads(file.read_text())
        found = about.pop("checksum")
        if about["format"] == FORMAT and found != _checksum(about):
            raise PolyfedError(f"{file}: damaged, its checksum is not its own")
        if about["format"] != FORMAT:
            raise PolyfedError(
                f"{file}: format {about['format']!r} of polyfed {about['polyfed']}, this version reads {FORMAT}"
            )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, PolyfedError):
            raise
        raise PolyfedError(f"{file}: cannot be read as a saved model: {error!r}") from None
    return about


def _folder(path: Path) -> Path:
    """Where a run's models are: in its folder `models`, or, of a site, in the path itself."""
    return path if (path / ABOUT).is_file() else path / FOLDER


def _predictor(about: JsonObject) -> Predictor:
    preparation = None if about["preparation"] is None else Preparation.from_json(about["preparation"])
    labels: tuple[Label, ...] | None = None if about["labels"] is None else tuple(about["labels"])
    if about["link"] is None or (labels is None and about["link"] != "identity"):
        raise PolyfedError("rows with several labels at once are not predicted")
    features = tuple(about["data"]["features"])
    kind = about["data"].get("type", "float64")
    return Predictor(_model(about), about["loss"], labels, features, preparation, about["dtype"], kind)


def _model(about: JsonObject) -> Model:
    options = {key: value for key, value in about["problem"].items() if key not in ("loss", "l2", "class_weight")}
    name = options.pop("model")
    if name == OWN:
        raise PolyfedError("a model of one's own, whose code a folder does not hold; export it as a .jax file instead")
    architecture = MODELS[name](**options)
    built = architecture.build(tuple(about["data"]["features"]), about["data"]["outputs"])
    return replace(built, family=architecture)


def _digest(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _checksum(about: JsonObject) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
