"""Sites that spoil a common model: a way of training is tried once more without them."""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Self

import numpy as np

from polyfed.engine.privacy.mechanism import Privacy
from polyfed.problem.metrics import Metric, constant_scores
from polyfed.problem.problem import Problem
from polyfed.studies.advice.choices import certainly_lower
from polyfed.studies.advice.clock import Clock, OutOfTime
from polyfed.studies.advice.contenders import ALONE, Contender
from polyfed.studies.advice.trials import Trial, run_trial


@dataclasses.dataclass(frozen=True)
class Apart:
    """Sites that a common model fails, by draw, and those that are left out in training."""

    sites: tuple[int, ...]
    draws: tuple[bool, ...]
    """by draw: whether its own validation rows name all of them. In other draws nobody is left out"""

    @classmethod
    def of(cls, trial: Trial) -> Self:
        """Those that a trial was trained without."""
        return cls(tuple(next(sites for sites in trial.apart if sites)), tuple(map(bool, trial.apart)))


def sites_apart(trials: Sequence[Trial], problems: Sequence[Problem], proper: Metric) -> Apart | None:
    """The sites that half of the draws or more name together; None if there are none.

    A draw names a site if the global model has a higher loss on its validation rows than a constant prediction, the
    class frequencies or the mean of its training rows, with 95% confidence over all sites. To be worse than the site's
    own model is not enough: where one site spoils the global model, it is so at all of them. Where it fails half of the
    sites or more, it is no model that a few could spoil.
    """
    joint = next((trial for trial in trials if trial.has_global), None)
    if joint is None:
        return None
    named = [_named(joint, split, problem, proper) for split, problem in enumerate(problems)]
    ranked = [place for place, _ in Counter(place for found in named for place in found).most_common()]
    for count in range(len(ranked), 0, -1):
        draws = tuple(found >= set(ranked[:count]) for found in named)
        if 2 * sum(draws) >= len(problems):
            return Apart(tuple(sorted(ranked[:count])), draws)
    return None


def _named(joint: Trial, split: int, problem: Problem, proper: Metric) -> set[int]:
    assert proper.by_row is not None
    rows, sites = problem.federation.validation, len(problem.federation)
    together = proper.by_row(joint.of("global", "validation")[split], rows.y)
    apart = set()
    for place, (start, end) in enumerate(pairwise(rows.offsets)):
        scores = constant_scores(problem, place)
        same = proper.by_row(np.broadcast_to(scores, (end - start, *scores.shape)), rows.y[start:end])
        if certainly_lower(together[start:end], same, sites):
            apart.add(place)
    return apart if 2 * len(apart) < sites else set()


def others(problem: Problem, apart: Sequence[int]) -> list[int]:
    """The places of the sites that train together."""
    return [place for place in range(len(problem.federation)) if place not in apart]


def without(problem: Problem, apart: Sequence[int]) -> Problem:
    """The same problem on the rows of the others."""
    fewer = problem.federation.select(others(problem, apart))
    return Problem(fewer, problem.model, problem.loss.name, l2=problem.l2)


def trial_without(
    apart: Apart,
    base: Trial,
    way: Contender,
    problems: Sequence[Problem],
    proper: Metric,
    rounds: int,
    progress: Callable[[float], None],
    look: Callable[[], None] = lambda: None,
    privacy: Privacy | None = None,
) -> Trial | None:
    """`way` trained without the sites apart, in the draws that name them; all else is that of `base`.

    Sites apart keep the scores of `base`: the procedure lets them deploy their own model.
    """
    assert proper.by_row is not None
    draws = [split for split, named in enumerate(apart.draws) if named]
    fewer = [without(problems[split], apart.sites) for split in draws]
    rest = others(problems[0], apart.sites)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = run_trial(way, base.model, fewer, proper, rounds, progress, look, privacy)
    if found is None or not found.scores:
        return found
    scores = {name: values.copy() for name, values in base.scores.items() if name in found.scores}
    loss = list(base.loss)
    for position, split in enumerate(draws):
        for name, values in scores.items():
            part = problems[split].federation.split(name.split()[-1])
            there = np.isin(np.repeat(np.arange(len(part.sizes)), part.sizes), rest)
            values[split][there] = found.scores[name][position]
        rows = proper.by_row(scores["personal validation"][split], problems[split].federation.validation.y)
        loss[split] = float(np.mean(rows))
    chosen = list(base.chosen)
    for position, split in enumerate(draws):
        chosen[split] = found.chosen[position]
    return dataclasses.replace(
        found,
        chosen=chosen,
        loss=loss,
        scores=scores,
        apart=[list(apart.sites) if named else [] for named in apart.draws],
    )


def tried_without(
    trials: Sequence[Trial],
    ways: Sequence[Contender],
    problems: Mapping[str, Sequence[Problem]],
    proper: Metric,
    rounds: int,
    clock: Clock,
    say: Callable[[str, float], None],
) -> tuple[list[Trial], list[str]]:
    """What is tried again without the sites apart, and what the time did not allow.

    The way of training with the lowest validation loss, and with the same model the global one, plain and fine-tuned.
    """
    joint = [trial for trial in trials if trial.contender != ALONE]
    apart = sites_apart(trials, next(iter(problems.values())), proper)
    if apart is None or not joint:
        return [], []
    best = min(joint, key=lambda trial: float(np.mean(trial.loss)))
    names = (best.contender, "global", "fine-tuned")
    again = [trial for trial in joint if trial.model == best.model and trial.contender in names]
    clients = next(iter(problems.values()))[0].federation.clients
    gone = "without " + ", ".join(clients[place] for place in apart.sites)
    found, skipped = [], []
    for base in again:
        way = next(way for way in ways if way.name == base.contender)
        what = f"{way.label}, {base.model}, {gone}"
        try:
            trial = trial_without(
                apart, base, way, problems[base.model], proper, rounds, lambda share, w=what: say(w, share), clock.look
            )
        except OutOfTime:
            skipped.append(what)
            continue
        if trial is None:
            raise KeyboardInterrupt
        if trial.scores:
            found.append(trial)
    return found, skipped
