"""Who gains from whom: what each site's absence does to the others."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from polyfed.engine.loop import PlannedRun
from polyfed.engine.simulate import simulate_all
from polyfed.engine.simulation import Simulation
from polyfed.problem.metrics import Metric
from polyfed.problem.problem import Problem
from polyfed.studies.advice.apart import without
from polyfed.studies.advice.clock import Clock, OutOfTime
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

    @property
    def brings_by_site(self) -> dict[str, float]:
        """The same by the sites' names."""
        return dict(zip(self.clients, self.brings.tolist(), strict=True))


def influence(
    problems: Sequence[Problem], candidate: Candidate, proper: Metric, rounds: int, clock: Clock
) -> Influence | None:
    """Train with everybody and without each site in turn; losses are of the deployed models on test rows.

    They choose nothing: they are told beside the advice. Draws for which the clock has no time are left out, or
    interrupted ones; None if that leaves nothing.
    """
    effects: list[np.ndarray] = []
    longest = 0.0
    for split, problem in enumerate(problems[:DRAWS]):
        begun = time.monotonic()
        if not (clock.begins() and clock.allows(longest)):
            break
        try:
            effect = _effect(problem, split, candidate, proper, rounds, clock.look)
        except OutOfTime:
            break
        if effect is None:
            break
        effects.append(effect)
        longest = time.monotonic() - begun
    if not effects:
        return None
    return Influence(tuple(problems[0].federation.clients), np.mean(effects, axis=0))


def _effect(
    problem: Problem, split: int, candidate: Candidate, proper: Metric, rounds: int, look: Callable[[], None]
) -> np.ndarray | None:
    """The effects on one draw; None if Ctrl-C ended it."""
    everyone = range(len(problem.federation))
    planned = [PlannedRun(problem, candidate.algorithm, seed=split)]
    for out in everyone:
        planned.append(PlannedRun(without(problem, [out]), candidate.algorithm, seed=split))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = simulate_all(planned, rounds=rounds, eval_every=rounds, progress=lambda *_: look(), measure=False)
    if any(result.interrupted for result in results):
        return None
    full = _losses(results[0].simulation, candidate, proper)
    effect = np.full((len(everyone), len(everyone)), np.nan)
    for out, result in enumerate(results[1:]):
        look()
        rest = [place for place in everyone if place != out]
        effect[out, rest] = _losses(result.simulation, candidate, proper) - full[rest]
    return effect


def _losses(simulation: Simulation, candidate: Candidate, proper: Metric) -> np.ndarray:
    assert proper.by_row is not None
    losses = np.full(len(simulation.problem), np.nan)
    name = "personal" if candidate.finetune is None else "finetuned"
    for place, client in client_scores(simulation, "test", candidate.finetune):
        losses[place] = np.mean(proper.by_row(client.scores[name], client.labels))
    return losses
