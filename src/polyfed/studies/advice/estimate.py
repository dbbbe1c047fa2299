"""The procedure on every split, and what it is worth on the test rows of the splits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyfed.data import Federation
from polyfed.problem.metrics import Metric, constant_scores
from polyfed.problem.problem import Problem
from polyfed.studies.advice.choices import Deployed, federation_choice, site_choice
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

    def scores(self, place: int, rows: slice, free: bool) -> np.ndarray:
        """A site's test scores: of what it chose, if it is free to, else of the federation's model."""
        option = self.deploys[place] if free else "personal"
        source = self.alone if option == "alone" else self.trial
        return source.of("global" if option == "global" else "personal", "test")[self.split][rows]


def choose(trials: Sequence[Trial], split: int, federation: Federation, proper: Metric) -> SplitChoices:
    assert proper.by_row is not None
    alone = best_alone(trials, split)
    names = {key_of(trial): trial for trial in trials}
    best = names[federation_choice({key: trial.loss[split] for key, trial in names.items()}, key_of(alone))]
    stays = best.contender == ALONE
    others = [trial for trial in trials if trial.contender != ALONE]
    together = min(others, key=lambda trial: trial.loss[split]) if others else best
    part, deploys = federation.validation, []
    for place in range(len(federation)):
        rows = slice(part.offsets[place], part.offsets[place + 1])
        options: dict[Deployed, np.ndarray] = {
            "alone": proper.by_row(alone.of("personal", "validation")[split][rows], part.y[rows]),
            "personal": proper.by_row(together.of("personal", "validation")[split][rows], part.y[rows]),
        }
        if together.has_global:
            options["global"] = proper.by_row(together.of("global", "validation")[split][rows], part.y[rows])
        deploys.append(site_choice("alone" if stays else "personal", options).deploy)
    return SplitChoices(together, alone, split, deploys)


def best_alone(trials: Sequence[Trial], split: int | None) -> Trial:
    alone = [trial for trial in trials if trial.contender == ALONE]
    return min(alone, key=lambda trial: np.mean(trial.loss) if split is None else trial.loss[split])


def gains_of(federations: list[Federation], choices: list[SplitChoices], shown: Metric, free: bool) -> Gains:
    first = federations[0]
    making = GainsInTheMaking(shown, len(first), "splits", first.train.sizes + first.validation.sizes)
    for place in range(len(first)):
        pairs = []
        for federation, choice in zip(federations, choices, strict=True):
            rows = slice(federation.test.offsets[place], federation.test.offsets[place + 1])
            own = choice.alone.of("personal", "test")[choice.split][rows]
            pairs.append((choice.scores(place, rows, free), own, federation.test.y[rows]))
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
    problems: dict[str, list[Problem]],
    federations: list[Federation],
    shown: Metric,
    proper: Metric,
) -> list[dict[str, Any]]:
    """A row per contender and model, and one for the constant predictor; metrics are means over sites and splits."""
    rows: list[dict[str, Any]] = []

    def add(method: str, model: str, loss: float, scores: Callable[[int], np.ndarray]) -> None:
        row = {"method": method, "model": model, "validation_loss": loss}
        rows.append({**row, shown.name: _mean_metric(federations, shown, scores)})

    def same(split: int, part: str = "test") -> np.ndarray:
        problem, sizes = next(iter(problems.values()))[split], federations[split].split(part).sizes
        scores = [constant_scores(problem, client) for client in range(len(sizes))]
        return np.concatenate([np.broadcast_to(s, (size, *s.shape)) for s, size in zip(scores, sizes, strict=True)])

    def loss_of_same(split: int) -> float:
        assert proper.by_row is not None
        return float(np.mean(proper.by_row(same(split, "validation"), federations[split].validation.y)))

    for trial in trials:
        add(trial.contender, trial.model, float(np.mean(trial.loss)), lambda s, t=trial: t.of("personal", "test")[s])
    add("constant", "", float(np.mean([loss_of_same(split) for split in range(len(federations))])), same)
    return rows


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
    return f"{trial.contender} ({trial.model})"
