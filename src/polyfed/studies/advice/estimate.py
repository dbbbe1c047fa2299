"""The procedure on every split, and what it is worth on the test rows of the splits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyfed.data import Federation
from polyfed.problem.metrics import Metric, constant_scores
from polyfed.problem.problem import Problem
from polyfed.studies.advice.choices import Deployed, federation_choice, site_choice, vote
from polyfed.studies.advice.contenders import ALONE
from polyfed.studies.advice.trials import Trial
from polyfed.studies.gains import Gains, GainsInTheMaking
from polyfed.studies.same_rows import rarest_class, same_rows


@dataclass(frozen=True)
class SplitChoices:
    """The procedure on one split: the federation's trial, what each site deploys, and all that is compared."""

    trial: Trial
    alone: Trial
    split: int
    deploys: list[Deployed]
    losses: dict[str, float]
    """by trial: the validation loss of what sites would deploy"""

    def scores(self, place: int, rows: slice, free: bool) -> np.ndarray:
        """A site's test scores: of what it chose, if it is free to, else of the federation's model."""
        option = self.deploys[place] if free else "personal"
        source = self.alone if option == "alone" else self.trial
        return source.of("global" if option == "global" else "personal", "test")[self.split][rows]


def choose(trials: Sequence[Trial], split: int, federation: Federation, proper: Metric) -> SplitChoices:
    """The trial with the lowest validation loss, where sites whose rows speak against it for certain leave it."""
    alone = best_alone(trials, split)
    names = {key_of(trial): trial for trial in trials}
    losses: dict[str, float] = {}
    left: dict[str, list[Deployed]] = {}
    for key, trial in names.items():
        losses[key] = trial.loss[split]
        if trial.contender != ALONE:
            left[key], losses[key] = _sites_choose(trial, alone, split, federation, proper, "personal")
    best = names[federation_choice(losses, key_of(alone))]
    if best.contender != ALONE:
        return SplitChoices(best, alone, split, left[key_of(best)], losses)
    if not left:
        return SplitChoices(best, alone, split, ["alone"] * len(federation), losses)
    together = names[min(left, key=lambda key: losses[key])]
    deploys, _ = _sites_choose(together, alone, split, federation, proper, "alone")
    return SplitChoices(together, alone, split, deploys, losses)


def _sites_choose(
    trial: Trial, alone: Trial, split: int, federation: Federation, proper: Metric, default: Deployed
) -> tuple[list[Deployed], float]:
    """What each site deploys, and the mean loss of that over all validation rows."""
    assert proper.by_row is not None
    part, deploys, total = federation.validation, [], 0.0
    for place in range(len(federation)):
        rows = slice(part.offsets[place], part.offsets[place + 1])
        options: dict[Deployed, np.ndarray] = {
            "alone": proper.by_row(alone.of("personal", "validation")[split][rows], part.y[rows]),
            "personal": proper.by_row(trial.of("personal", "validation")[split][rows], part.y[rows]),
        }
        if trial.has_global:
            options["global"] = proper.by_row(trial.of("global", "validation")[split][rows], part.y[rows])
        deploys.append("alone" if place in trial.apart_in(split) else site_choice(default, options))
        total += float(np.sum(options[deploys[-1]]))
    return deploys, total / part.rows


def advised(
    trials: Sequence[Trial], choices: Sequence[SplitChoices], losses: Mapping[str, float]
) -> tuple[Trial, list[Deployed]]:
    """The federation's way of training, and what each site deploys: what most splits chose for it.

    `losses`: of what sites would deploy with each trial, means over the splits. Where all sites together have most by
    staying alone and some still have more by a common model, the way is that of the common model.
    """
    names = {key_of(trial): trial for trial in trials}
    best = names[federation_choice(losses, key_of(best_alone(trials, None)))]
    default: Deployed = "alone" if best.contender == ALONE else "personal"
    told: list[Deployed] = [vote(own, default) for own in zip(*(choice.deploys for choice in choices), strict=True)]
    if best.contender == ALONE and set(told) != {"alone"}:
        best = min((trial for trial in trials if trial.contender != ALONE), key=lambda trial: losses[key_of(trial)])
    for place in next(filter(None, best.apart), []):
        told[place] = "alone"
    return best, told


def best_alone(trials: Sequence[Trial], split: int | None) -> Trial:
    alone = [trial for trial in trials if trial.contender == ALONE]
    return min(alone, key=lambda trial: np.mean(trial.loss) if split is None else trial.loss[split])


def gains_of(
    federations: list[Federation],
    choices: list[SplitChoices],
    shown: Metric,
    free: bool,
    over: list[SplitChoices] | None = None,
) -> Gains:
    """Of the choices over going alone, or over other choices; `free`: sites deploy what they chose."""
    first = federations[0]
    making = GainsInTheMaking(shown, len(first), "splits", first.train.sizes + first.validation.sizes)
    for place in range(len(first)):
        pairs = []
        for split, (federation, choice) in enumerate(zip(federations, choices, strict=True)):
            rows = slice(federation.test.offsets[place], federation.test.offsets[place + 1])
            if over is None:
                reference = choice.alone.of("personal", "test")[choice.split][rows]
            else:
                reference = over[split].scores(place, rows, free)
            pairs.append((choice.scores(place, rows, free), reference, federation.test.y[rows]))
        making.add(place, pairs, same_rows(federations, place), rarest_class(federations, place))
    return making.finished()


def site_values(
    federations: list[Federation], choices: list[SplitChoices], shown: Metric, place: int
) -> tuple[float, float]:
    """The metric of a site's model alone and of what it deploys by the advice; means over the splits that have it."""
    values = []
    for federation, choice in zip(federations, choices, strict=True):
        rows = slice(federation.test.offsets[place], federation.test.offsets[place + 1])
        labels = federation.test.y[rows]
        own = choice.alone.of("personal", "test")[choice.split][rows]
        values.append([shown(own, labels), shown(choice.scores(place, rows, True), labels)])
    alone, advised = np.array(values).T
    return _mean(alone), _mean(advised)


def comparison(
    trials: list[Trial],
    losses: Mapping[str, float],
    problems: dict[str, list[Problem]],
    federations: list[Federation],
    shown: Metric,
    proper: Metric,
) -> list[dict[str, Any]]:
    """A row per contender and model, and one for the constant predictor; metrics are means over sites and splits.

    `losses` chose: sites whose rows spoke against a trial had left it. Metrics are of the trial at all sites but those
    apart, which have their own models.
    """
    rows: list[dict[str, Any]] = []

    def add(method: str, model: str, loss: float, scores: Callable[[int], np.ndarray], apart: bool = False) -> None:
        row = {"method": method, "model": model, "apart": apart, "validation_loss": loss}
        rows.append({**row, shown.name: _mean_metric(federations, shown, scores)})

    def same(split: int, part: str = "test") -> np.ndarray:
        problem, sizes = next(iter(problems.values()))[split], federations[split].split(part).sizes
        scores = [constant_scores(problem, client) for client in range(len(sizes))]
        return np.concatenate([np.broadcast_to(s, (size, *s.shape)) for s, size in zip(scores, sizes, strict=True)])

    def loss_of_same(split: int) -> float:
        assert proper.by_row is not None
        return float(np.mean(proper.by_row(same(split, "validation"), federations[split].validation.y)))

    for trial in trials:
        add(
            trial.contender,
            trial.model,
            losses[key_of(trial)],
            lambda s, t=trial: _with_those_apart(t, best_alone(trials, s), s, federations[s]),
            bool(trial.apart),
        )
    add("constant", "", float(np.mean([loss_of_same(split) for split in range(len(federations))])), same)
    return rows


def _with_those_apart(trial: Trial, alone: Trial, split: int, federation: Federation) -> np.ndarray:
    """A trial's test scores, where sites apart have those of their own model."""
    scores, own = trial.of("personal", "test")[split], alone.of("personal", "test")[split]
    sizes = federation.test.sizes
    apart = np.isin(np.repeat(np.arange(len(sizes)), sizes), trial.apart_in(split))
    return np.where(apart.reshape(-1, *(1,) * (scores.ndim - 1)), own, scores)


def _mean_metric(federations: list[Federation], shown: Metric, scores: Callable[[int], np.ndarray]) -> float:
    values = []
    for split, federation in enumerate(federations):
        whole = scores(split)
        for place in range(len(federation)):
            rows = slice(federation.test.offsets[place], federation.test.offsets[place + 1])
            values.append(shown(whole[rows], federation.test.y[rows]))
    return _mean(np.array(values))


def _mean(values: np.ndarray) -> float:
    there = values[np.isfinite(values)]
    return float(np.mean(there)) if len(there) else float("nan")


def key_of(trial: Trial) -> str:
    return f"{trial.contender} ({trial.model}{', some apart' * bool(trial.apart)})"
