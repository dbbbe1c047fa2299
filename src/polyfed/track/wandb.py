"""Weights & Biases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polyfed.core.extras import extra_package
from polyfed.engine.callbacks import Callback
from polyfed.engine.history import HistoryRow
from polyfed.engine.result import Result
from polyfed.engine.simulation import Simulation
from polyfed.track.facts import figures_of, settings_of


class WandB(Callback):
    """Writes a run of a project; `mode` is "online", "offline" or "disabled", by default what its own settings say."""

    def __init__(
        self,
        project: str = "polyfed",
        name: str | None = None,
        mode: str | None = None,
        folder: str | Path | None = None,
    ) -> None:
        self.project, self.name, self.mode, self.folder = project, name, mode, folder
        self._wandb = extra_package("wandb", "wandb", "track.wandb")
        self._run: Any = None

    def on_start(self, simulation: Simulation) -> None:
        self._run = self._wandb.init(
            project=self.project,
            name=self.name or simulation.method.name,
            config=settings_of(simulation),
            mode=self.mode,
            dir=None if self.folder is None else str(self.folder),
            reinit="create_new",
        )

    def on_evaluate(self, simulation: Simulation, row: HistoryRow) -> None:
        self._run.log(figures_of(row), step=row["round"])

    def on_end(self, result: Result) -> None:
        self._run.finish(exit_code=int(result.interrupted or result.diverged is not None))
