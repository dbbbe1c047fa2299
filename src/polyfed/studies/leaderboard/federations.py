"""The federations of the leaderboard: data, model, loss, and the budget that all methods have there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from polyfed import models
from polyfed.core.files import JsonObject
from polyfed.data import Federation, Population
from polyfed.data.registry import load
from polyfed.models.base import Architecture
from polyfed.problem.problem import Problem


@dataclass(frozen=True)
class Arena:
    """A federation and its rules. Data, split and everything else random are drawn anew for every seed."""

    title: str
    source: str
    options: JsonObject
    model: str
    words: str
    """what the data is, and its size"""
    rounds: int
    """the budget: the bits, up and down, of so many rounds in which every participant gets a model and sends one"""
    participation: float | int = 1.0
    seeds: int = 5
    """draws that judge; one more tunes"""
    loss: str = "softmax"
    l2: float = 1e-4
    local_steps: int = 10
    rates: tuple[float, float] = (0.01, 10.0)
    """the stepsizes that tuning tries, on a logarithmic scale"""

    def problem(self, seed: int) -> Problem:
        """The problem of a seed's draw."""
        federation = _loaded(self.source, json.dumps(self.options), seed)
        return Problem(federation, MODELS[self.model](), self.loss, self.l2)


@lru_cache(maxsize=6)
def _loaded(source: str, options: str, seed: int) -> Federation | Population:
    """A draw, which is the same for the methods that follow each other."""
    return load(source, seed=seed, **json.loads(options))


MODELS: dict[str, Callable[[], Architecture]] = {
    "linear": models.linear,
    "an MLP, one hidden layer of 64": lambda: models.mlp([64]),
    "LeNet": models.lenet,
    "an LSTM, 64 units": lambda: models.lstm(hidden=64, layers=1),
}


def _synthetic(alpha: float, beta: float, iid: bool = False) -> JsonObject:
    return {"alpha": alpha, "beta": beta, "clients": 30, "iid": iid, "max_size": 500}


FEDERATIONS: dict[str, Arena] = {
    "synthetic-alike": Arena(
        "Synthetic, clients alike",
        "synthetic",
        _synthetic(0.0, 0.0, iid=True),
        "linear",
        "30 clients with one rule and one law of inputs, 60 inputs, 10 classes",
        rounds=100,
    ),
    "synthetic-0.5": Arena(
        "Synthetic (0.5, 0.5)",
        "synthetic",
        _synthetic(0.5, 0.5),
        "linear",
        "30 clients whose rules and inputs drift apart, 60 inputs, 10 classes",
        rounds=100,
    ),
    "synthetic-1": Arena(
        "Synthetic (1, 1)",
        "synthetic",
        _synthetic(1.0, 1.0),
        "linear",
        "30 clients whose rules and inputs drift further apart, 60 inputs, 10 classes",
        rounds=100,
    ),
    "airlines": Arena(
        "Airlines",
        "airlines",
        {},
        "linear",
        "13,305 flights of 16 airlines, 29 to 1,000 each: which left late",
        rounds=100,
        loss="logistic",
        l2=1e-3,
        rates=(0.001, 1.0),
    ),
    "debtags": Arena(
        "Package tags",
        "debtags",
        {"clients": 40, "max_rows": 200, "words": 500, "tags": 50},
        "linear",
        "40 maintainers of Debian packages, 200 at most of each: 500 words to 50 tags",
        rounds=100,
        loss="tags",
        rates=(0.1, 10.0),
    ),
    "mnist-labels": Arena(
        "MNIST by label",
        "mnist",
        {"partition": "shards", "clients": 50, "k": 2, "every": 5, "test": 0.2},
        "an MLP, one hidden layer of 64",
        "14,000 digits, 50 clients with two shards of sorted labels each",
        rounds=100,
        participation=10,
        rates=(0.01, 1.0),
    ),
    "mnist-writers": Arena(
        "MNIST by writer",
        "mnist_by_writer",
        {"clients": 50, "min_rows": 60},
        "an MLP, one hidden layer of 64",
        "50 people's own digits, 60 to 174 each",
        rounds=100,
        participation=10,
        rates=(0.01, 1.0),
    ),
    "cifar10-labels": Arena(
        "CIFAR-10 by label",
        "cifar10",
        {"partition": "shards", "clients": 20, "k": 3, "every": 10, "test": 0.2},
        "LeNet",
        "6,000 photographs, 20 clients with three shards of sorted labels each",
        rounds=60,
        participation=10,
        seeds=3,
        rates=(0.01, 0.3),
    ),
    "shakespeare": Arena(
        "Shakespeare by role",
        "shakespeare",
        {"clients": 20, "min_rows": 100, "length": 40},
        "an LSTM, 64 units",
        "20 speaking roles: the next of 40 characters",
        rounds=60,
        participation=10,
        seeds=3,
        rates=(0.1, 3.0),
    ),
}
"""Every federation, by the name that commands take."""
