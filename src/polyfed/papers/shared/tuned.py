"""Fair tuning: as many candidates for every method, chosen by the first seed's validation rows."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from polyfed.algorithms.contract import Algorithm, get_algorithm
from polyfed.core.schedules import Decay
from polyfed.engine.loop import PlannedRun
from polyfed.engine.measure import FineTune
from polyfed.engine.result import Result
from polyfed.engine.simulate import every_whole
from polyfed.papers.shared.experiment import ExperimentProgress
from polyfed.papers.shared.held_out import HeldOutRun, Options, banks, problem_of
from polyfed.papers.shared.run_cache import RunCache, work_folder
from polyfed.problem.problem import Problem
from polyfed.studies.tuning import tune


@dataclass(frozen=True)
class Entry:
    """A method of a comparison: its options where nothing is tuned, and the values that tuning tries instead."""

    method: str
    options: Options
    judged: str
    """which of its models is judged: "personal", "global" or "finetuned" """
    space: Options = ()
    """hyper-parameters with the values to try; every combination is a candidate"""
    published: bool = True
    """whether the options are the paper's own"""


@dataclass(frozen=True)
class Setting:
    """What all methods of a comparison have in common."""

    source: str
    data: Options
    model: str
    l2: float
    rounds: int
    steps: int
    """of fine-tuning"""
    batch: int
    """of fine-tuning"""
    rates: tuple[float, ...]
    """the stepsizes of fine-tuning to try"""
    participation: float = 1.0
    every: int = 10
    """rounds between points of a curve"""
    first_clients: int | None = None
    """use only so many clients, for a quick run"""
    untuned_rate: float | None = None
    """the stepsize of fine-tuning where nothing is tuned; by default the method's own"""

    def problem(self, seed: int = 0) -> Problem:
        return problem_of(self.source, self.data, seed, self.model, self.l2, self.first_clients)

    def run(self, choice: Choice, seed: int) -> HeldOutRun:
        return HeldOutRun(
            self.source,
            self.data,
            self.model,
            self.l2,
            choice.entry.method,
            choice.options,
            self.rounds,
            seed,
            self.participation,
            choice.finetune,
            self.every,
            self.first_clients,
        )

    def finetune(self, lr: float) -> FineTune:
        return FineTune(self.steps, lr, self.batch)


@dataclass(frozen=True)
class Choice:
    """A method's hyper-parameters; if it was tuned, their validation accuracy and that of the paper's own."""

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
        """What tuning chose. A winner at the end of its range is marked."""
        chosen = dict(self.options)
        words = [f"{name} {value_words(chosen[name])}{_edge(chosen[name], tried)}" for name, tried in self.entry.space]
        if self.finetune is not None:
            words.append(f"fine-tuning {self.finetune.lr:g}{_edge(self.finetune.lr, self.rates)}")
        return ", ".join(words)


_scores_of_runs: RunCache[list[list[float]]] = RunCache(list, list)


def choose(
    setting: Setting, entries: Mapping[str, Entry], budget: int, progress: ExperimentProgress
) -> dict[str, Choice]:
    """The winner of each method's `budget` candidates; with a budget of 0, each with the options that it has.

    A candidate for a localized model is a global model, fine-tuned with each of the setting's rates.
    """
    if not budget:
        return {label: _as_published(setting, entry) for label, entry in entries.items()}
    problem = setting.problem()
    plain = {label: _algorithm(entry) for label, entry in entries.items() if entry.judged != "finetuned"}
    tuning = tune(
        problem,
        {label: dict(entries[label].space) for label in plain},
        methods=plain,
        budget=budget,
        rounds=setting.rounds,
        participation=setting.participation,
        progress=lambda label, done, count, best: progress(f"tuning {label} {best}", int(done), count),
        folder=work_folder(("tuning", setting, tuple(entries.items()), budget)),
        resume=True,
        local_models=banks(),
        by="accuracy",
        metric="accuracy",
    )
    choices = {}
    for label, entry in entries.items():
        if entry.judged == "finetuned":
            choices[label] = _localized(setting, entry, budget, progress)
            continue
        best = tuning.winner(label)
        assert best is not None, f"all candidates of {label} diverged"
        published = next((_or_nan(t.score) for t in tuning.of(label) if _published(t.values, entry)), None)
        choices[label] = Choice(entry, _with(entry, best.values), None, best.score, published)
    return choices


def table(choices: Mapping[tuple[str, str], Choice]) -> str:
    """What tuning chose, as a table of the page; beside it what the paper's own values reach, where they are known."""
    head = ["data", "method", "chosen", "validation accuracy", "at the paper's values"]
    lines = []
    for (column, label), choice in choices.items():
        before = choice.published_score
        words = "" if before is None else "diverged" if math.isnan(before) else f"{before:.2%}"
        lines.append([column, label, choice.words, f"{choice.score:.2%}", words])
    width = len(head) - (not any(choice.entry.published for choice in choices.values()))
    return "\n".join(f"| {' | '.join(cells[:width])} |" for cells in (head, ["---"] * width, *lines))


def value_words(value: Decay | float) -> str:
    """A hyper-parameter for people."""
    return f"{value.initial:g} * {value.rate:g}^round" if isinstance(value, Decay) else f"{value:g}"


def _edge(value: Decay | float, tried: Sequence[Decay | float]) -> str:
    """A remark where a stepsize is the largest or smallest of those that were tried."""
    sizes, size = [_initial(each) for each in tried], _initial(value)
    if len(set(sizes)) < 2:
        return ""
    return {max(sizes): " (the largest tried)", min(sizes): " (the smallest tried)"}.get(size, "")


def _initial(value: Decay | float) -> float:
    return value.initial if isinstance(value, Decay) else value


def _algorithm(entry: Entry, options: Options | None = None) -> Algorithm:
    return get_algorithm(entry.method)(**dict(entry.options if options is None else options))


def _as_published(setting: Setting, entry: Entry) -> Choice:
    return Choice(entry, entry.options, _untuned(setting, entry) if entry.judged == "finetuned" else None)


def _untuned(setting: Setting, entry: Entry) -> FineTune:
    """Fine-tuning as in the paper, by steps of the same SGD, unless the setting has a stepsize for it."""
    if setting.untuned_rate is not None:
        return setting.finetune(setting.untuned_rate)
    return setting.finetune(_initial(dict(entry.options)["lr"]))


def _localized(setting: Setting, entry: Entry, budget: int, progress: ExperimentProgress) -> Choice:
    """The best pair of a candidate and a fine-tuning stepsize."""
    names, values = [name for name, _ in entry.space], [tried for _, tried in entry.space]
    candidates = [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*values)]
    assert len(candidates) == budget, f"{len(candidates)} candidates, expected {budget}"
    choices: list[tuple[_Reached, Choice]] = []
    untuned, published = _untuned(setting, entry), None
    progress(f"tuning localized {entry.method}", 0, budget)
    rates = tuple(sorted({*setting.rates, untuned.lr}))
    reached = _scores(setting, entry, [_with(entry, chosen) for chosen in candidates], rates)
    for chosen, scores in zip(candidates, reached, strict=True):
        options = _with(entry, chosen)
        choices += [
            (scores[rate], Choice(entry, options, setting.finetune(rate), scores[rate].accuracy, rates=setting.rates))
            for rate in setting.rates
            if math.isfinite(scores[rate].accuracy)
        ]
        if _published(chosen, entry):
            published = scores[untuned.lr].accuracy
    best = max(choices, key=lambda choice: (choice[0].accuracy, -choice[0].loss))[1]
    return replace(best, published_score=published)


class _Reached(NamedTuple):
    """The mean validation accuracy and loss of fine-tuned models; nan where they diverge."""

    accuracy: float
    loss: float


def _scores(
    setting: Setting, entry: Entry, candidates: Sequence[Options], rates: tuple[float, ...]
) -> list[dict[float, _Reached]]:
    """What each candidate's fine-tuned models reach on validation rows, by the stepsize of fine-tuning."""
    keys = [(setting, entry, options, rates) for options in candidates]
    missing = [key for key in keys if _scores_of_runs.get(key) is None]
    problem = setting.problem()

    def finished(place: int, result: Result) -> None:
        _scores_of_runs.put(missing[place], [_score(setting, result, rate) for rate in rates])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every_whole(
            [PlannedRun(problem, _algorithm(entry, options)) for _, _, options, _ in missing],
            finished,
            rounds=setting.rounds,
            participation=setting.participation,
            eval_every=setting.rounds,
        )
    return [{rate: _Reached(*pair) for rate, pair in zip(rates, _scores_of_runs[key], strict=True)} for key in keys]


def _score(setting: Setting, trained: Result, rate: float) -> list[float]:
    """Accuracy and loss on validation rows after fine-tuning."""
    if trained.diverged is not None:
        return [math.nan, math.nan]
    measured = trained.simulation.measure(setting.finetune(rate))["finetuned"]["validation"]
    loss = float(np.nanmean(measured["loss"]))
    metric = trained.simulation.problem.loss.metric_name
    return [float(np.nanmean(measured[metric])) if np.isfinite(loss) else math.nan, loss]


def _or_nan(score: float | None) -> float:
    return math.nan if score is None else score


def _published(values: Mapping[str, object], entry: Entry) -> bool:
    """Whether a candidate is the paper's own."""
    own = dict(entry.options)
    return entry.published and all(own.get(name) == value for name, value in values.items())


def _with(entry: Entry, values: Mapping[str, object]) -> Options:
    return tuple(sorted((dict(entry.options) | dict(values)).items()))
