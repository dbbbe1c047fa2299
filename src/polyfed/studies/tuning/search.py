"""Run the candidates, all with the same seeds, on data without test rows; a stopped search goes on from its journal."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyfed.algorithms import Local
from polyfed.algorithms.contract import Algorithm, get_algorithm
from polyfed.algorithms.shared.mixture import MixtureMethod
from polyfed.core.errors import Interrupted, PolyfedError, own_names
from polyfed.core.precision import Compute
from polyfed.data import Federation
from polyfed.engine.checkpoint import checkpoint as checkpoints
from polyfed.engine.identity import run_identity
from polyfed.engine.local_models import local_models_diverge
from polyfed.engine.loop import PlannedRun
from polyfed.engine.measure import FineTune
from polyfed.engine.result import Result
from polyfed.engine.simulate import simulate_all
from polyfed.engine.simulation import Simulation
from polyfed.problem.metrics import Metric
from polyfed.problem.problem import DType, Init, Problem
from polyfed.studies.cautions import refuse_hopeless
from polyfed.studies.config import Config, Method, hyper_parameter, read_config
from polyfed.studies.finished_runs import FinishedRuns
from polyfed.studies.run_settings import RunSettings
from polyfed.studies.scoring import mean_metrics, problem_metric
from polyfed.studies.search_space import TunePlan, tune_plan
from polyfed.studies.tuning.adaptive import Adaptive
from polyfed.studies.tuning.outcome import Trial, Tuning

JOURNAL = "candidates.jsonl"
UNFINISHED = "unfinished"
"""The folder of the checkpoints of candidates that Ctrl-C interrupted."""
Candidate = tuple[str, dict[str, Any], Method]
"""How it was found, its values, and the method with them."""
TuneProgress = Callable[[str, float, int, str], None]
"""Called with a method's label, its candidates done, their number, and the best so far in words."""


class Stopped(Interrupted):
    """Ctrl-C ended a search; the candidates that were done are kept."""

    def __init__(self, folder: Path, done: int, total: int) -> None:
        Exception.__init__(self, f"stopped after {done} of {total} candidates; --resume goes on from there")
        self.folder = folder


@own_names
def tune(
    what: Problem | Config | str | Path,
    spaces: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    budget: int = 12,
    rounds: int | None = None,
    repeats: int = 1,
    search: str = "grid",
    by: str = "loss",
    metric: str | None = None,
    seed: int = 0,
    methods: Mapping[str, Algorithm] | None = None,
    participation: Any = 1.0,
    init: Init = None,
    dtype: DType = "float32",
    compute: Compute | None = None,
    local_models: str | Path | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    progress: TuneProgress | None = None,
) -> Tuning:
    """Search the hyper-parameters of several methods, `budget` candidates for each, and choose by validation rows.

    A candidate is run `repeats` times, with the seeds `seed`, `seed` + 1 and so on.
    `by`: what chooses, the loss or a metric's name; `metric`: what tables show, by default what fits the problem.
    `what`: a problem, or a config (or its path) with a section [tune], which then says all but the last three.
    `spaces`: for each method, {hyper-parameter: a list of values, or {"low": ..., "high": ..., "log": ...}}; its key is
    an algorithm's name, or a key of `methods`, which has algorithms whose other hyper-parameters are not the defaults.
    `local_models`: the folder of a bank that all candidates and seeds share, see `simulate`.
    `folder`: where tuning.csv, best.toml (of a config) and the journal go; `resume`: do not run again what it has.
    """
    if isinstance(what, str | Path):
        what = read_config(what)
    if isinstance(what, Problem):
        chosen = {label: Method(label, algorithm) for label, algorithm in _methods(spaces, methods).items()}
        settings = {"budget": budget, "rounds": rounds, "repeats": repeats, "search": search, "by": by, "seed": seed}
        kinds = {label: type(method.algorithm) for label, method in chosen.items()}
        plan = tune_plan({**settings, "space": spaces or {}}, kinds, "tune")
        numbers: Any = {"init": init, "dtype": dtype, "compute": compute}
        numbers["local_models"] = None if local_models is None else str(local_models)
        run = RunSettings(rounds=rounds or 100, participation=participation, seed=seed, metric=metric, **numbers)
        config = Config({}, {}, list(chosen.values()), run, "tune", _problem=what)
    else:
        config, plan = what, what.tune
        if plan is None:
            raise PolyfedError(f"{config.where}: has no section [tune], which names what to search")
    return search_all(config, plan, None if folder is None else Path(folder), resume, progress)


def search_all(
    config: Config, plan: TunePlan, folder: Path | None, resume: bool, progress: TuneProgress | None
) -> Tuning:
    """Run all candidates of all methods of a config, and write what was found to `folder`."""
    refuse_hopeless(config)
    for method in config.methods:
        _check_values(config, plan, method)
    seeds = seeds_of(config, plan)
    problem = _without_test(config)
    if folder is not None:
        for name in ("tuning.csv", "best.toml"):  # of an earlier search
            (folder / name).unlink(missing_ok=True)
    journal = FinishedRuns(None if folder is None else folder / JOURNAL, resume)
    search = Search(config, plan, problem, journal, seeds, folder)
    wanted = {method.label: plan.count(method.label) for method in config.methods}
    candidates: dict[str, list[Method]] = {}
    trials: list[Trial] = []
    for method in config.methods:
        label, known = method.label, candidates.setdefault(method.label, [])
        for entries in search.batches(method, trials):
            before = len(known)
            known += [candidate for *_, candidate in entries]

            def say(done: float, label: str = label, before: int = before) -> None:
                if progress is not None:
                    best = search.tuning(trials, {}).winner(label)
                    words = "" if best is None or best.score is None else f"best {best.score:.4f}"
                    progress(label, before + done, wanted[label], words)

            try:
                outcomes = search.outcomes([candidate for *_, candidate in entries], say)
            except KeyboardInterrupt:  # a second Ctrl-C, which does not wait for the rounds under way
                outcomes = None
            if outcomes is None:
                done = sum(search.is_done(one) for each in candidates.values() for one in each)
                raise Stopped(folder or Path(), done, sum(wanted.values()))
            for number, ((origin, values, _), outcome) in enumerate(zip(entries, outcomes, strict=True), before + 1):
                score = outcome["measured"][search.chosen_by]
                trials.append(Trial(label, number, origin, values, score, **outcome))
            say(len(entries))
    tuning = search.tuning(trials, candidates)
    if folder is not None:
        shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
        tuning.write(folder)
    return tuning


@dataclass
class Search:
    """Where candidates are run: those of a method that differ in numbers alone are one program."""

    config: Config
    plan: TunePlan
    problem: Problem
    journal: FinishedRuns
    seeds: list[int]
    """of the runs of every candidate"""
    folder: Path | None

    def __post_init__(self) -> None:
        named, by = f"{self.config.where}: run.metric", self.plan.settings.by
        self.shown = problem_metric(self.config.run.metric, self.problem, named)
        self.by = None if by == "loss" else problem_metric(by, self.problem, f"{self.config.where}: tune.by")

    @property
    def chosen_by(self) -> str:
        return "loss" if self.by is None else self.by.name

    def batches(self, method: Method, trials: list[Trial]) -> Iterator[list[Candidate]]:
        """A method's candidates, in the parts that are run together; `trials` grows as they end."""
        label, plan = method.label, self.plan
        if plan.settings.search != "optuna" or not plan.spaces[label]:
            yield [_candidate(self.config, method, *found) for found in plan.candidates(label)]
            return
        adaptive = Adaptive(plan, label, higher_is_better=self.by is not None and self.by.higher_is_better)
        for left in range(plan.settings.budget, 0, -adaptive.batch):
            asked = adaptive.ask(min(adaptive.batch, left))
            if len(asked) < min(adaptive.batch, left):
                raise plan.too_few(label, plan.settings.budget - left + len(asked))
            yield [_candidate(self.config, method, "optuna", values) for values in asked]
            adaptive.tell([None if trial.diverged else trial.score for trial in trials[-len(asked) :]])

    def tuning(self, trials: list[Trial], methods: dict[str, list[Method]]) -> Tuning:
        """What these candidates amount to."""
        return Tuning(self.config, self.plan, self.shown, self.by, tuple(trials), methods)

    def outcomes(self, methods: list[Method], say: Callable[[float], None]) -> list[dict[str, Any]] | None:
        """What these candidates of a method reached, each over all its seeds; None where Ctrl-C came before the end."""
        runs = [(method, seed) for method in methods for seed in self.seeds]
        reached = self._runs(runs, lambda share: say(share / len(self.seeds)))
        if reached is None:
            return None
        each = len(self.seeds)
        return [_over_seeds(reached[first : first + each]) for first in range(0, len(reached), each)]

    def is_done(self, method: Method) -> bool:
        """Whether all runs of a candidate are in the journal."""
        return all(self._key(method, seed) in self.journal.done for seed in self.seeds)

    def _runs(self, runs: list[tuple[Method, int]], say: Callable[[float], None]) -> list[dict[str, Any]] | None:
        """What each of these reached, from the journal or by running it; None where Ctrl-C came before the end."""
        run, rounds = self.config.run, self.plan.settings.rounds or self.config.run.rounds
        keys = [self._key(method, seed) for method, seed in runs]
        for (method, _), key in zip(runs, keys, strict=True):
            if key not in self.journal.done and local_models_diverge(self.problem, method.algorithm, run.engine):
                self.journal.add(key, method.label, self._outcome(None, 0.0, 0.0))
        missing = [place for place, key in enumerate(keys) if key not in self.journal.done]
        shares = np.array([float(key in self.journal.done) for key in keys])

        def on_progress(place: int, simulation: Simulation, _: dict[str, Any] | None) -> None:
            shares[missing[place]] = min(simulation.round / rounds, 0.99)
            say(float(np.sum(shares)))

        def on_finish(place: int, result: Result) -> None:
            method, _ = runs[missing[place]]
            self.journal.add(keys[missing[place]], method.label, self._reached(method, result))
            shares[missing[place]] = 1.0

        if missing:
            algorithm = runs[0][0].algorithm
            with _silence():
                results = simulate_all(
                    [self._planned(*runs[place], keys[place]) for place in missing],
                    rounds=rounds,
                    participation=1.0 if algorithm.name == Local.name else run.participation,
                    eval_every=rounds,
                    progress=on_progress,
                    finished=on_finish,
                    keep_finished=False,
                    keep_states=False,
                    **run.engine,
                )
            if any(result.interrupted for result in results):
                return None
        return [self.journal.done[key] for key in keys]

    def _planned(self, method: Method, seed: int, key: str) -> PlannedRun:
        """A run whose checkpoint, where it was interrupted, lies in the search's folder."""
        place = None if self.folder is None else self.folder / UNFINISHED / key
        resume = place if place is not None and checkpoints.latest(place) is not None else None
        return PlannedRun(self.problem, method.algorithm, seed, self._finetune(method), resume, place)

    def _finetune(self, method: Method) -> FineTune | None:
        finetune = self.config.finetune(method.algorithm) if method.finetune else None
        if method.finetune and finetune is None:
            raise PolyfedError(f"{self.config.where}: '{method.label}' asks for fine-tuning, but nothing is fine-tuned")
        return finetune

    def _key(self, method: Method, seed: int) -> str:
        run, algorithm, finetune = self.config.run, method.algorithm, self._finetune(method)
        participation = 1.0 if algorithm.name == Local.name else run.participation
        identity = run_identity(self.problem, algorithm, participation, seed, run.init, run.dtype, run.compute)
        rounds = self.plan.settings.rounds or run.rounds
        if run.local_models is not None and isinstance(algorithm, MixtureMethod):
            identity |= {"local_models": "shared"}  # those of all seeds
        tuned = None if finetune is None else asdict(finetune)
        wanted = [metric.name for metric in (self.shown, self.by) if metric is not None]
        return _digest({**identity, "rounds": rounds, "finetune": tuned, "measured": wanted})

    def _reached(self, method: Method, result: Result) -> dict[str, Any]:
        """What the deployed models reach on validation rows, as means over clients."""
        finetune, simulation = self._finetune(method), result.simulation
        model = "finetuned" if finetune else "personal"
        measured = {"loss": float(np.nanmean(simulation.measure(finetune)[model]["validation"]["loss"]))}
        if np.isfinite(measured["loss"]) and result.diverged is None:
            measured |= mean_metrics(simulation, self._wanted, "validation", model, finetune)
        diverged = result.diverged is not None or not np.isfinite(measured["loss"])
        return self._outcome(None if diverged else measured, simulation.seconds, result.compile_seconds)

    @property
    def _wanted(self) -> list[Metric]:
        return [metric for metric in dict.fromkeys([self.shown, self.by]) if metric is not None]

    def _outcome(self, measured: dict[str, float] | None, seconds: float, compile_seconds: float) -> dict[str, Any]:
        """A run as the journal has it; without measurements it has diverged."""
        names = ["loss", *(metric.name for metric in self._wanted)]
        return {
            "measured": {name: None if measured is None else _finite(measured[name]) for name in names},
            "diverged": measured is None,
            "seconds": seconds,
            "compile_seconds": compile_seconds,
        }


def _over_seeds(reached: list[dict[str, Any]]) -> dict[str, Any]:
    """A candidate's runs as one: means, and what they took in all."""
    diverged = any(one["diverged"] for one in reached)
    columns = {name: [one["measured"][name] for one in reached] for name in reached[0]["measured"]}
    means = {name: None if None in values else float(np.mean(values)) for name, values in columns.items()}
    spent = {key: sum(one[key] for one in reached) for key in ("seconds", "compile_seconds")}
    return {"measured": means, "diverged": diverged, **spent}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


@contextmanager
def _silence() -> Iterator[None]:
    """Within it nothing is said of a candidate that diverges, or of a stepsize beyond a theorem's: the table tells."""
    log, before = logging.getLogger("polyfed"), logging.getLogger("polyfed").disabled
    log.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.disabled = before


def _methods(spaces: Mapping[str, Any] | None, methods: Mapping[str, Algorithm] | None) -> dict[str, Algorithm]:
    """The given methods, and those that a space names by their algorithm."""
    known = dict(methods or {})
    names = {algorithm.name for algorithm in known.values()}
    for key in spaces or {}:
        if key not in known and key not in names:
            known[key] = get_algorithm(key)()
    if not known:
        raise PolyfedError("tune: no method to tune; spaces is empty")
    return known


def _check_values(config: Config, plan: TunePlan, method: Method) -> None:
    """Values that a method refuses are named before anything runs; of a search that adapts, the ends of its ranges."""
    if plan.settings.search != "optuna":
        for origin, values in plan.candidates(method.label):
            _candidate(config, method, origin, values)
        return
    for axis in plan.spaces[method.label]:
        for value in axis.points(2):
            _candidate(config, method, "optuna", {axis.name: value})


def _candidate(config: Config, method: Method, origin: str, values: dict[str, Any]) -> Candidate:
    try:
        changes = {name: hyper_parameter(value, f"tune.{name}") for name, value in values.items()}
        algorithm = dataclasses.replace(method.algorithm, **changes)  # pyright: ignore[reportArgumentType]
        algorithm.check()
    except PolyfedError as error:
        raise PolyfedError(f"{config.where}: tune.space of '{method.label}': {error}") from None
    return origin, values, Method(method.label, algorithm, method.finetune)


def seeds_of(config: Config, plan: TunePlan) -> list[int]:
    """As many as a candidate has runs: the first of `run.seeds`; where that is empty, `run.seed` and those after it."""
    run, repeats = config.run, plan.settings.repeats
    seeds = list(run.seeds) or [run.seed + place for place in range(repeats)]
    if len(seeds) < repeats:
        raise PolyfedError(
            f"{config.where}: tune.repeats = {repeats}, but run.seeds has {len(seeds)}; list as many, or none"
        )
    return seeds[:repeats]


def _without_test(config: Config) -> Problem:
    """The problem as tuning sees it: nobody has a test row."""
    problem, federation = config.problem, config.problem.federation
    if not isinstance(federation, Federation):
        raise PolyfedError(f"{config.where}: tuning needs the rows of all clients in memory; this data is on demand")
    if not len(federation.validation.y):
        raise PolyfedError(
            f"{config.where}: tuning chooses by validation rows and the data has none; hold some out, "
            "with data.validation = 0.1 where the source has that key"
        )
    nobody = dataclasses.replace(
        federation.test,
        x=federation.test.x[:0],
        y=federation.test.y[:0],
        offsets=np.zeros_like(federation.test.offsets),
    )
    hidden: Federation = dataclasses.replace(federation, test=nobody)
    return problem.of(hidden)


def _digest(identity: dict[str, Any]) -> str:
    text = json.dumps(identity, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
