"""Who gains from whom: what each site's absence does to the others."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyfed.engine.loop import PlannedRun
from polyfed.engine.simulate import simulate_all
from polyfed.engine.simulation import Simulation
from polyfed.problem.metrics import Metric
from polyfed.problem.problem import Problem
from polyfed.studies.advice.contenders import Candidate
from polyfed.studies.scoring import client_scores

DRAWS = 3
"""The splits that it is tried on."""


@dataclass(frozen=True)
class Influence:
    """`effect[i][j]`: by how much the loss of site j rises when site i is left out; NaN for i = j."""

    clients: tuple[str, ...]
    effect: np.ndarray

    def as_dict(self) -> dict[str, dict[str, float]]:
        """{site left out: {another site: the rise of its loss}}"""
        return {
            out: {other: float(self.effect[i, j]) for j, other in enumerate(self.clients) if j != i}
            for i, out in enumerate(self.clients)
        }

    @property
    def brings(self) -> np.ndarray:
        """What each site brings to the others: the mean rise of their losses without it."""
        return np.nanmean(self.effect, axis=1)


def influence(problems: Sequence[Problem], candidate: Candidate, proper: Metric, rounds: int) -> Influence:
    """Train with everybody and without each site in turn; losses are of the deployed models on test rows.

    They choose nothing: they are told beside the advice.
    """
    drawn = problems[:DRAWS]
    clients = drawn[0].federation.clients
    everyone = range(len(clients))
    cases: list[tuple[int | None, int, Problem]] = []
    for split, problem in enumerate(drawn):
        federation = problem.federation
        cases.append((None, split, problem))
        for out in everyone:
            others = federation.select([place for place in everyone if place != out])
            cases.append((out, split, Problem(others, problem.model, problem.loss.name, l2=problem.l2)))
    planned = [PlannedRun(problem, candidate.algorithm, seed=split) for _, split, problem in cases]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = simulate_all(planned, rounds=rounds, eval_every=rounds)
    full = np.zeros(len(clients))
    without = np.zeros((len(clients), len(clients)))
    for (out, _, problem), result in zip(cases, results, strict=True):
        losses = _losses(result.simulation, candidate, proper, len(problem))
        if out is None:
            full += losses / len(drawn)
        else:
            without[out, [place for place in everyone if place != out]] += losses / len(drawn)
    effect = without - full
    np.fill_diagonal(effect, np.nan)
    return Influence(tuple(clients), effect)


def _losses(simulation: Simulation, candidate: Candidate, proper: Metric, count: int) -> np.ndarray:
    assert proper.by_row is not None
    losses = np.full(count, np.nan)
    name = "personal" if candidate.finetune is None else "finetuned"
    for place, client in client_scores(simulation, "test", candidate.finetune):
        losses[place] = np.mean(proper.by_row(client.scores[name], client.labels))
    return losses
