"""TensorBoard, by tensorboardX, which needs neither TensorFlow nor PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from polyfed.core.extras import extra_package
from polyfed.engine.callbacks import Callback
from polyfed.engine.history import HistoryRow
from polyfed.engine.result import Result
from polyfed.engine.simulation import Simulation
from polyfed.track.facts import figures_of, settings_of


class TensorBoard(Callback):
    """Writes event files to `folder`: a curve for each number of the history, and the settings as a text."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._made = extra_package("tensorboardX", "tensorboard", "track.tensorboard").SummaryWriter
        self._writer: Any = None

    def on_start(self, simulation: Simulation) -> None:
        self._writer = self._made(str(self.folder))
        text = json.dumps(settings_of(simulation), indent=1)
        self._writer.add_text("settings", f"```\n{text}\n```", simulation.round)

    def on_evaluate(self, simulation: Simulation, row: HistoryRow) -> None:
        for name, value in figures_of(row).items():
            self._writer.add_scalar(name, value, row["round"])
        self._writer.flush()

    def on_end(self, result: Result) -> None:
        self._writer.close()
