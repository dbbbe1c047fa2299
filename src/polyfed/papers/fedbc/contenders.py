"""The methods of FedBC's figures and tables, the values that tuning tries, and the tasks they are compared on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from polyfed.algorithms.contract import Algorithm, get_algorithm, kinds
from polyfed.core.schedules import Decay
from polyfed.papers.shared.held_out import Options

COHORT = 10
"""The clients that take part in a round."""
LEAKING = "leaking"
"""The model that is adapted on test rows, as in the paper. No claim and no choice depends on it."""
RATES = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3]
DUAL_RATES = [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2]
"""FedBC's, of its multipliers: the paper's range."""
ADAPTED = {"lr": [0.003, 0.01, 0.03, 0.1], "inner_lr": [0.003, 0.01, 0.03]}
"""Per-FedBC's stepsizes: of the trained model, and of its adaptation."""


class Contender(NamedTuple):
    """A method: its algorithm, the fixed options, the values that tuning tries, and which of its models is judged."""

    algorithm: str
    fixed: Mapping[str, object]
    space: Mapping[str, Sequence[float]]
    judged: str = "global"

    @property
    def adapts(self) -> bool:
        """Whether a last step adapts the model that it deploys. The paper takes that step on test rows."""
        return self.algorithm in ("perfedavg", "perfedbc") or bool(self.fixed.get("adapt_steps"))

    def candidates(self, task: FedbcTask) -> Mapping[str, Sequence[float]]:
        """The hyper-parameters that are tuned on a task, with the values to choose from."""
        return self.space if task.rates is None else {**self.space, "lr": task.rates}


GLOBAL: dict[str, Contender] = {
    "FedAvg, by size": Contender("fedavg", {}, {"lr": RATES}),
    "FedAvg, uniform": Contender("fedavg", {"weighting": "uniform"}, {"lr": RATES}),
    "q-FedAvg": Contender("qfedavg", {}, {"lr": RATES, "q": [0.01, 0.1, 1.0]}),
    "FedProx": Contender("fedprox", {}, {"lr": RATES, "mu": [0.01, 0.1, 1.0]}),
    "SCAFFOLD": Contender("scaffold", {"trust": "never"}, {"lr": RATES}),  # as published
    "FedBC": Contender("fedbc", {}, {"lr": RATES, "dual_lr": DUAL_RATES}),
}
"""The methods whose global model is compared. A space smaller than the budget is filled up with draws between."""
LOCAL: dict[str, Contender] = {
    "Alone": Contender("local", {}, {"lr": RATES}, "personal"),
    "FedAvg, fine-tuned": Contender("fedavg", {"weighting": "uniform"}, {"lr": RATES}, "finetuned"),
    "FedAvg by size, fine-tuned": Contender("fedavg", {}, {"lr": RATES}, "finetuned"),
    "Per-FedAvg": Contender("perfedavg", {}, {"lr": RATES, "inner_lr": [0.01, 0.03, 0.1]}, "personal"),
    "pFedMe": Contender(
        "pfedme", {"inner_lr": 0.03}, {"lr": [0.01, 0.03, 0.1], "penalty": [0.1, 1.0, 10.0]}, "personal"
    ),
    "FedBC": Contender("fedbc", {}, {"lr": RATES, "dual_lr": DUAL_RATES}, "personal"),
    "FedBC, from x_i": Contender("fedbc", {"start": "own"}, {"lr": RATES, "dual_lr": DUAL_RATES}, "personal"),
    "FedBC-FineTune": Contender("fedbc", {"adapt_steps": 1}, {"lr": RATES, "dual_lr": DUAL_RATES}, "personal"),
    "Per-FedBC": Contender("perfedbc", {"dual_lr": 1e-4}, ADAPTED, "personal"),
    "Per-FedBC, own models": Contender("perfedbc", {"dual_lr": 1e-4, "deploy": "own"}, ADAPTED, "personal"),
}
"""The methods whose clients' own models are compared."""


@dataclass(frozen=True)
class FedbcTask:
    """A federation and the work of a round."""

    source: str
    data: Options
    model: str
    epochs: int
    rounds: int
    every: int = 1
    batch: int = 20
    cohort: int = COHORT
    rates: tuple[float, ...] | None = None
    """the stepsizes to choose from, where they are not the contender's"""
    momentum: float | None = None
    """of the local steps, in the methods that have it"""
    decay: float | None = None
    """what stepsizes are multiplied by after every round"""

    @property
    def clients(self) -> int | None:
        """None where the source decides."""
        return dict(self.data).get("clients")


def contender_of(label: str, judged: str) -> Contender:
    """The method of this label in the table of global or of local models."""
    return (GLOBAL if judged == "global" else LOCAL)[label]


def algorithm_of(task: FedbcTask, contender: Contender, chosen: Options) -> Algorithm:
    given = {**contender.fixed, **dict(chosen), "local_epochs": task.epochs, "batch": task.batch}
    cls = get_algorithm(contender.algorithm)
    if task.momentum is not None and "momentum" in kinds(cls):
        given["momentum"] = task.momentum
    if task.decay is not None:
        given["lr"] = Decay(given["lr"], task.decay)
    return cls(**given)
