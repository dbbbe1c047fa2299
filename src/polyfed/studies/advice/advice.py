"""What training together is worth to each site: the whole procedure, choices included, on rows that no choice saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyfed.core.errors import Interrupted, PolyfedError, own_names
from polyfed.data import Federation
from polyfed.data.cautions import cautions
from polyfed.problem.metrics import Metric, default_metric, metric_named
from polyfed.problem.problem import Problem
from polyfed.studies.advice.answer import Advice, SiteAdvice, end_of
from polyfed.studies.advice.apart import Apart, tried_without, without
from polyfed.studies.advice.choices import Deployed
from polyfed.studies.advice.clock import Clock, OutOfTime
from polyfed.studies.advice.contenders import ALONE
from polyfed.studies.advice.estimate import (
    SplitChoices,
    advised,
    best_alone,
    choose,
    comparison,
    gains_of,
    key_of,
    site_values,
)
from polyfed.studies.advice.influence import influence
from polyfed.studies.advice.kept_parts import KeptParts
from polyfed.studies.advice.private import noise_for, privacy_cost
from polyfed.studies.advice.settings import AdviceSettings, loss_for
from polyfed.studies.advice.trials import Trial, run_trial
from polyfed.studies.gains import Gains
from polyfed.studies.verdicts import count_verdicts, detectable, verdict

if TYPE_CHECKING:
    import pandas

VALIDATION, TEST = 0.15, 0.2
"""The shares of a table's rows at each site that choose, and that judge."""
MOST_INFLUENCE = 40
"""Sites up to which leaving each of them out is tried."""
AFTERWARDS, WITH_PRIVACY = 0.15, 0.3
"""The share of the time that is kept for what follows the choice; with an epsilon."""
Progress = Callable[[str, float], None]
"""Called with what is being done, and which share of it is."""


class AdviceStopped(Interrupted):
    """Ctrl-C ended the work; what was done is kept."""

    def __init__(self, done: int, total: int, folder: Path | None) -> None:
        more = "" if folder is None else "; --resume goes on from there"
        Exception.__init__(self, f"stopped after {done} of {total} parts{more}")
        self.folder = folder or Path()


@own_names
def advise(
    data: Federation | pandas.DataFrame,
    *,
    client: str | None = None,
    target: str | None = None,
    minutes: float = AdviceSettings.minutes,
    splits: int = AdviceSettings.splits,
    rounds: int = AdviceSettings.rounds,
    metric: str | None = None,
    epsilon: float | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    resume: bool = False,
    methods: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Advice:
    """Should these sites train together, how, and what should each of them deploy?

    Every way of training is tried with the same budget on `splits` draws of training, validation and test rows. In each
    draw, each site may keep to its own or to the global model where its validation rows speak for that for certain, and
    the federation's method is the one with the lowest validation loss of what sites then deploy. Gains come from test
    rows, which choose nothing.
    `data`: a federation, or a table with a column of sites, `client`, and one to predict, `target`.
    `methods` and `models` leave others out; going alone is always tried.
    `epsilon`: also say what this much privacy of the sites would cost.
    `minutes` bounds the work; what it leaves out is said. `folder`: where finished parts are kept; `resume`: go on.
    """
    settings = AdviceSettings(
        minutes,
        splits,
        rounds,
        metric,
        seed,
        epsilon,
        methods=None if methods is None else tuple(methods),
        models=None if models is None else tuple(models),
    )
    federation = _federation(data, client, target, seed)
    return advise_with(settings, federation, folder=folder, resume=resume, progress=progress)


def advise_with(
    settings: AdviceSettings,
    federation: Federation,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    begun: float | None = None,
) -> Advice:
    """`advise`, with all that can be set; `begun`: when the time began, such as before the table was read."""
    settings.check()
    _check(federation)
    clock = Clock(60 * settings.minutes, AFTERWARDS if settings.epsilon is None else WITH_PRIVACY, begun)
    say = progress or (lambda *_: None)
    federations = [federation.redrawn(settings.seed + split) for split in range(settings.splits)]
    loss = loss_for(federation)
    problems = {
        name: [Problem(fed, model, loss, l2=settings.l2) for fed in federations]
        for name, model in settings.kinds.items()
    }
    first = next(iter(problems.values()))[0]
    shown = default_metric(first) if settings.metric is None else metric_named(settings.metric, first)
    proper = metric_named("squared_error" if first.loss.name == "squared" else "log_loss", first)
    if settings.epsilon is not None:
        noise_for(settings.epsilon, settings.rounds, len(federation))  # refuses before anything is trained
    kept = None if folder is None else KeptParts.begin(Path(folder), settings.identity(federation), resume)
    trials, skipped = _trained(settings, problems, proper, clock, kept, say)
    clock.afterwards()
    more, left = tried_without(trials, settings.ways, problems, proper, settings.rounds, clock, say)
    trials, skipped = [*trials, *more], [*skipped, *left]
    return _answer(settings, trials, problems, federations, shown, proper, skipped, clock, say)


def _trained(
    settings: AdviceSettings,
    problems: dict[str, list[Problem]],
    proper: Metric,
    clock: Clock,
    parts: KeptParts | None,
    say: Progress,
) -> tuple[list[Trial], list[str]]:
    """Every way of training with every model, as far as the time goes, and what it left out."""
    wanted = [(name, way) for name in problems for way in settings.ways]
    trials: list[Trial] = []
    skipped: list[str] = []
    for place, (name, way) in enumerate(wanted):
        kept = None if parts is None else parts.read(place)
        what = f"{way.label}, {name}"
        if kept is None:
            if trials and not clock.begins():
                skipped.append(what)
                continue
            tell = partial(say, what)
            try:
                look = partial(clock.look, bool(trials))
                kept = run_trial(way, name, problems[name], proper, settings.rounds, tell, look)
            except OutOfTime:
                skipped.append(what)
                continue
            if kept is None:
                raise AdviceStopped(len(trials), len(wanted), None if parts is None else parts.folder)
            if parts is not None:
                parts.write(place, kept)
        say(what, 1.0)
        if kept.scores:
            trials.append(kept)
        else:
            skipped.append(f"{what}: every candidate diverged on some split")
    return trials, skipped


def _answer(
    settings: AdviceSettings,
    trials: list[Trial],
    problems: dict[str, list[Problem]],
    federations: list[Federation],
    shown: Metric,
    proper: Metric,
    skipped: list[str],
    clock: Clock,
    say: Progress,
) -> Advice:
    if not any(trial.contender == ALONE for trial in trials):
        raise PolyfedError("training alone diverged with every stepsize: are features on very different scales?")
    choices = [choose(trials, split, federations[split], proper) for split in range(len(federations))]
    mean_loss = {key: float(np.mean([choice.losses[key] for choice in choices])) for key in map(key_of, trials)}
    winner, told = advised(trials, choices, mean_loss)
    contender = next(way for way in settings.ways if way.name == winner.contender)
    candidate = contender.candidates[winner.best]
    alone = next((t for t in trials if t.contender == ALONE and t.model == winner.model), best_alone(trials, None))
    alone_way = next(way for way in settings.ways if way.name == ALONE)
    apart = None if not winner.apart else Apart.of(winner)
    followed, together = (gains_of(federations, choices, shown, free) for free in (True, False))
    cost = effects = None
    if winner.contender != ALONE and settings.epsilon is not None:
        say(f"privacy at epsilon {settings.epsilon:g}", 0.0)
        own = [trial for trial in trials if trial.contender == ALONE]
        try:
            if not clock.begins():
                raise OutOfTime
            cost = privacy_cost(
                settings.epsilon, candidate, winner.model, own, choices, problems, federations, shown, proper,
                settings.rounds, clock.look, say, apart,
            )  # fmt: skip
        except OutOfTime:
            skipped.append(f"privacy at epsilon {settings.epsilon:g}")
    training = problems[winner.model]
    if apart is not None:
        training = [without(problem, apart.sites) for problem in training]
    if winner.contender != ALONE and 2 < len(training[0].federation) <= MOST_INFLUENCE:
        say("leaving each site out", 0.0)
        effects = influence(training, candidate, proper, settings.rounds, clock)
        if effects is None:
            skipped.append("leaving each site out")
    fed = federations[0]
    return Advice(
        winner.contender,
        contender.label,
        winner.model,
        candidate,
        alone_way.candidates[alone.best],
        shown,
        _sites(federations, choices, followed, together, shown, told, winner),
        followed.mean.within(shown.largest),
        comparison(trials, mean_loss, problems, federations, shown, proper),
        skipped,
        [str(caution) for caution in cautions(fed)],
        winner.rounds,
        winner.bits_up,
        winner.bits_down,
        winner.seconds,
        clock.spent,
        settings,
        effects,
        cost,
        [] if apart is None else [fed.clients[place] for place in apart.sites],
    )


def _sites(
    federations: list[Federation],
    choices: list[SplitChoices],
    followed: Gains,
    together: Gains,
    shown: Metric,
    told: list[Deployed],
    winner: Trial,
) -> list[SiteAdvice]:
    fed = federations[0]
    personal: Deployed = "global" if winner.deploys_global else "personal"
    corrected = count_verdicts(followed.clients).verdicts
    sizes = sum((fed.split(part).sizes for part in ("train", "validation", "test")), np.zeros(len(fed), int))
    sites = []
    for place, client in enumerate(fed.clients):
        own, joint = followed.clients[place], together.clients[place]
        ends, joint_ends = own.within(shown.largest), joint.within(shown.largest)
        sites.append(
            SiteAdvice(
                client,
                int(sizes[place]),
                int(fed.test.sizes[place]),
                personal if told[place] == "personal" else told[place],
                verdict(own),
                own.estimate,
                end_of(own, ends.low),
                end_of(own, ends.high),
                corrected[place],
                detectable(own) if own.known else None,
                *site_values(federations, choices, shown, place),
                verdict(joint),
                joint.estimate,
                end_of(joint, joint_ends.low),
                end_of(joint, joint_ends.high),
            )
        )
    return sites


def _federation(data: Any, client: str | None, target: str | None, seed: int) -> Federation:
    if isinstance(data, Federation):
        if client is not None or target is not None:
            raise PolyfedError("client and target go with a table; a federation has both already")
        return data
    if client is None or target is None or not hasattr(data, "columns"):
        kind = type(data).__name__
        raise PolyfedError(f"advise needs a Federation, or a table with client= and target=, found {kind}")
    return Federation.from_dataframe(
        data, client=client, target=target, validation=VALIDATION, test=TEST, seed=seed, prepare=True
    )


def _check(federation: Federation) -> None:
    if len(federation) < 2:
        raise PolyfedError("advise needs at least two sites (is it the right client column?), found one")
    for part in ("validation", "test"):
        if not federation.split(part).rows:
            raise PolyfedError(f"advise needs {part} rows at the sites, found none")
