"""Run and compare: from a config to a run directory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, TextIO

import numpy as np

from polyfed.algorithms import Local
from polyfed.algorithms.shared.mixture import MixtureMethod
from polyfed.core.errors import Interrupted, PolyfedError
from polyfed.core.files import as_json, as_toml, slug, write_csv, write_text
from polyfed.core.machine import peak_memory_bytes
from polyfed.data.cautions import Caution
from polyfed.engine import hosts
from polyfed.engine.checkpoint import checkpoint as checkpoints
from polyfed.engine.client_metrics import Metrics, evaluated_clients
from polyfed.engine.local_models import in_words
from polyfed.engine.loop import PlannedRun, SweepProgress
from polyfed.engine.participation import Bernoulli
from polyfed.engine.result import Result
from polyfed.engine.simulate import simulate_all
from polyfed.engine.simulation import Simulation
from polyfed.problem.problem import Problem
from polyfed.studies import evaluation as evaluate
from polyfed.studies.cautions import WORSE_THAN_CONSTANT, after_run_cautions, refuse_hopeless
from polyfed.studies.config import Config, Method
from polyfed.studies.gains import REFERENCES, Gains
from polyfed.studies.newcomers import trained
from polyfed.studies.own_shares import ShareLog
from polyfed.studies.run_directory import SPLITS, RunRecord, read_run
from polyfed.studies.run_outcome import RunOutcome, measure_scores, run_outcome
from polyfed.studies.run_settings import Draw
from polyfed.studies.saved_models import FOLDER, write_about, write_models

RunProgress = Callable[[str, int, Simulation, dict[str, Any] | None], None]
"""Called with the label, the total number of rounds, the simulation and the new row of the history."""


@dataclass(frozen=True)
class Options:
    """How to treat what is already there, and whom to tell."""

    resume: bool = False
    overwrite: bool = False
    progress: RunProgress | None = None
    say: Callable[[str], None] = print


def run(config: Config, folder: Path, options: Options) -> list[RunRecord]:
    """Run the config's one method into `folder`. Of several processes, process 0 writes; the others return nothing.

    Where rows are split several times, the run of the first split is that of `folder`; the others lie in its `splits`.
    """
    if len(config.methods) > 1:
        raise PolyfedError(f"{config.where}: has {len(config.methods)} methods; use `polyfed compare`")
    _say_notes(config, options)
    draws = config.run.draws if config.run.splits > 1 else (Draw(config.run.seed),)
    places = {draw: folder / SPLITS / draw.folder if draw.split else folder for draw in draws}
    records = _run_draws(config, config.methods[0], places, options, yardsticks={}, order=0)
    hosts.meet()
    return list(records.values())


def _say_notes(config: Config, options: Options) -> None:
    refuse_hopeless(config)
    for note in config.problem.notes:
        options.say(f"data: {note}")
    for caution in config.problem.cautions:
        options.say(f"caution: {caution}")


def compare(config: Config, folder: Path, options: Options) -> list[RunRecord]:
    """Run every method of the config with every seed. Of several processes, process 0 writes and returns records."""
    _say_notes(config, options)
    # Purely local training comes first: its clients are the yardstick of all others.
    order = sorted(range(len(config.methods)), key=lambda i: config.methods[i].algorithm.name != Local.name)
    records: dict[int, dict[Draw, RunRecord]] = {}
    yardsticks: dict[Draw, Simulation | None] = {}
    for index in order:
        method = config.methods[index]
        places = {draw: folder / slug(method.label) / draw.folder for draw in config.run.draws}
        records[index] = _run_draws(config, method, places, options, yardsticks, order=index)
    hosts.meet()
    return [record for index in range(len(config.methods)) for record in records[index].values()]


def _run_draws(
    config: Config,
    method: Method,
    places: dict[Draw, Path],
    options: Options,
    yardsticks: dict[Draw, Simulation | None],
    order: int,
) -> dict[Draw, RunRecord]:
    """A method with every seed or split, each into its directory; what is there afterwards, in process 0.

    They are one sweep. `yardsticks` keeps the simulations of going alone for the next methods; None where one diverged,
    as that would flatter the others.
    """
    first, settings, draws = hosts.is_first(), config.run, list(places)
    algorithm, finetune = method.algorithm, config.finetune(method.algorithm)
    config.metric  # noqa: B018 an unknown one is refused before anything runs
    resumed = dict(zip(draws, _open(list(places.values()), options), strict=True))

    def past(draw: Draw) -> list[dict[str, Any]]:
        resume = resumed[draw]
        return _checkpointed_rows(resume, settings.eval_every, settings.rounds) if resume and first else []

    with ExitStack() as stack:
        writers = [
            stack.enter_context(RunWriter(places[draw], config, method, draw.seed, past(draw))) for draw in draws
        ]

        def on_progress(place: int, simulation: Simulation, row: dict[str, Any] | None) -> None:
            shares = None if row is None or method.finetune else simulation.own_share
            if row is not None and first:
                writers[place].write(row)
                if shares is not None:
                    writers[place].shares.write(row["round"], shares)
            if options.progress:
                options.progress(method.label, settings.rounds, simulation, row)

        results = _simulate(
            config,
            [
                PlannedRun(
                    config.problem_of(draw),
                    algorithm,
                    draw.seed,
                    finetune,
                    resume=resumed[draw],
                    checkpoint=places[draw] / "checkpoint",
                    callbacks=config.track.callbacks(method.label, draw.folder) if config.track and first else (),
                )
                for draw in draws
            ],
            settings.rounds,
            on_progress,
            participation=1.0 if algorithm.name == Local.name else settings.participation,
            eval_every=settings.eval_every,
            checkpoint_every=settings.checkpoint_every,
            eval_clients=settings.eval_clients,
            adapt_on_test=settings.adapt_on_test,
            privacy=config.privacy,
            making=in_words(options.say),
            aggregate=config.aggregate,
            attack=None if algorithm.name == Local.name else config.attack,
        )
        if first:
            for writer in writers:
                writer.open()
    for draw, result in zip(draws, results, strict=True):
        if result.interrupted:
            hosts.meet()
            raise Interrupted(places[draw], result.simulation.round)
    if algorithm.name == Local.name:
        for draw, result in zip(draws, results, strict=True):
            yardsticks.setdefault(draw, None if result.diverged else result.simulation)
    elif settings.alone:
        yardsticks |= _alone(config, [draw for draw in draws if draw not in yardsticks], options)
    outcomes = []
    for draw, result in zip(draws, results, strict=True):
        if settings.save_models:
            write_models(places[draw] / FOLDER, result.simulation, finetune if method.finetune else None)
        outcomes.append(run_outcome(config, method, draw, result, yardsticks.get(draw)))
    gains = measure_scores(config, method, outcomes)
    records: dict[Draw, RunRecord] = {}
    if first:
        doubts = {outcome.draw: doubts_of(outcome) for outcome in outcomes}
        for doubt in next(filter(None, doubts.values()), []):
            count = sum(map(bool, doubts.values()))
            options.say(f"caution: {doubt}{f' ({count} of {len(draws)} runs)' if len(draws) > 1 else ''}")
        said = config.problem.cautions
        for draw, outcome, writer in zip(draws, outcomes, writers, strict=True):
            writer.shares.finish()
            write_outcome(places[draw], config, method, outcome, gains, order, said, doubts[draw])
            records[draw] = read_run(places[draw])
    return records


def doubts_of(outcome: RunOutcome) -> list[Caution]:
    """What a finished run makes one doubt."""
    method, clients = outcome.result.algorithm, outcome.simulation.evaluated
    return after_run_cautions(outcome.problem, method, outcome.metrics, clients)


def _simulate(
    config: Config, planned: list[PlannedRun], rounds: int, progress: SweepProgress, **options: Any
) -> list[Result]:
    """`simulate_all` with the config's settings; its errors name the config."""
    try:
        return simulate_all(planned, rounds=rounds, progress=progress, **options, **config.run.engine)
    except PolyfedError as error:
        raise PolyfedError(f"{config.where}: {error}") from None


def _alone(config: Config, draws: list[Draw], options: Options) -> dict[Draw, Simulation | None]:
    """Every client that is evaluated, trained on its own; None where that diverged, as it would flatter the others.

    What a client does alone depends on no other, so where a sample is evaluated, no other is trained.
    """
    settings, method = config.run, config.local
    rounds = 1 if isinstance(method, MixtureMethod) else settings.rounds  # pure local models are there before the first

    def problem_of(draw: Draw) -> Problem:
        problem = config.problem_of(draw)
        if settings.eval_clients is None:
            return problem
        return problem.select(evaluated_clients(len(problem), settings.eval_clients))

    def on_progress(_: int, simulation: Simulation, row: dict[str, Any] | None) -> None:
        if options.progress:
            options.progress("going alone", rounds, simulation, row)

    planned = [PlannedRun(problem_of(draw), method, draw.seed) for draw in draws]
    results = _simulate(config, planned, rounds, on_progress, eval_every=rounds, making=in_words(options.say))
    if any(result.interrupted for result in results):
        hosts.meet()
        raise KeyboardInterrupt
    return {draw: None if result.diverged else result.simulation for draw, result in zip(draws, results, strict=True)}


def _open(folders: Sequence[Path], options: Options) -> list[Path | None]:
    """The checkpoints to go on from; None where a run begins."""
    if options.resume:
        latest = checkpoints.latest_of_all([folder / "checkpoint" for folder in folders])
        for folder in (folder for folder, checkpoint in zip(folders, latest, strict=True) if checkpoint is None):
            options.say(f"{folder}: no checkpoint yet, starting from the beginning")
        return latest
    for folder in folders:
        if not options.overwrite and hosts.agreed((folder / "metrics.jsonl").exists):
            raise PolyfedError(f"{folder}: there is a run already; use --resume, --overwrite or another --out")
    return [None] * len(folders)


def _participation(config: Config, method: Method) -> Any:
    """Whoever trains alone takes part in every round: nobody has to be sampled where nothing is sent."""
    share = 1.0 if method.algorithm.name == Local.name else config.run.participation
    return asdict(share) if isinstance(share, Bernoulli) else share


def _checkpointed_rows(path: Path, eval_every: int, rounds: int) -> list[dict[str, Any]]:
    rows = json.loads((path / "meta.json").read_text())["history"]
    return checkpoints.kept_rows(rows, eval_every, rounds)


class RunWriter:
    """A run's config.toml, metrics.jsonl and shares.csv, row by row, each flushed.

    It touches nothing before the first row, that is before the run has accepted its checkpoint.
    """

    def __init__(self, folder: Path, config: Config, method: Method, seed: int, past: list[dict[str, Any]]) -> None:
        self.folder, self.config, self.method, self.seed, self.past = folder, config, method, seed, past
        self.file: TextIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.file is not None:
            self.file.close()

    def open(self) -> TextIO:
        if self.file is None:
            resolved = self.config.resolved(self.method)
            resolved["run"] |= {"seed": self.seed, "participation": _participation(self.config, self.method)}
            resolved["run"].pop("seeds", None)
            self.folder.mkdir(parents=True, exist_ok=True)
            for name in ("summary.json", "clients.csv", "report.html"):  # of an earlier run
                (self.folder / name).unlink(missing_ok=True)
            for name in (FOLDER, trained.FOLDER):
                shutil.rmtree(self.folder / name, ignore_errors=True)
            write_text(self.folder / "config.toml", as_toml(resolved))
            rounds = [row["round"] for row in self.past]
            names: Sequence[str] = self.config.problem.federation.clients
            measured = evaluated_clients(len(names), self.config.run.eval_clients)
            self.shares = ShareLog(self.folder, [names[int(client)] for client in measured], rounds)
            self.file = (self.folder / "metrics.jsonl").open("w")
            for row in self.past:
                self.write(row)
        return self.file

    def write(self, row: dict[str, Any]) -> None:
        file = self.open()
        file.write(as_json(_deployed(row, self.method)) + "\n")
        file.flush()


def _deployed(row: dict[str, Any], method: Method) -> dict[str, Any]:
    """The history's row of a method that deploys the fine-tuned model: its personal columns are that model's."""
    if not method.finetune:
        return row
    tuned = {key.replace("finetuned_", "personal_", 1): row[key] for key in row if key.startswith("finetuned_")}
    return row | tuned


def write_outcome(
    folder: Path,
    config: Config,
    method: Method,
    outcome: RunOutcome,
    gains: dict[str, Gains],
    order: int,
    said: list[str],
    doubts: list[Caution],
) -> None:
    """clients.csv and summary.json of one run; `gains` are those of all runs of the method.

    `said` are the cautions about the data, `doubts` those that the finished run gives.
    """
    result, simulation, clients = outcome.result, outcome.simulation, outcome.simulation.evaluated
    problem, weights, shown = outcome.problem, simulation.server_weights, config.metric
    shares = None if method.finetune else simulation.own_share
    rows = evaluate.client_rows(problem, outcome.metrics, shares, weights, clients, gains)
    write_csv(folder / "clients.csv", rows)
    if config.run.save_models:
        finetune = config.finetune(method.algorithm) if method.finetune else None
        trained.save(folder, trained.Trained.of(simulation, finetune))
        section = config.resolved(method)["problem"]
        write_about(folder / FOLDER, simulation, method.label, section, finetuned=method.finetune)
    figures = evaluate.summarize(problem, outcome.metrics, shown.label, weights, clients)
    for model, value in outcome.pooled.items():
        figures["models"][model]["test"][shown.name]["pooled"] = value
    summary = {
        "label": method.label,
        "algorithm": method.algorithm.name,
        "order": order,
        "seed": simulation.seed,
        "split": outcome.draw.split,
        "splits": config.run.splits,
        "rounds": simulation.round,
        "clients": len(problem),
        "evaluated_clients": len(clients),
        "parameters": simulation.parameters,
        "dtype": simulation.dtype,
        "compute": simulation.compute,
        "iterations": simulation.iterations,
        "bits_up": simulation.bits_up,
        "bits_down": simulation.bits_down,
        "seconds": simulation.seconds,
        "compile_seconds": simulation.compile_seconds,
        "peak_memory_bytes": peak_memory_bytes(),
        "devices": simulation.layout.devices,
        "processes": simulation.layout.hosts,
        "store": simulation.store,
        "chunk": simulation.programs.round.chunk,
        "excluded": simulation.excluded,
        "diverged": result.diverged is not None,
        "notes": config.problem.notes,
        "cautions": said + [str(doubt) for doubt in doubts],
        "worse_than_constant": any(doubt.kind == WORSE_THAN_CONSTANT for doubt in doubts),
        "adapted_on_test": adapts_on_test(simulation, method),
        **({} if simulation.spent is None else {"epsilon": simulation.spent["epsilon"], "privacy": simulation.spent}),
        **({} if simulation.singles is None else simulation.singles.facts(problem.federation.clients)),
        "metric": {
            "name": shown.name,
            "label": shown.label,
            "higher_is_better": shown.higher_is_better,
            "is_share": shown.is_share,
        },
        "gains": {reference: gains[reference].as_dict() if reference in gains else None for reference in REFERENCES},
        "undefined": {shown.name: _without(outcome.metrics, shown.name, rows)},
        **figures,
    }
    write_text(folder / "summary.json", as_json(summary, indent=1) + "\n")


def _without(metrics: Metrics, name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The clients whose deployed model has no such metric on test rows."""
    values = metrics["personal"].get("test", {}).get(name)
    if values is None:
        return []
    return [str(row["client"]) for row, value in zip(rows, values, strict=True) if np.isnan(value)]


def adapts_on_test(simulation: Simulation, method: Method) -> bool:
    """Whether what clients deploy was measured after steps on the rows that it is judged by."""
    return simulation.adapt_on_test and (simulation.facts.refines or method.finetune)
