"""Fair comparisons: every method gets the same number of candidates, chosen by the first seed's validation rows."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyfed.algorithms.contract import Algorithm, get_algorithm
from polyfed.core.schedules import Decay
from polyfed.engine.measure import FineTune
from polyfed.engine.simulate import simulate_whole
from polyfed.papers.shared.experiment import Progress
from polyfed.papers.shared.finished import Kept, folder_of
from polyfed.papers.shared.held_out import Options, Run, problem_of
from polyfed.problem.problem import Problem
from polyfed.studies.tuning import tune


@dataclass(frozen=True)
class Entry:
    """A method of a comparison: its options as the paper has them, and the values that are searched instead."""

    method: str
    options: Options
    judged: str
    """which of its models: "personal", "global" or "finetuned" """
    space: Options = ()
    """hyper-parameters with the values to try; all combinations are the candidates"""


@dataclass(frozen=True)
class Setting:
    """What all methods of a comparison have in common."""

    source: str
    data: Options
    model: str
    l2: float
    rounds: int
    steps: int
    """of fine-tuning, and its batch and the stepsizes that are tried"""
    batch: int
    rates: tuple[float, ...]
    participation: float = 1.0
    every: int = 10
    """rounds between points of a curve"""
    kept: int | None = None
    """only the first so many clients, for a quick run"""
    untuned_rate: float | None = None
    """the stepsize of fine-tuning where nothing is tuned; by default the method's own"""

    def problem(self, seed: int = 0) -> Problem:
        return problem_of(self.source, self.data, seed, self.model, self.l2, self.kept)

    def run(self, choice: Choice, seed: int) -> Run:
        entry, data = choice.entry, (self.source, self.data, self.model, self.l2)
        more = {"participation": self.participation, "finetune": choice.finetune, "every": self.every}
        more["kept"] = self.kept
        return Run(*data, entry.method, choice.options, self.rounds, seed, **more)

    def finetune(self, lr: float) -> FineTune:
        return FineTune(self.steps, lr, self.batch)


@dataclass(frozen=True)
class Choice:
    """A method's hyper-parameters; where it was tuned, the validation accuracies that they and the paper's reached."""

    entry: Entry
    options: Options
    finetune: FineTune | None = None
    score: float | None = None
    published_score: float | None = None
    """nan where it diverged"""
    rates: tuple[float, ...] = ()
    """the stepsizes of fine-tuning that were tried"""

    @property
    def words(self) -> str:
        """What was searched and chosen; a winner at the end of what was tried is pointed out."""
        chosen = dict(self.options)
        words = [f"{name} {shown(chosen[name])}{_edge(chosen[name], tried)}" for name, tried in self.entry.space]
        if self.finetune is not None:
            words.append(f"fine-tuning {self.finetune.lr:g}{_edge(self.finetune.lr, self.rates)}")
        return ", ".join(words)


_kept: Kept[list[float]] = Kept(list, list)


def choose(setting: Setting, entries: Mapping[str, Entry], budget: int, progress: Progress) -> dict[str, Choice]:
    """The winner of each method's `budget` candidates; with a budget of 0, the paper's own hyper-parameters.

    Of a localized model every candidate is a global model, fine-tuned with each of the setting's rates.
    """
    if not budget:
        return {label: _as_published(setting, entry) for label, entry in entries.items()}
    problem = setting.problem()
    plain = {label: _algorithm(entry) for label, entry in entries.items() if entry.judged != "finetuned"}
    found = tune(
        problem,
        {label: dict(entries[label].space) for label in plain},
        methods=plain,
        budget=budget,
        rounds=setting.rounds,
        participation=setting.participation,
        progress=lambda label, done, count, best: progress(f"tuning {label} {best}", int(done), count),
        folder=folder_of(("tuning", setting, tuple(entries.items()), budget)),
        resume=True,
    )
    choices = {}
    for label, entry in entries.items():
        if entry.judged == "finetuned":
            choices[label] = _localized(setting, entry, budget, progress)
            continue
        best = found.winner(label)
        assert best is not None, f"all candidates of {label} diverged"
        published = next((_or_nan(t.score) for t in found.of(label) if _published(t.values, entry)), None)
        choices[label] = Choice(entry, _with(entry, best.values), None, best.score, published)
    return choices


def table(choices: Mapping[tuple[str, str], Choice]) -> str:
    """What tuning chose, as a table of the page."""
    lines = [
        "| data | method | chosen | validation accuracy | at the paper's values |",
        "| --- | --- | --- | --- | --- |",
    ]
    for (column, label), choice in choices.items():
        before = choice.published_score
        words = "" if before is None else "diverged" if math.isnan(before) else f"{before:.2%}"
        lines.append(f"| {column} | {label} | {choice.words} | {choice.score:.2%} | {words} |")
    return "\n".join(lines)


def shown(value: Any) -> str:
    """A hyper-parameter for people."""
    return f"{value.initial:g} * {value.rate:g}^round" if isinstance(value, Decay) else f"{value:g}"


def _edge(value: Any, tried: Sequence[Any]) -> str:
    """Whether a stepsize is the largest or smallest of those that were tried."""
    sizes = [each.initial if isinstance(each, Decay) else each for each in tried]
    size = value.initial if isinstance(value, Decay) else value
    if len(sizes) < 4:
        return ""
    return {max(sizes): " (the largest tried)", min(sizes): " (the smallest tried)"}.get(size, "")


def _algorithm(entry: Entry, options: Options | None = None) -> Algorithm:
    return get_algorithm(entry.method)(**dict(entry.options if options is None else options))


def _as_published(setting: Setting, entry: Entry) -> Choice:
    return Choice(entry, entry.options, _untuned(setting, entry) if entry.judged == "finetuned" else None)


def _untuned(setting: Setting, entry: Entry) -> FineTune:
    """Fine-tuning as the paper says it, steps of the same SGD, unless the setting has a stepsize for it."""
    if setting.untuned_rate is not None:
        return setting.finetune(setting.untuned_rate)
    lr: Any = dict(entry.options)["lr"]
    return setting.finetune(lr.initial if isinstance(lr, Decay) else lr)


def _localized(setting: Setting, entry: Entry, budget: int, progress: Progress) -> Choice:
    """The best pair of a candidate and a fine-tuning stepsize."""
    names, values = [name for name, _ in entry.space], [tried for _, tried in entry.space]
    candidates = [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*values)]
    assert len(candidates) == budget, f"{len(candidates)} candidates, expected {budget}"
    choices: list[Choice] = []
    untuned, published = _untuned(setting, entry), None
    for done, chosen in enumerate(candidates):
        progress(f"tuning localized {entry.method}", done, budget)
        options = _with(entry, chosen)
        scores = _scores(setting, entry, options, tuple(sorted({*setting.rates, untuned.lr})))
        found = {rate: setting.finetune(rate) for rate in setting.rates if math.isfinite(scores[rate])}
        choices += [Choice(entry, options, found[rate], scores[rate], rates=setting.rates) for rate in found]
        if _published(chosen, entry):
            published = scores[untuned.lr]
    return replace(max(choices, key=lambda choice: choice.score or 0.0), published_score=published)


def _scores(setting: Setting, entry: Entry, options: Options, rates: tuple[float, ...]) -> dict[float, float]:
    """The validation accuracy of the fine-tuned model by the stepsize of fine-tuning; nan where it diverges."""
    found = _kept.of((setting, entry, options, rates), lambda run: _scored(*run))
    return dict(zip(rates, found, strict=True))


def _scored(setting: Setting, entry: Entry, options: Options, rates: tuple[float, ...]) -> list[float]:
    problem = setting.problem()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trained = simulate_whole(
            problem,
            _algorithm(entry, options),
            rounds=setting.rounds,
            participation=setting.participation,
            eval_every=setting.rounds,
        )
    if trained.diverged is not None:
        return [math.nan] * len(rates)
    scores = []
    for rate in rates:
        measured = trained.simulation.measure(setting.finetune(rate))["finetuned"]["validation"]
        sound = np.isfinite(np.nanmean(measured["loss"]))
        scores.append(float(np.nanmean(measured[problem.loss.metric_name])) if sound else math.nan)
    return scores


def _or_nan(score: float | None) -> float:
    return math.nan if score is None else score


def _published(values: Mapping[str, Any], entry: Entry) -> bool:
    own = dict(entry.options)
    return all(own.get(name) == value for name, value in values.items())


def _with(entry: Entry, values: Mapping[str, Any]) -> Options:
    return tuple(sorted((dict(entry.options) | dict(values)).items()))
