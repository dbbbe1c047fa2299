"""What training together is worth to each site: the whole procedure, choices included, on rows that no choice saw."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyfed.core.errors import Interrupted, PolyfedError, suggestion
from polyfed.data import Federation
from polyfed.data.cautions import cautions
from polyfed.models import linear, mlp
from polyfed.problem.metrics import Metric, default_metric, metric_named
from polyfed.problem.problem import Problem
from polyfed.studies.advice.answer import Advice, SiteAdvice, end_of
from polyfed.studies.advice.choices import Deployed, federation_choice, vote
from polyfed.studies.advice.contenders import ALONE, contenders
from polyfed.studies.advice.estimate import best_alone, choose, comparison, gains_of, key_of, site_values
from polyfed.studies.advice.influence import influence
from polyfed.studies.advice.trials import OutOfTime, Trial, read_trial, run_trial
from polyfed.studies.verdicts import count_verdicts, detectable, verdict

if TYPE_CHECKING:
    import pandas

SPLITS = 10
ROUNDS = 50
L2 = 1e-3
VALIDATION, TEST = 0.15, 0.2
"""The shares of a table's rows at each site that choose, and that judge."""
MOST_INFLUENCE = 40
"""Sites up to which leaving each of them out is tried."""
AFTERWARDS = 0.15
"""The share of the time that is kept for what follows the choice."""
FASTEST = 2.0
"""Seconds that no part of the work is thought to stay below, before any was timed."""
Progress = Callable[[str, float], None]
"""Called with what is being done, and which share of it is."""


class AdviceStopped(Interrupted):
    """Ctrl-C ended the work; what was done is kept."""

    def __init__(self, done: int, total: int, folder: Path | None) -> None:
        more = "" if folder is None else "; --resume goes on from there"
        Exception.__init__(self, f"stopped after {done} of {total} parts{more}")
        self.folder = folder or Path()


def advise(
    data: Federation | pandas.DataFrame,
    *,
    client: str | None = None,
    target: str | None = None,
    minutes: float = 5.0,
    splits: int = SPLITS,
    rounds: int = ROUNDS,
    metric: str | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    resume: bool = False,
    methods: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Advice:
    """Should these sites train together, how, and what should each of them deploy?

    Every way of training is tried with the same budget on `splits` draws of training, validation and test rows. In each
    draw the federation's method is the one with the lowest validation loss, and each site may keep to its own or to the
    global model where its validation rows speak for that for certain. Gains come from test rows, which choose nothing.
    `data`: a federation, or a table with a column of sites, `client`, and one to predict, `target`.
    `methods` and `models` leave others out; going alone is always tried.
    `minutes` bounds the work; what it leaves out is said. `folder`: where finished parts are kept; `resume`: go on.
    """
    federation = _federation(data, client, target, seed)
    _check(federation, minutes, splits, rounds)
    begun = time.monotonic()
    end = begun + 60 * minutes
    tried_by = end - AFTERWARDS * 60 * minutes
    say = progress or (lambda *_: None)
    federations = [federation.redrawn(seed + split) for split in range(splits)]
    loss = "softmax" if federation.classes is not None else _binary_or_squared(federation)
    kinds: dict[str, Any] = {"linear": linear(), "MLP [16]": mlp([16])}
    for name in models or ():
        if name not in kinds:
            raise PolyfedError(f"unknown model {name!r}{suggestion(name, kinds)}")
    problems = {
        name: [Problem(fed, model, loss, l2=L2) for fed in federations]
        for name, model in kinds.items()
        if models is None or name in models
    }
    first = next(iter(problems.values()))[0]
    shown = default_metric(first) if metric is None else metric_named(metric, first)
    proper = metric_named("squared_error" if first.loss.name == "squared" else "log_loss", first)
    for name in methods or ():
        known = [contender.name for contender in contenders()]
        if name not in known:
            raise PolyfedError(f"unknown method {name!r}{suggestion(name, known)}")
    wanted = [
        (name, contender)
        for name in problems
        for contender in contenders()
        if methods is None or contender.name in {ALONE, *methods}
    ]
    trials: list[Trial] = []
    skipped: list[str] = []
    longest: dict[str, float] = {}
    for place, (name, contender) in enumerate(wanted):
        path = None if folder is None else Path(folder) / "trials" / f"{place:02d}.safetensors"
        kept = read_trial(path) if path is not None and resume else None
        what = f"{contender.label}, {name}"
        if kept is None:
            expected = longest.get(name, 1.5 * max(longest.values(), default=FASTEST))
            if trials and time.monotonic() + expected > tried_by:
                skipped.append(what)
                continue
            started = time.monotonic()
            latest = tried_by if trials else float("inf")
            try:
                kept = run_trial(
                    contender, name, problems[name], proper, rounds, lambda share, w=what: say(w, share), latest
                )
            except OutOfTime:
                skipped.append(what)
                continue
            if kept is None:
                raise AdviceStopped(len(trials), len(wanted), None if folder is None else Path(folder))
            longest[name] = max(longest.get(name, 0.0), time.monotonic() - started)
            if path is not None:
                kept.write(path)
        say(what, 1.0)
        if kept.scores:
            trials.append(kept)
        else:
            skipped.append(f"{what}: every candidate diverged on some split")
    return _answer(trials, problems, federations, shown, proper, skipped, begun, end, rounds, say)


def _answer(
    trials: list[Trial],
    problems: dict[str, list[Problem]],
    federations: list[Federation],
    shown: Metric,
    proper: Metric,
    skipped: list[str],
    begun: float,
    end: float,
    rounds: int,
    say: Progress,
) -> Advice:
    if not any(trial.contender == ALONE for trial in trials):
        raise PolyfedError("training alone diverged with every stepsize: are features on very different scales?")
    choices = [choose(trials, split, federations[split], proper) for split in range(len(federations))]
    names = {key_of(trial): trial for trial in trials}
    mean_loss = {key: float(np.mean(trial.loss)) for key, trial in names.items()}
    winner = names[federation_choice(mean_loss, key_of(best_alone(trials, None)))]
    default: Deployed = "alone" if winner.contender == ALONE else "personal"
    advised, together = (gains_of(federations, choices, shown, free) for free in (True, False))
    corrected = count_verdicts(advised.clients).verdicts
    fed = federations[0]
    sizes = sum((fed.split(part).sizes for part in ("train", "validation", "test")), np.zeros(len(fed), int))
    sites = []
    for place, client in enumerate(fed.clients):
        own, joint = advised.clients[place], together.clients[place]
        values = site_values(federations, choices, shown, place)
        sites.append(
            SiteAdvice(
                client,
                int(sizes[place]),
                int(fed.test.sizes[place]),
                vote([choice.deploys[place] for choice in choices], default),
                verdict(own),
                own.estimate,
                end_of(own, own.low),
                end_of(own, own.high),
                corrected[place],
                detectable(own) if own.known else None,
                *values,
                verdict(joint),
                joint.estimate,
                end_of(joint, joint.low),
                end_of(joint, joint.high),
            )
        )
    contender = next(c for c in contenders() if c.name == winner.contender)
    candidate = contender.candidates[winner.best]
    effects = None
    if winner.contender != ALONE and 2 < len(fed) <= MOST_INFLUENCE and time.monotonic() < end:
        say("leaving each site out", 0.0)
        effects = influence(problems[winner.model], candidate, proper, rounds, end)
    return Advice(
        winner.contender,
        contender.label,
        winner.model,
        candidate,
        shown,
        sites,
        advised.mean,
        comparison(trials, problems, federations, shown, proper),
        skipped,
        [str(caution) for caution in cautions(fed)],
        winner.rounds,
        winner.bits_up,
        winner.bits_down,
        winner.seconds,
        time.monotonic() - begun,
        len(federations),
        effects,
    )


def _binary_or_squared(federation: Federation) -> str:
    values = federation.label_values()
    return "logistic" if len(values) == 2 and set(values.tolist()) == {-1, 1} else "squared"


def _federation(data: Any, client: str | None, target: str | None, seed: int) -> Federation:
    if isinstance(data, Federation):
        if client is not None or target is not None:
            raise PolyfedError("client and target go with a table; a federation has both already")
        return data
    if client is None or target is None or not hasattr(data, "columns"):
        kind = type(data).__name__
        raise PolyfedError(f"advise needs a Federation, or a table with client= and target=, found {kind}")
    return Federation.from_dataframe(data, client=client, target=target, validation=VALIDATION, test=TEST, seed=seed)


def _check(federation: Federation, minutes: float, splits: int, rounds: int) -> None:
    if len(federation) < 2:
        raise PolyfedError("advise needs at least two sites (is it the right client column?), found one")
    if not minutes > 0:
        raise PolyfedError(f"minutes must be above 0, found {minutes:g}")
    if splits < 3 or rounds < 1:
        raise PolyfedError(f"splits must be at least 3 and rounds at least 1, found {splits} and {rounds}")
    for part in ("validation", "test"):
        if not federation.split(part).rows:
            raise PolyfedError(f"advise needs {part} rows at the sites, found none")
