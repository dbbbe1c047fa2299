"""One call: from a finished run and the data of clients that it never saw, a model for each of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np
from numpy.typing import ArrayLike

from polyfed.algorithms.contract import Algorithm, global_model
from polyfed.algorithms.shared.local_work import work_of
from polyfed.core.errors import PolyfedError, own_names
from polyfed.core.files import JsonObject, owner_only, slug, write_csv
from polyfed.core.trees import Tree
from polyfed.data import Federation
from polyfed.engine.checkpoint.tensors import save_tree
from polyfed.engine.client_metrics import Metrics
from polyfed.engine.measure import FineTune
from polyfed.engine.newcomers import join, learns_from_validation
from polyfed.engine.result import Result
from polyfed.problem.objective import Batching
from polyfed.problem.problem import Problem
from polyfed.studies import evaluation as evaluate
from polyfed.studies.newcomers import trained as runs
from polyfed.studies.newcomers.fitting import fitted

if TYPE_CHECKING:
    import pandas as pd

Rows = tuple[ArrayLike, ArrayLike]
"""X and y."""


@dataclass(frozen=True)
class Newcomers:
    """Clients that joined a run: their models, and what these reach."""

    problem: Problem
    """The newcomers' own data under the run's model and loss."""
    params: Tree
    """Their models, a leading client axis on each array."""
    metrics: Metrics
    """{model: {split: {metric: one value per newcomer}}} of "personal" and, where there is one, "global"."""
    split: str | None
    """The split that no model was fitted to: "test", else "validation"; None where nothing is held out."""

    @property
    def clients(self) -> Sequence[str]:
        return self.problem.federation.clients

    @property
    def metric(self) -> str:
        """ "accuracy", "squared_error" or "precision_at_5", by the loss."""
        return self.problem.loss.metric_name

    def personal(self, client: str | int) -> Tree:
        """The model of one newcomer."""
        index = client if isinstance(client, int) else self.problem.federation.index(client)
        return jax.tree.map(lambda leaf: leaf[index], self.params)

    @property
    def rows(self) -> list[JsonObject]:
        """A row per newcomer: how the global model and its own do on its held-out rows."""
        federation = self.problem.federation
        sizes = np.zeros(len(federation), int) if self.split is None else federation.split(self.split).sizes
        rows: list[JsonObject] = []
        for index, client in enumerate(self.clients):
            row = {"client": client, "train_rows": int(federation.train.sizes[index])}
            row |= {"split": self.split, "rows": int(sizes[index])}
            for name in (self.metric, "loss"):
                row |= {f"{model}_{name}": self._value(model, name, index) for model in ("global", "personal")}
            rows.append(row)
        return rows

    @property
    def table(self) -> pd.DataFrame:
        """`rows` as a table."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    @property
    def broken(self) -> list[str]:
        """The newcomers whose model is not finite: the stepsize was too large for their rows."""
        leaves = [np.asarray(leaf).reshape(len(self.clients), -1) for leaf in jax.tree.leaves(self.params)]
        fine = np.all([np.isfinite(leaf).all(axis=1) for leaf in leaves], axis=0)
        return [self.clients[int(i)] for i in np.flatnonzero(~fine)]

    def save(self, folder: str | Path) -> Path:
        """Write newcomers.csv, a row per newcomer with every metric, and models/NAME.safetensors for each."""
        folder = Path(folder)
        owner_only(folder / "models")
        taken: set[str] = set()
        rows = evaluate.client_rows(self.problem, self.metrics, None)
        for index, row in enumerate(rows):
            del row["own_share"], row["server_weight"]
            name = slug(self.clients[index])
            while name in taken:
                name += "-x"
            taken.add(name)
            row["model"] = file = f"models/{name}.safetensors"
            save_tree(folder / file, self.personal(index))
        write_csv(folder / "newcomers.csv", rows)
        return folder

    def _value(self, model: str, name: str, index: int) -> float | None:
        if self.split is None or model not in self.metrics:
            return None
        value = float(self.metrics[model][self.split][name][index])
        return None if np.isnan(value) else value


@own_names
def personalize(
    run: str | Path | Result | runs.Trained,
    data: Federation | Rows | Mapping[str, Rows | Mapping[str, Rows]],
    *,
    steps: int | None = None,
    finetune: FineTune | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int | None = None,
) -> Newcomers:
    """Give each client that joins after training a model of its own, by the method's rule for newcomers.

    `run`: a run directory, or what `simulate` returned. It is not changed.
    `data`: a federation, one client's (X, y), or a mapping of names to such pairs, whose shares `validation` and `test`
    are held out. A model is fitted to training rows only.
    `steps`: local steps, by default what the method's rule says.
    `finetune`: instead of the method's rule, fine-tune the global model; a run whose clients deploy fine-tuned models
    does so anyway.
    `seed`: of the batches; by default the run's.
    """
    known = _known(run, finetune)
    _check_steps(steps)
    federation = fitted(_federation(data, validation, test), known.data, known.loss)
    problem = Problem(federation, known.model, known.loss, known.l2, known.class_weight)
    chosen = known.seed if seed is None else seed
    params, metrics = join(
        problem,
        known.method,
        known.server,
        round=known.round,
        seed=chosen,
        dtype=known.dtype,
        work=None if steps is None else _work(known.method, known.finetune, steps),
        finetune=known.finetune,
    )
    return Newcomers(problem, params, metrics, _held_out(known, problem))


def _known(run: str | Path | Result | runs.Trained, finetune: FineTune | None) -> runs.Trained:
    if isinstance(run, str | Path):
        known = runs.read(run)
    elif isinstance(run, Result):
        if run.diverged:
            raise PolyfedError("this run diverged, so that it has no model to start from")
        known = runs.Trained.of(run.simulation)
    elif isinstance(run, runs.Trained):
        known = run
    else:
        raise PolyfedError(f"run must be a run directory or a Result, found {type(run).__name__}")
    if finetune is not None:
        if global_model(known.server) is None:
            raise PolyfedError(f"{known.method.name} has no global model to fine-tune")
        known = dataclasses.replace(known, finetune=finetune)
    return known


def _federation(
    data: Federation | Rows | Mapping[str, Rows | Mapping[str, Rows]], validation: float, test: float
) -> Federation:
    if isinstance(data, Federation):
        return data
    clients = {"newcomer": data} if isinstance(data, tuple) and len(data) == 2 else data
    return Federation.from_arrays(clients, validation=validation, test=test)


def _check_steps(steps: int | None) -> None:
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
        raise PolyfedError(f"steps must be a whole number, at least 1, found {steps!r}")


def _work(method: Algorithm, finetune: FineTune | None, steps: int) -> Batching:
    if finetune is not None:
        return Batching(finetune.batch, steps)
    return dataclasses.replace(work_of(method), steps=steps, epochs=None)


def _held_out(known: runs.Trained, problem: Problem) -> str | None:
    """The split that no newcomer's model has seen; not the validation rows if the method learns from them."""
    federation = problem.federation
    if federation.test.rows:
        return "test"
    if not federation.validation.rows:
        return None
    learns = known.finetune is None and learns_from_validation(problem, known.method, known.server, known.dtype)
    return None if learns else "validation"
