"""What a simulation gives back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyfed.core import html
from polyfed.core.above import from_above
from polyfed.core.errors import PolyfedError
from polyfed.core.trees import Tree
from polyfed.engine.client_metrics import Metrics
from polyfed.engine.finetuned import finetuned
from polyfed.engine.history import HistoryRow
from polyfed.engine.judge import judge
from polyfed.engine.measure import FineTune
from polyfed.engine.simulation import Simulation
from polyfed.export import export_model
from polyfed.problem.metrics import Metric, metrics_of
from polyfed.problem.prediction import Predictor

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from polyfed.algorithms.contract import Algorithm, State
    from polyfed.problem.problem import Problem


@dataclass(frozen=True)
class Result:
    """A finished run: its history, its models, and what can be measured of them."""

    simulation: Simulation
    rows: list[HistoryRow]
    """The history, a dictionary per evaluated round."""
    diverged: str | None = None
    """Why the run was stopped early, if it left the finite numbers."""
    interrupted: bool = False
    """Whether Ctrl-C ended it."""

    @property
    def history(self) -> pd.DataFrame:
        """A row per evaluated round, row 0 being the start.

        `seconds` is the time of the rounds alone, without compilation and evaluation. Metrics are means over the
        evaluated clients: all of them, unless `eval_clients` said otherwise.
        """
        import pandas as pd

        return pd.DataFrame(self.rows)

    def __repr__(self) -> str:
        ended = "interrupted, " if self.interrupted else "diverged, " if self.diverged else ""
        latest = f", objective {self.rows[-1]['objective']:.6g}" if self.rows else ""
        rounds = self.simulation.round
        return f"Result({self.algorithm.name}, {ended}{len(self.problem)} clients, {rounds} rounds{latest})"

    def _repr_html_(self) -> str:
        """For notebooks: the last rows of the history."""
        last = self.rows[-1] if self.rows else {}
        split = "test" if any(name.startswith("personal_test_") for name in last) else "train"
        metric = self.problem.loss.metric_name
        known = [f"{model}_{split}_{name}" for model in ("personal", "global") for name in ("loss", metric)]
        names = [name for name in dict.fromkeys(("round", "objective", "bits_up", *known)) if name in last]
        rows = [[row.get(name) for name in names] for row in self.rows[-5:]]
        clients, rounds = len(self.problem), self.simulation.round
        title = f"{self.algorithm.name}: {clients:,} clients, {rounds:,} rounds"
        notes = [html.note(self.diverged)] if self.diverged else []
        notes += [html.note("stopped by Ctrl-C")] if self.interrupted else []
        return html.page(title, *notes, html.table(names, rows))

    def plot(self, metric: str | None = None) -> Figure:
        """The objective, and a metric of test rows (a part of its name; by default the loss's own), over the rounds."""
        return from_above("report.pictures", "history_figure")(self, metric)

    def report(self, path: str | Path = "report.html") -> Path:
        """Write the report page of this run: `polyfed report` does so for runs of the command line."""
        return from_above("report.of_result", "write_result_report")(self, path)

    def save(self, folder: str | Path) -> Path:
        """Write what `polyfed run` leaves: history, clients, summary and models, for `pf.load`, `predict` and `report`.

        The folder must not have a run already.
        """
        return from_above("studies.kept_result", "save_result")(self, folder)

    def save_pretrained(self, folder: str | Path, alone: Result | None = None) -> Path:
        """Like `save`, with a model card, README.md, as model hubs show one.

        It says which models these are, the digest of their data, how good they are on test rows, and, where the run
        `alone` of the same problem is given, the verdict for each client.
        """
        return from_above("studies.model_card", "save_pretrained")(self, folder, alone)

    @property
    def problem(self) -> Problem:
        return self.simulation.problem

    @property
    def algorithm(self) -> Algorithm:
        return self.simulation.method

    @property
    def global_params(self) -> Tree:
        """The global model; None for a method without one."""
        return self.simulation.global_params

    @property
    def client_state(self) -> State:
        """Every client's state, a leading client axis on each array; None for a method without any."""
        return self.simulation.client_state

    @property
    def excluded(self) -> dict[str, int]:
        """How often each client's update was not finite and was left out, of those with any."""
        return self.simulation.excluded

    @property
    def compile_seconds(self) -> float:
        return self.simulation.compile_seconds

    def personal(self, client: str | int) -> Tree:
        """The model that this client deploys."""
        return self.simulation.personal(client)

    def predict(self, client: str, rows: pd.DataFrame | ArrayLike, finetune: FineTune | None = None) -> pd.DataFrame:
        """What the model that this client deploys says of new rows: see `Predictor.predict`.

        `finetune`: what the global model says once the client has fine-tuned it like this.
        """
        predictor = Predictor.of(self.problem, self.simulation.dtype)
        return predictor.predict(self._deployed(client, finetune), rows, client)

    def _deployed(self, client: str, finetune: FineTune | None) -> Tree:
        """The model that this client deploys, or the fine-tuned global one."""
        return self.personal(client) if finetune is None else finetuned(self.simulation, finetune, client)

    def export(self, path: str | Path, client: str | None, finetune: FineTune | None = None) -> list[Path]:
        """A client's model (None: the global one) for other programs, as ONNX or in jax.export's form.

        The end of the name, .onnx or .jax, says which; what was written is returned. `finetune`: as in `predict`.
        """
        params = self.global_params if client is None else self._deployed(client, finetune)
        if params is None:
            raise PolyfedError(f"{self.algorithm.name} has no global model")
        facts = {"client": client, "method": self.algorithm.name, "data": self.problem.fingerprint}
        return export_model(path, Predictor.of(self.problem, self.simulation.dtype), params, facts)

    def metrics(self, finetune: FineTune | None = None) -> Metrics:
        """The evaluated clients' metrics at the last round: {model: {split: {metric: one value per client}}}."""
        measured = self.simulation.measure()
        if finetune is not None and self.global_params is not None:
            measured |= self.simulation.measure(finetune)
        return measured

    def evaluate(
        self,
        split: str = "test",
        finetune: FineTune | None = None,
        metrics: str | Metric | Sequence[str | Metric] = (),
    ) -> pd.DataFrame:
        """A row per evaluated client, absent ones included: each model's loss and the loss's own metric on a split.

        And these `metrics`, by name or made by `pf.metrics.custom`: of each model and of the "constant" predictor.
        """
        import pandas as pd

        part = self.problem.federation.split(split)
        if not part.rows:
            raise PolyfedError(f"this federation has no {split} rows")
        clients, names = self.simulation.evaluated, self.problem.federation.clients
        columns: dict[str, Any] = {"client": [names[i] for i in clients.tolist()], "rows": part.sizes[clients]}
        for model, splits in self.metrics(finetune).items():
            for metric, values in splits[split].items():
                if metric != "ridge":
                    columns[f"{model}_{metric}"] = values
        if metrics:
            for model, by_name in judge(self.simulation, metrics, split, finetune, pooled=False).values.items():
                columns |= {f"{model}_{metric}": values for metric, values in by_name.items()}
        return pd.DataFrame(columns)

    def aggregate(
        self,
        split: str = "test",
        finetune: FineTune | None = None,
        metrics: str | Metric | Sequence[str | Metric] | None = None,
    ) -> pd.DataFrame:
        """Metrics over the evaluated clients, by default all that fit: a row per model and metric.

        Columns: `model`, `metric`, `mean` and `size_weighted_mean` over the clients that have it, `pooled` over the
        rows of all of them, and `undefined`, the names of the clients that have none.
        """
        import pandas as pd

        chosen = metrics_of(self.problem) if metrics is None else metrics
        rows = [
            {"model": model, "metric": name, **vars(figures)}
            for model, by_name in judge(self.simulation, chosen, split, finetune).aggregates.items()
            for name, figures in by_name.items()
        ]
        return pd.DataFrame(rows)
