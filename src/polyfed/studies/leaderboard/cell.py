"""One cell of the leaderboard: a method on a federation, tuned on one draw and judged on others."""

from __future__ import annotations

import hashlib
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

import numpy as np

from polyfed.algorithms.contract import Algorithm, kinds
from polyfed.core.errors import PolyfedError
from polyfed.core.startup import cache_folder
from polyfed.core.trees import bits
from polyfed.data import Federation
from polyfed.engine.loop import PlannedRun
from polyfed.engine.result import Result
from polyfed.engine.simulate import simulate_all
from polyfed.problem.metrics import default_metric
from polyfed.problem.problem import Problem
from polyfed.studies.evaluation import spread
from polyfed.studies.leaderboard.contenders import BUDGET, Contender
from polyfed.studies.leaderboard.federations import Arena

POINTS = 20
"""A curve has so many points, at even shares of the rounds."""
MOST = 4
"""A method whose rounds cost little has at most so many times the rounds of one that sends models."""
CellProgress = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """What a method reached on a federation with one seed: means over all clients, at the last round, on test rows."""

    federation: str
    method: str
    seed: int
    personal: float | None
    """the metric of the models that clients deploy; None where the run diverged"""
    shared: float | None
    """of the global model; None without one"""
    worst: float | None
    """of the deployed models, the mean of the worst tenth of the clients"""
    rounds: int
    bits: float
    """up and down, in all"""
    seconds: float
    """of all rounds, without compilation and measuring; runs that went side by side share them evenly"""
    curve: str
    """the deployed models' mean validation loss at even shares of the rounds, with blanks between"""
    chosen: str
    """the hyper-parameters that validation chose"""
    spec: str
    """a digest of the federation's and the method's settings"""


def spec_of(arena: Arena, contender: Contender) -> str:
    """What decides a cell's numbers apart from code, in a few letters."""
    return hashlib.blake2b(repr((asdict(arena), asdict(contender), BUDGET)).encode(), digest_size=4).hexdigest()


def run_cell(
    name: str, arena: Arena, label: str, contender: Contender, say: CellProgress = lambda words: None
) -> list[Cell]:
    """Tune by the validation loss of a first draw, then run the winner on the other draws, for as many bits as all.

    The first draw has seed 0, and its test rows are not looked at; the others have seeds 1, 2, ...
    """
    candidates = contender.candidates(label, arena)
    problem = arena.problem(0)
    if not isinstance(problem.federation, Federation) or not len(problem.federation.validation.y):
        raise PolyfedError(f"{name}: a federation of the leaderboard needs validation rows in memory")
    with _silence():
        rounds = rounds_of(arena, problem, candidates)
        say(f"tuning over {rounds} rounds")
        tried = _run(arena, contender, [(problem, each, 0) for each in candidates], rounds, rounds)
        losses = [_validation_loss(contender, result) for result in tried]
        if not np.isfinite(losses).any():
            return [_lost(name, label, seed, rounds, spec_of(arena, contender)) for seed in range(1, arena.seeds + 1)]
        winner = candidates[int(np.nanargmin(losses))]
        say(f"{arena.seeds} draws with {_words(candidates, winner) or 'nothing to choose'}")
        draws = [(arena.problem(seed), winner, seed) for seed in range(1, arena.seeds + 1)]
        every = max(1, rounds // POINTS)
        results = _run(arena, contender, draws, rounds, every)
    chosen, spec = _words(candidates, winner), spec_of(arena, contender)
    return [
        _judged(name, label, contender, seed, result, chosen, spec)
        for seed, result in zip(range(1, arena.seeds + 1), results, strict=True)
    ]


def rounds_of(arena: Arena, problem: Problem, candidates: Sequence[Algorithm]) -> int:
    """The rounds that the budget of bits pays for, from those that a round of the first candidate costs.

    A method that sends nothing trains for the arena's rounds. Where a round costs little, `MOST` times these. All
    candidates run, as they will when they are tuned: one alone would be another program to compile.
    """
    results = _simulate(arena, [PlannedRun(problem, each) for each in candidates], 2, 2)
    simulation = results[0].simulation
    spent = (simulation.bits_up + simulation.bits_down) / 2
    if spent == 0:
        return arena.rounds
    share = arena.participation
    there = share if isinstance(share, int) else round(share * len(problem))
    model = bits(simulation.global_params if simulation.global_params is not None else simulation.personal(0))
    return max(1, min(MOST * arena.rounds, math.floor(arena.rounds * 2 * there * model / spent)))


Draw = tuple[Problem, Algorithm, int]


def _run(arena: Arena, contender: Contender, draws: list[Draw], rounds: int, every: int) -> list[Result]:
    planned = [PlannedRun(problem, method, seed, contender.finetune(method)) for problem, method, seed in draws]
    return _simulate(arena, planned, rounds, every)


def _simulate(arena: Arena, planned: list[PlannedRun], rounds: int, every: int) -> list[Result]:
    """Alone, every client trains in every round; elsewhere the arena's participation holds."""
    alone = planned[0].algorithm.name == "local"
    results = simulate_all(
        planned,
        rounds=rounds,
        eval_every=every,
        participation=1.0 if alone else arena.participation,
        local_models=cache_folder() / "local-models",
    )
    if any(result.interrupted for result in results):
        raise KeyboardInterrupt
    return results


def _model(contender: Contender) -> str:
    return "finetuned" if contender.finetuned else "personal"


def _validation_loss(contender: Contender, result: Result) -> float:
    if result.diverged is not None:
        return math.nan
    value = result.rows[-1][f"{_model(contender)}_validation_loss"]
    return math.nan if value is None or not math.isfinite(value) else float(value)


def _judged(name: str, label: str, contender: Contender, seed: int, result: Result, chosen: str, spec: str) -> Cell:
    simulation, problem = result.simulation, result.problem
    lost = _lost(name, label, seed, simulation.round, spec)
    if result.diverged is not None:
        return replace(lost, chosen=chosen)
    metric = default_metric(problem)
    sizes = problem.federation.split("test").sizes[simulation.evaluated]
    finetune = contender.finetune(simulation.method)
    columns = result.evaluate("test", finetune, [metric.name])
    figures = {
        model: spread(columns[f"{model}_{metric.name}"].to_numpy(np.float64), sizes, metric.name)
        for model in ("global", _model(contender))
        if f"{model}_{metric.name}" in columns
    }
    points = [row.get(f"{_model(contender)}_validation_loss") for row in result.rows]
    return replace(
        lost,
        personal=_short(figures[_model(contender)]["mean"]),
        shared=_short(figures["global"]["mean"]) if "global" in figures else None,
        worst=_short(figures[_model(contender)]["worst10"]),
        bits=float(simulation.bits_up + simulation.bits_down),
        seconds=float(f"{simulation.seconds:.3g}"),
        curve=" ".join("nan" if point is None else f"{point:.4g}" for point in points),
        chosen=chosen,
    )


def _lost(name: str, label: str, seed: int, rounds: int, spec: str) -> Cell:
    """A run that left the finite numbers."""
    return Cell(name, label, seed, None, None, None, rounds, 0.0, 0.0, "", "", spec)


def _short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 5)


def _words(candidates: list[Algorithm], winner: Algorithm) -> str:
    """What differs among the candidates, as the winner has it; at the end of the range it is marked."""
    words = []
    for name in kinds(type(winner)):
        values = {repr(getattr(candidate, name)): getattr(candidate, name) for candidate in candidates}
        if len(values) > 1:
            own, tried = getattr(winner, name), list(values.values())
            edge = "" if min(tried) < own < max(tried) else "*"
            words.append(f"{name} {own:.3g}{edge}")
    return ", ".join(words)


@contextmanager
def _silence() -> Iterator[None]:
    """Nothing is said of candidates that diverge: the table tells."""
    log = logging.getLogger("polyfed")
    before, log.disabled = log.disabled, True
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        log.disabled = before
