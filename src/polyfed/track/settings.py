"""The section [track] of a config."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.files import JsonObject, slug
from polyfed.engine.callbacks import Callback
from polyfed.track.mlflow import MLflow
from polyfed.track.tensorboard import TensorBoard
from polyfed.track.wandb import WandB

MODES = ("online", "offline", "disabled")


@dataclass(frozen=True)
class Track:
    """The section [track]: which trackers are told of every run."""

    tensorboard: str | None = None
    """a folder for TensorBoard, relative to the config; every run has one of its own in it"""
    mlflow: str | None = None
    """MLflow's tracking URI: a server, `sqlite:///mlflow.db`, or a folder"""
    wandb: str | None = None
    """a project of Weights & Biases"""
    experiment: str = "polyfed"
    """MLflow's name for what belongs together"""
    mode: str | None = None
    """for Weights & Biases: "online", "offline" or "disabled"; by default what its own settings say"""

    def callbacks(self, label: str, draw: str) -> list[Callback]:
        """Those of one run of a method; `draw` names it among the method's runs."""
        name, made = f"{label} {draw}", []
        if self.tensorboard is not None:
            made.append(TensorBoard(Path(self.tensorboard) / slug(label) / draw))
        if self.mlflow is not None:
            made.append(MLflow(self.mlflow, self.experiment, name))
        if self.wandb is not None:
            made.append(WandB(self.wandb, name, self.mode))
        return made


def track_settings(section: JsonObject | None, where: str, folder: Path | None) -> Track | None:
    """Check the section [track]; every mistake is named, also a tracker that is not installed."""
    if section is None:
        return None
    if not isinstance(section, Mapping):
        raise PolyfedError(f"{where}: track must be a section, [track]")
    known = [field.name for field in dataclasses.fields(Track)]
    for key, value in section.items():
        if key not in known:
            raise PolyfedError(f"{where}: unknown key track.{key}{suggestion(key, known)}")
        if not isinstance(value, str) or not value:
            raise PolyfedError(f"{where}: track.{key} must be a word, found {value!r}")
    track = Track(**section)
    if track.mode not in (None, *MODES):
        raise PolyfedError(f"{where}: track.mode must be one of {', '.join(MODES)}, found {track.mode!r}")
    if not (track.tensorboard or track.mlflow or track.wandb):
        raise PolyfedError(f"{where}: track names no tracker: give tensorboard, mlflow or wandb")
    if track.tensorboard is not None and folder is not None:
        track = dataclasses.replace(track, tensorboard=str((folder / track.tensorboard).resolve()))
    try:
        track.callbacks("check", "installed")
    except PolyfedError as error:
        raise PolyfedError(f"{where}: {error}") from None
    return track
