"""The only loop in Python: it takes runs to their end, one of them or several as one program."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from polyfed.algorithms.contract import Algorithm
from polyfed.core.files import JsonObject
from polyfed.engine import hosts
from polyfed.engine.callbacks import Callback, Callbacks
from polyfed.engine.checkpoint import checkpoint as checkpoints
from polyfed.engine.history import HistoryRow, distance_of, history_rows
from polyfed.engine.measure import FineTune
from polyfed.engine.simulation import Simulation
from polyfed.engine.sweep import Sweep
from polyfed.problem.problem import Problem

log = logging.getLogger("polyfed")
PACE = 0.5
"""The seconds that one call of the compiled rounds should take, so that progress shows and Ctrl-C is heard."""
SweepProgress = Callable[[int, Simulation, HistoryRow | None], None]
"""Called after every stretch of rounds with the place of a run, and the history's new row where there is one."""


@dataclass(frozen=True)
class PlannedRun:
    """One of the runs that are simulated together; the fields are arguments of `simulate`."""

    problem: Problem
    algorithm: Algorithm
    seed: int = 0
    finetune: FineTune | None = None
    resume: Path | None = None
    checkpoint: Path | None = None
    callbacks: Sequence[Callback] = ()


@dataclass(eq=False)
class RunUnderWay:
    """A run between its start and its end; `place` is that among all planned runs."""

    place: int
    plan: PlannedRun
    simulation: Simulation
    identity: JsonObject
    rows: list[HistoryRow] = field(default_factory=list)
    diverged: str | None = None

    def __post_init__(self) -> None:
        self.distance = distance_of(self.simulation)
        self.excluded = self.simulation.excluded
        self.callbacks = Callbacks(self.plan.callbacks)

    @property
    def heard(self) -> bool:
        """Whether the run has any callbacks."""
        return bool(self.callbacks.callbacks)

    def keep(self) -> None:
        if self.plan.checkpoint is not None:
            simulation = self.simulation
            meta = {
                "identity": self.identity,
                "counters": simulation.counters,
                "seconds": simulation.seconds,
                "history": self.rows,
            }
            checkpoints.save(self.plan.checkpoint, simulation.round, simulation.state(), meta)


@dataclass(frozen=True)
class Loop:
    """The only loop in Python: advance some rounds, evaluate, save a checkpoint, show progress, hear Ctrl-C."""

    rounds: int
    eval_every: int
    checkpoint_every: int | None
    progress: SweepProgress | None
    keep_finished: bool
    measures: bool = True
    """without evaluations there is no history"""

    def drive(self, runs: list[RunUnderWay], interrupted: Callable[[], bool]) -> None:
        """Run these to their end, as one program where they are several."""
        together = Sweep([run.simulation for run in runs]) if len(runs) > 1 else None
        if interrupted():
            return
        for run in runs:
            run.callbacks.start(run.simulation)
        one_by_one = any(run.callbacks.every_round for run in runs)
        if not runs[0].rows:
            runs[0].simulation.prepare() if together is None else together.prepare()
            if self.measures:
                self._evaluate(runs, together, runs)
            self._tell(runs, evaluated=self.measures)
        elif together is not None and runs[0].simulation.round == self.rounds:
            self._measure(runs, together, runs)  # measured apart, ended runs would have other last bits
        going = [run for run in runs if run.simulation.round < self.rounds]
        while going:
            simulation = going[0].simulation
            stop = _next_stop(simulation.round, self.rounds, self.eval_every, self.checkpoint_every)
            stretch, asked = _agreed(1 if one_by_one else _stretch(simulation, stop, len(runs)), interrupted())
            if asked:
                break
            before, empty = simulation.round, [run.simulation.empty_rounds for run in going]
            if together is None:
                simulation.advance(stretch)
            else:
                together.advance(stretch, {runs.index(run) for run in going})
            now = simulation.round
            evaluates = self.measures and (now == self.rounds or now % self.eval_every == 0)
            keeps = bool(self.checkpoint_every) and now % (self.checkpoint_every or 1) == 0 and now < self.rounds
            if evaluates or keeps:
                self._evaluate(runs, together, going, measure=evaluates)
            elif together is not None and any(run.plan.checkpoint for run in going):
                together.settle([runs.index(run) for run in going])
            for run, known in zip(going, empty, strict=True):
                run.excluded = _report_excluded(run.excluded, run.simulation.excluded, before, now)
                if run.simulation.empty_rounds > known:
                    run.diverged = f"no client's update was finite by round {now}"
                elif evaluates and not np.isfinite(run.rows[-1]["objective"]):
                    run.diverged = f"the objective is {run.rows[-1]['objective']} at round {now}"
            self._tell(going, evaluates)  # first, so that what was told of a round is never behind its checkpoint
            if together is not None:
                together.settle([runs.index(run) for run in going if run.diverged])
                for run in going:
                    if run.diverged:  # the sweep goes on, and would change its state
                        run.simulation.fetch()
            going = [run for run in going if not run.diverged]
            if keeps:
                for run in going:
                    run.keep()
            if now == self.rounds:
                break
        if together is not None and going:
            together.settle([runs.index(run) for run in going])
        for run in runs:
            if not run.diverged and (self.keep_finished or run.simulation.round < self.rounds):
                run.keep()

    def _evaluate(
        self, runs: list[RunUnderWay], together: Sweep | None, going: list[RunUnderWay], measure: bool = True
    ) -> None:
        """A row of the history for each of those that are going."""
        if together is not None:
            if self.progress is not None or any(run.distance or run.plan.checkpoint or run.heard for run in going):
                together.settle([runs.index(run) for run in going])
            if measure:
                self._measure(runs, together, going)
        if measure:
            rows = history_rows(
                [run.simulation for run in going],
                [run.plan.finetune for run in going],
                [run.distance for run in going],
            )
            for run, row in zip(going, rows, strict=True):
                run.rows.append(row)

    def _measure(self, runs: list[RunUnderWay], together: Sweep, going: list[RunUnderWay]) -> None:
        """Measure all runs of a sweep at once; those that are going remember it."""
        for run, metrics in zip(runs, together.measure(), strict=True):
            if run in going:
                run.simulation.remember(metrics)
        tunes = [run.plan.finetune for run in runs]
        if all(tunes) and "global" in runs[0].simulation.measure():
            measured = together.measure([tune for tune in tunes if tune is not None])
            for run, metrics in zip(runs, measured, strict=True):
                if run in going:
                    run.simulation.remember(metrics, run.plan.finetune)

    def _tell(self, runs: list[RunUnderWay], evaluated: bool) -> None:
        for run in runs:
            row = run.rows[-1] if evaluated else None
            if self.progress is not None:
                self.progress(run.place, run.simulation, row)
            run.callbacks.progress(run.simulation, row)


def _next_stop(round: int, rounds: int, *every: int | None) -> int:
    """The next round after which there is an evaluation, a checkpoint or the end."""
    return min([rounds, *((round // step + 1) * step for step in every if step)])


def _stretch(simulation: Simulation, stop: int, runs: int) -> int:
    """How many rounds of so many runs to do before looking up: up to `stop`, and about `PACE` seconds."""
    left, known, key = stop - simulation.round, simulation.problem.traced, ("pace", simulation.programs.round)
    if simulation.round and simulation.seconds:
        known[key] = simulation.round / simulation.seconds
    if key not in known:
        return 1
    return max(1, min(left, int(PACE * known[key] / runs)))


def _agreed(stretch: int, asked: bool) -> tuple[int, bool]:
    """Process 0's stretch, as clocks differ, and whether any process was asked to stop."""
    all_hosts = hosts.gathered(np.array([stretch, asked]))
    return int(all_hosts[0, 0]), bool(all_hosts[:, 1].any())


def _report_excluded(known: dict[str, int], now: dict[str, int], first: int, last: int) -> dict[str, int]:
    for client, count in now.items():
        if count > known.get(client, 0):
            log.warning(
                "client '%s': update not finite, left out %d times in rounds %d to %d",
                client,
                count - known.get(client, 0),
                first + 1,
                last,
            )
    return now


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Within it, the first Ctrl-C only asks the run to stop after the current stretch; the second is the usual one."""
    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
