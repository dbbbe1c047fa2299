"""Candidates that follow from how earlier ones did: Optuna's tree-structured Parzen estimator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyfed.core.extras import extra_package
from polyfed.studies.search_space import TRIES, Axis, TunePlan, label_number, values_key

BATCHES = 4
"""A method's budget is asked for in about so many parts: candidates of a part are one program and side by side."""


class Adaptive:
    """One method's search: `ask` for candidates, `tell` how they did."""

    def __init__(self, plan: TunePlan, label: str, *, higher_is_better: bool) -> None:
        self._optuna = extra_package("optuna", "optuna", "tune.search = 'optuna'")
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        self._space, budget = plan.spaces[label], plan.settings.budget
        self.batch = -(-budget // BATCHES)
        self._distributions = {axis.name: self._distribution(axis) for axis in self._space}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            sampler = self._optuna.samplers.TPESampler(
                seed=(plan.settings.seed + label_number(label)) % 2**32,
                n_startup_trials=self.batch,
                multivariate=True,
                constant_liar=True,
            )
        direction = "maximize" if higher_is_better else "minimize"
        self._worst = -math.inf if higher_is_better else math.inf
        self._study = self._optuna.create_study(sampler=sampler, direction=direction)
        self._random = np.random.default_rng([plan.settings.seed, label_number(label)])
        self._seen: set[str] = set()
        self._asked: list[Any] = []

    def ask(self, count: int) -> list[dict[str, Any]]:
        """So many new candidates, or fewer where the space has no more; after a known one comes a random one."""
        found: list[dict[str, Any]] = []
        for _ in range(TRIES * count):
            if len(found) == count:
                break
            trial = self._study.ask(self._distributions)
            values = {axis.name: _value(axis, trial.params[axis.name]) for axis in self._space}
            key = values_key(values)
            if key in self._seen:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
                self._study.enqueue_trial({axis.name: self._drawn(axis) for axis in self._space})
                continue
            self._seen.add(key)
            self._asked.append(trial)
            found.append(values)
        return found

    def tell(self, scores: Sequence[float | None]) -> None:
        """What the candidates of the last `ask` reached, in their order; None for one that diverged."""
        for trial, score in zip(self._asked, scores, strict=True):
            self._study.tell(trial, self._worst if score is None else score)
        self._asked = []

    def _drawn(self, axis: Axis) -> float | int:
        if axis.values:
            return int(self._random.integers(len(axis.values)))
        return axis.draw(self._random, False)

    def _distribution(self, axis: Axis) -> Any:
        kinds = self._optuna.distributions
        if axis.values:
            return kinds.CategoricalDistribution(tuple(range(len(axis.values))))
        if axis.kind == "whole":
            return kinds.IntDistribution(round(axis.low), round(axis.high), log=axis.log)
        return kinds.FloatDistribution(axis.low, axis.high, log=axis.log)


def _value(axis: Axis, drawn: Any) -> Any:
    return axis.values[drawn] if axis.values else axis.number(drawn)
