"""MLflow, by its client: no global run is opened, so that several runs at a time do not meet."""

from __future__ import annotations

import time
from typing import Any

from polyfed.core.extras import extra_package
from polyfed.engine.callbacks import Callback
from polyfed.engine.history import HistoryRow
from polyfed.engine.result import Result
from polyfed.engine.simulation import Simulation
from polyfed.track.facts import figures_of, settings_of


class MLflow(Callback):
    """Writes a run of an MLflow experiment: the settings as its parameters, the history as its metrics.

    `uri`: the tracking server, a database (`sqlite:///mlflow.db`) or a folder; by default what MLflow's own settings
    say.
    """

    def __init__(self, uri: str | None = None, experiment: str = "polyfed", name: str | None = None) -> None:
        self.uri, self.experiment, self.name = uri, experiment, name
        extra_package("mlflow", "mlflow", "track.mlflow")
        self._client: Any = None
        self._run = ""

    def on_start(self, simulation: Simulation) -> None:
        self._client = extra_package("mlflow", "mlflow", "track.mlflow").MlflowClient(tracking_uri=self.uri)
        found = self._client.get_experiment_by_name(self.experiment)
        owner = self._client.create_experiment(self.experiment) if found is None else found.experiment_id
        self._run = self._client.create_run(owner, run_name=self.name or simulation.method.name).info.run_id
        for name, value in settings_of(simulation).items():
            self._client.log_param(self._run, name, value)

    def on_evaluate(self, simulation: Simulation, row: HistoryRow) -> None:
        entities, now = extra_package("mlflow.entities", "mlflow", "track.mlflow"), int(1000 * time.time())
        metrics = [entities.Metric(name, value, now, row["round"]) for name, value in figures_of(row).items()]
        self._client.log_batch(self._run, metrics=metrics)

    def on_end(self, result: Result) -> None:
        status = "KILLED" if result.interrupted else "FAILED" if result.diverged else "FINISHED"
        self._client.set_terminated(self._run, status)
