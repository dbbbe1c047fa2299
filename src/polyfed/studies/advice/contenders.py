"""What `advise` tries: ways of training, each with the same number of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polyfed.algorithms.contract import Algorithm, get_algorithm
from polyfed.engine.measure import FineTune

BUDGET = 6
"""Candidates of every contender."""
STEPS = {"local_steps": 10, "batch": 20}
ALONE = "alone"
"""The contender that every gain is counted from."""


@dataclass(frozen=True)
class Candidate:
    """Hyper-parameters to try; with `finetune`, clients deploy the global model after they fine-tuned it."""

    algorithm: Algorithm
    finetune: FineTune | None = None


@dataclass(frozen=True)
class Contender:
    """A way of training with its candidates."""

    name: str
    label: str
    candidates: tuple[Candidate, ...]


def contenders() -> list[Contender]:
    """All ways of training. Pure local models are trained for some epochs, as Newton's method takes minutes where
    there are a hundred features.

    Stepsizes are for features of about unit size. Every contender has six candidates. They are tried in this order:
    where time is short, each of the first ones is of another kind. Batches are of nearly equal size: across sites, a
    site refuses steps on few rows.
    """
    six = [{"lr": lr} for lr in (0.01, 0.03, 0.1, 0.2, 0.4, 0.8)]
    rates = (0.03, 0.1, 0.3)
    local_models: dict[str, Any] = {"plm_epochs": 20}
    tuned = [Candidate(_method("fedavg", lr=lr), FineTune(10, rate, 20)) for lr in rates for rate in (0.03, 0.2)]
    return [
        _contender(ALONE, "alone", "local", six),
        _contender("global", "one global model", "fedavg", six),
        Contender("fine-tuned", "the global model, fine-tuned", tuple(tuned)),
        _contender("apfl", "APFL", "apfl", _grid(rates, alpha=(0.25, 0.75))),
        _contender("plsgd", "PLSGD", "plsgd", _grid(rates, alpha=(0.1, 0.5))),
        _contender("fedbc", "FedBC", "fedbc", _grid(rates, dual_lr=(0.001, 0.1))),
        _contender("ditto", "Ditto", "ditto", _grid(rates, penalty=(0.1, 1.0))),
        _contender("scafflix", "Scafflix", "scafflix", _grid(rates, alpha=(0.3, 0.7)), p=0.1, batch=20, **local_models),
        _contender("flix", "FLIX", "flix", _grid(rates, alpha=(0.3, 0.7)), local_lr=0.1, **STEPS, **local_models),
        _contender("global, uniform", "one global model, sites weigh the same", "fedavg", six, weighting="uniform"),
    ]


def _contender(name: str, label: str, algorithm: str, values: Sequence[dict[str, float]], **fixed: Any) -> Contender:
    return Contender(name, label, tuple(Candidate(_method(algorithm, **fixed, **some)) for some in values))


def _method(name: str, **values: Any) -> Algorithm:
    return get_algorithm(name)(**{"even": True, **values})


def _grid(rates: Sequence[float], **other: Sequence[float]) -> list[dict[str, float]]:
    [(name, values)] = other.items()
    return [{"lr": rate, name: value} for rate in rates for value in values]
