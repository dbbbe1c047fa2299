"""What privacy would cost: the advised method again, with clipped uploads and noise on their sum."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyfed.algorithms.contract import Algorithm
from polyfed.algorithms.shared.bonds import BondedMethod
from polyfed.algorithms.shared.local_work import Weighted
from polyfed.core.errors import PolyfedError
from polyfed.data import Federation
from polyfed.engine.participation import sampling
from polyfed.engine.privacy.accounting import Accountant
from polyfed.engine.privacy.mechanism import Privacy
from polyfed.problem.metrics import Metric
from polyfed.problem.problem import Problem
from polyfed.studies.advice.apart import Apart, trial_without
from polyfed.studies.advice.contenders import Candidate, Contender
from polyfed.studies.advice.estimate import SplitChoices, choose, gains_of, site_values
from polyfed.studies.advice.trials import Trial, run_trial
from polyfed.studies.verdicts import Interval, verdict

DELTA = 1e-5
CLIPS = (0.1, 0.3, 1.0)
"""Lengths of uploads that are tried."""
LEAST, MOST = 1e-3, 1e6
"""Between which the noise is looked for."""


@dataclass(frozen=True)
class PrivacyCost:
    """What the sites would get if the training were private, and what they would lose by that."""

    epsilon: float
    delta: float
    clip: float
    """the one that most splits chose"""
    noise: float
    """in multiples of it"""
    rounds: int
    private: list[float]
    """by site: the metric of what it would deploy, its own model where its rows speak for that"""
    gain: Interval
    """of the private procedure over going alone, mean over the sites"""
    cost: Interval
    """what is lost against the advice without privacy, mean over the sites"""
    verdicts: list[str]
    """by site: of the private procedure against going alone"""

    @property
    def sentence(self) -> str:
        low, high = (self.cost.low, self.cost.high) if self.cost.known else (None, None)
        ends = "" if low is None or high is None else f" ({low:+.3f} to {high:+.3f})"
        return (
            f"Privacy of the sites at epsilon {self.epsilon:g} (delta {self.delta:g}) would cost "
            f"{self.cost.estimate:+.3f}{ends} on average, and leave a mean gain of {self.gain.estimate:+.3f}"
        )

    def as_dict(self, clients: Sequence[str]) -> dict[str, Any]:
        """For JSON."""

        def ends(interval: Interval) -> dict[str, float | None]:
            known = interval.known
            return {
                "estimate": interval.estimate,
                "low": interval.low if known else None,
                "high": interval.high if known else None,
            }

        plain = {name: getattr(self, name) for name in ("epsilon", "delta", "clip", "noise", "rounds")}
        sites = [
            {"client": client, "private": value, "verdict": word}
            for client, value, word in zip(clients, self.private, self.verdicts, strict=True)
        ]
        return plain | {"mean_gain": ends(self.gain), "mean_cost": ends(self.cost), "sites": sites}


def noise_for(epsilon: float, rounds: int, clients: int) -> float:
    """The least noise, in multiples of the clip, that spends no more than epsilon in so many rounds of all clients."""
    who = sampling(1.0, clients)

    def spent(noise: float) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Accountant(Privacy(1.0, noise, DELTA), who).epsilon(rounds)

    low, high = LEAST, MOST
    while high / low > 1 + 1e-6:
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
    return high


def privacy_cost(
    epsilon: float,
    candidate: Candidate,
    model: str,
    alone: list[Trial],
    advised: list[SplitChoices],
    problems: dict[str, list[Problem]],
    federations: list[Federation],
    shown: Metric,
    proper: Metric,
    rounds: int,
    look: Callable[[], None],
    say: Callable[[str, float], None],
    apart: Apart | None = None,
) -> PrivacyCost:
    """Train the candidate privately on all splits, choose the clip by validation loss, judge by test rows.

    Without the sites `apart`, if the advice leaves them out.

    That choice is not private itself. Every site still may keep to its own model, by the rule of the advice. Weights
    are uniform: those that follow from a site's rows would be released. The noise is drawn by the runs' seeds.
    """
    way = Contender("private", "private", (Candidate(same_weights(candidate.algorithm), candidate.finetune),))
    noise = noise_for(epsilon, rounds, len(federations[0]))
    trials: list[Trial] = []
    for place, clip in enumerate(CLIPS):
        privacy = Privacy(clip, noise, DELTA, study=True)
        trial = run_trial(way, model, problems[model], proper, rounds, lambda _: None, look, privacy)
        if apart is not None and trial is not None and trial.scores:
            trial = trial_without(apart, trial, way, problems[model], proper, rounds, lambda _: None, look, privacy)
        if trial is None:
            raise KeyboardInterrupt
        say(f"privacy at epsilon {epsilon:g}", (place + 1) / len(CLIPS))
        if trial.scores:
            trials.append(dataclasses.replace(trial, contender=str(clip)))  # `choose` tells trials apart by their names
    if not trials:
        raise PolyfedError(f"with privacy at epsilon {epsilon:g} every training diverged")
    choices = [choose([*alone, *trials], split, federations[split], proper) for split in range(len(federations))]
    gains = gains_of(federations, choices, shown, True)
    cost = gains_of(federations, advised, shown, True, over=choices)
    picks = [choice.trial.contender for choice in choices]
    private = [site_values(federations, choices, shown, place)[1] for place in range(len(federations[0]))]
    return PrivacyCost(
        epsilon,
        DELTA,
        float(max(sorted(set(picks)), key=picks.count)),
        noise,
        rounds,
        private,
        gains.mean,
        cost.mean,
        [verdict(own) for own in gains.clients],
    )


def same_weights(algorithm: Algorithm) -> Algorithm:
    """The method with the same weight for every client, where it would weigh them by what is theirs."""
    if isinstance(algorithm, Weighted | BondedMethod):
        return dataclasses.replace(algorithm, weighting="uniform")
    return algorithm
