"""Run and compare: from a config to a run directory."""

from __future__ import annotations

import json
import math
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, TextIO

import numpy as np

from polyfed.algorithms import Local
from polyfed.algorithms.shared.mixture import MixtureMethod
from polyfed.core.errors import Interrupted, PolyfedError
from polyfed.core.files import as_toml, slug, write_csv, write_text
from polyfed.core.machine import peak_memory_bytes
from polyfed.engine import hosts
from polyfed.engine.checkpoint import checkpoint as checkpoints
from polyfed.engine.checkpoint.tensors import save_rows, save_tree
from polyfed.engine.participation import Bernoulli
from polyfed.engine.result import Result
from polyfed.engine.simulate import PlannedRun, SweepProgress, simulate_all
from polyfed.engine.simulation import Metrics, Simulation, evaluated_clients
from polyfed.problem.problem import Problem
from polyfed.studies import evaluation as evaluate
from polyfed.studies.config import Config, Method
from polyfed.studies.newcomers import trained
from polyfed.studies.own_shares import ShareLog
from polyfed.studies.run_directory import RunRecord, read_run

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
    """Run the config's one method into `folder`. Of several processes, process 0 writes; the others return nothing."""
    if len(config.methods) > 1:
        raise PolyfedError(f"{config.where}: has {len(config.methods)} methods; use `polyfed compare`")
    _say_notes(config, options)
    places = {config.run.seed: folder}
    found = _run_seeds(config, config.methods[0], places, options, yardstick={}, order=0)
    hosts.meet()
    return list(found.values())


def _say_notes(config: Config, options: Options) -> None:
    for note in config.problem.notes:
        options.say(f"data: {note}")


def compare(config: Config, folder: Path, options: Options) -> list[RunRecord]:
    """Run every method of the config with every seed. Of several processes, process 0 writes and returns records."""
    _say_notes(config, options)
    seeds = config.run.seeds or (config.run.seed,)
    # Purely local training comes first: its clients are the yardstick of all others.
    order = sorted(range(len(config.methods)), key=lambda i: config.methods[i].algorithm.name != Local.name)
    records: dict[int, dict[int, RunRecord]] = {}
    yardstick: dict[int, Metrics] = {}
    for index in order:
        method = config.methods[index]
        places = {seed: folder / slug(method.label) / f"seed-{seed}" for seed in seeds}
        records[index] = _run_seeds(config, method, places, options, yardstick, order=index)
    found = [record for index in range(len(config.methods)) for record in records[index].values()]
    hosts.meet()
    return found


def _run_seeds(
    config: Config,
    method: Method,
    places: dict[int, Path],
    options: Options,
    yardstick: dict[int, Metrics],
    order: int,
) -> dict[int, RunRecord]:
    """A method with every seed, each into its directory; what is there afterwards, by seed, in process 0.

    The seeds are one sweep. `yardstick` keeps the metrics of going alone, by seed, for the next methods.
    """
    first, settings, seeds = hosts.is_first(), config.run, list(places)
    algorithm, finetune = method.algorithm, config.finetune(method.algorithm)
    resumed = {seed: _open(folder, options) for seed, folder in places.items()}

    def past(seed: int) -> list[dict[str, Any]]:
        resume = resumed[seed]
        return _checkpointed_rows(resume, settings.eval_every, settings.rounds) if resume and first else []

    with ExitStack() as stack:
        writers = [stack.enter_context(RunWriter(places[seed], config, method, seed, past(seed))) for seed in seeds]

        def on_progress(place: int, simulation: Simulation, row: dict[str, Any] | None) -> None:
            shares = None if row is None or method.finetune else simulation.own_share
            if row is not None and first:
                writers[place].write(row)
                if shares is not None:
                    writers[place].shares.write(row["round"], shares)
            if options.progress:
                options.progress(_label(method.label, seeds, place), settings.rounds, simulation, row)

        results = _simulate(
            config,
            [
                PlannedRun(
                    config.problem,
                    algorithm,
                    seed,
                    finetune,
                    resume=places[seed] / "checkpoint" if resumed[seed] else None,
                    checkpoint=places[seed] / "checkpoint",
                )
                for seed in seeds
            ],
            settings.rounds,
            on_progress,
            participation=1.0 if algorithm.name == Local.name else settings.participation,
            eval_every=settings.eval_every,
            checkpoint_every=settings.checkpoint_every,
            eval_clients=settings.eval_clients,
            adapt_on_test=settings.adapt_on_test,
            privacy=config.privacy,
        )
        if first:
            for writer in writers:
                writer.open()
    for seed, result in zip(seeds, results, strict=True):
        if result.interrupted:
            hosts.meet()
            raise Interrupted(places[seed], result.simulation.round)
    measured = {seed: result.metrics(finetune) for seed, result in zip(seeds, results, strict=True)}
    if algorithm.name == Local.name:
        for seed, metrics in measured.items():
            yardstick.setdefault(seed, {"alone": metrics["personal"]})
    elif settings.alone:
        yardstick |= _alone(config, [seed for seed in seeds if seed not in yardstick], options)
    found = {}
    for seed, result, writer in zip(seeds, results, writers, strict=True):
        metrics = measured[seed] | yardstick.get(seed, {})
        if method.finetune:
            if "finetuned" not in metrics:
                raise PolyfedError(f"{config.where}: '{method.label}' asks for fine-tuning, but nothing is fine-tuned")
            metrics["personal"] = metrics["finetuned"]
        shares = None if method.finetune else result.simulation.own_share
        if settings.save_models:
            _write_models(places[seed] / "models", result.simulation)
        if first:
            writer.shares.finish()
            _write_outcome(places[seed], config, method, result, metrics, shares, order)
            found[seed] = read_run(places[seed])
    return found


def _label(label: str, seeds: list[int], place: int) -> str:
    return label if len(seeds) == 1 else f"{label}, seed {seeds[place]}"


def _simulate(
    config: Config, planned: list[PlannedRun], rounds: int, progress: SweepProgress, **options: Any
) -> list[Result]:
    """`simulate_all` with the config's settings; its errors name the config."""
    try:
        return simulate_all(planned, rounds=rounds, progress=progress, **options, **config.run.engine)
    except PolyfedError as error:
        raise PolyfedError(f"{config.where}: {error}") from None


def _alone(config: Config, seeds: list[int], options: Options) -> dict[int, Metrics]:
    """By seed, {"alone": metrics} of every client that is evaluated, on its own.

    Nothing where that diverged, as it would flatter the others. What a client does alone depends on no other, so where
    a sample is evaluated, no other is trained.
    """
    settings, method, problem = config.run, config.local, config.problem
    rounds = 1 if isinstance(method, MixtureMethod) else settings.rounds  # pure local models are there before the first

    def problem_of(seed: int) -> Problem:
        if settings.eval_clients is None:
            return problem
        return problem.select(evaluated_clients(len(problem), settings.eval_clients, seed))

    def on_progress(place: int, simulation: Simulation, row: dict[str, Any] | None) -> None:
        if options.progress:
            options.progress(_label("going alone", seeds, place), rounds, simulation, row)

    planned = [PlannedRun(problem_of(seed), method, seed) for seed in seeds]
    results = _simulate(config, planned, rounds, on_progress, eval_every=rounds)
    if any(result.interrupted for result in results):
        hosts.meet()
        raise KeyboardInterrupt
    return {
        seed: {} if result.diverged else {"alone": result.metrics()["personal"]}
        for seed, result in zip(seeds, results, strict=True)
    }


def _open(folder: Path, options: Options) -> Path | None:
    """The checkpoint to go on from; None where the run begins."""
    if options.resume:
        found = checkpoints.latest(folder / "checkpoint")
        if found is None:
            options.say(f"{folder}: no checkpoint yet, starting from the beginning")
        return found
    if not options.overwrite and hosts.agreed((folder / "metrics.jsonl").exists):
        raise PolyfedError(f"{folder}: there is a run already; use --resume, --overwrite or another --out")
    return None


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
            for name in ("models", trained.FOLDER):
                shutil.rmtree(self.folder / name, ignore_errors=True)
            write_text(self.folder / "config.toml", as_toml(resolved))
            rounds = [row["round"] for row in self.past]
            names: Sequence[str] = self.config.problem.federation.clients
            measured = evaluated_clients(len(names), self.config.run.eval_clients, self.seed)
            self.shares = ShareLog(self.folder, [names[int(client)] for client in measured], rounds)
            self.file = (self.folder / "metrics.jsonl").open("w")
            for row in self.past:
                self.write(row)
        return self.file

    def write(self, row: dict[str, Any]) -> None:
        file = self.open()
        file.write(json.dumps(plain(_deployed(row, self.method))) + "\n")
        file.flush()


def _deployed(row: dict[str, Any], method: Method) -> dict[str, Any]:
    """The history's row of a method that deploys the fine-tuned model: its personal columns are that model's."""
    if not method.finetune:
        return row
    tuned = {key.replace("finetuned_", "personal_", 1): row[key] for key in row if key.startswith("finetuned_")}
    return row | tuned


def _write_outcome(
    folder: Path,
    config: Config,
    method: Method,
    result: Result,
    metrics: Metrics,
    shares: np.ndarray | None,
    order: int,
) -> None:
    simulation, problem, clients = result.simulation, config.problem, result.simulation.evaluated
    weights = simulation.server_weights
    write_csv(folder / "clients.csv", evaluate.client_rows(problem, metrics, shares, weights, clients))
    if config.run.save_models:
        finetune = config.finetune(method.algorithm) if method.finetune else None
        trained.save(folder, trained.Trained.of(simulation, finetune))
    summary = {
        "label": method.label,
        "algorithm": method.algorithm.name,
        "order": order,
        "seed": simulation.seed,
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
        "adapted_on_test": adapts_on_test(simulation, method),
        **({} if simulation.spent is None else {"epsilon": simulation.spent["epsilon"], "privacy": simulation.spent}),
        **evaluate.summarize(problem, metrics, weights, clients),
    }
    write_text(folder / "summary.json", json.dumps(plain(summary), indent=1) + "\n")


def adapts_on_test(simulation: Simulation, method: Method) -> bool:
    """Whether what clients deploy was measured after steps on the rows that it is judged by."""
    return simulation.adapt_on_test and (simulation.facts.refines or method.finetune)


def _write_models(folder: Path, simulation: Simulation) -> None:
    """models/global.safetensors and, where clients differ, models/personal.safetensors: its first axis is the clients.

    Those that were evaluated, in the order of clients.csv.
    """
    blocks = simulation.personal_blocks() if simulation.facts.personalizes else None
    if not hosts.is_first():
        deque(blocks or (), maxlen=0)  # to have them sent
        return
    folder.mkdir(exist_ok=True)
    shared = simulation.global_params
    if shared is not None:
        save_tree(folder / "global.safetensors", shared)
    if blocks is not None:
        save_rows(folder / "personal.safetensors", blocks, len(simulation.evaluated))


def plain(value: Any) -> Any:
    """As JSON knows it: a number that is not finite becomes null."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
