"""The problem of the mixtures' tests: logistic regression on five clients of unequal size, scale and rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import polyfed as pf
from polyfed.engine.simulation import Simulation
from tests.algorithms.comparison import trained

ALPHA = np.array([0.9, 0.2, 0.55, 1.0, 0.35])
WEIGHTS = ALPHA.tolist()
SIZES = (9, 30, 14, 21, 6)


def logistic_problem() -> pf.Problem:
    rng = np.random.default_rng(3)
    clients = []
    for scale, size in zip((0.5, 2.0, 1.0, 1.5, 0.8), SIZES, strict=True):
        x = scale * rng.normal(size=(size, 3))
        clients.append((x, np.where(x @ rng.normal(size=3) + 0.3 * rng.normal(size=size) > 0, 1.0, -1.0)))
    fed = pf.Federation.from_arrays(clients, test=0, validation=0, columns={"trust": ALPHA})
    return pf.Problem(fed, pf.models.linear(bias=False), "logistic", l2=0.1)


def run(problem: pf.Problem, method: pf.algorithms.Algorithm, rounds: int, **options: Any) -> Simulation:
    """Some rounds from all ones; nothing is measured."""
    return trained(problem, method, rounds, **{"init": "ones", "seed": 0, **options})


def history(problem: pf.Problem, method: pf.algorithms.Algorithm, rounds: int, every: int) -> pd.DataFrame:
    """What is measured on the way."""
    return pf.simulate(problem, method, rounds=rounds, dtype="float64", eval_every=every, init="ones").history
