"""What tuning found: every candidate, the winner of each method, and a config that runs the winners."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyfed.core.errors import PolyfedError
from polyfed.core.files import as_toml, write_csv, write_text
from polyfed.problem.metrics import Metric
from polyfed.studies.config import Config, Method, as_table
from polyfed.studies.search_space import Axis, TunePlan

if TYPE_CHECKING:
    import pandas as pd

    from polyfed.algorithms.contract import Algorithm


@dataclass(frozen=True)
class Trial:
    """One candidate and what it reached."""

    method: str
    candidate: int
    """its number among the method's, from 1"""
    origin: str
    """"grid", "random", "optuna" or, with an empty space, "fixed" """
    values: dict[str, Any]
    score: float | None
    """what chooses: one of `measured`"""
    measured: dict[str, float | None]
    """the loss, the metric that is shown and what chooses, by name: means over clients, and runs, of what clients
    deploy, on validation rows, at the last round; None if a run diverged"""
    diverged: bool
    seconds: float
    compile_seconds: float

    @property
    def loss(self) -> float | None:
        return self.measured["loss"]


@dataclass(frozen=True)
class Tuning:
    """All candidates of all methods, in the order in which they were run."""

    config: Config
    plan: TunePlan
    shown: Metric
    """the metric of tables"""
    by: Metric | None
    """what chooses; None for the loss"""
    trials: tuple[Trial, ...]
    methods: dict[str, list[Method]]
    """the candidates as methods, by label"""

    @property
    def metric(self) -> str:
        """The name of the metric of tables."""
        return self.shown.name

    @property
    def chosen_by(self) -> str:
        """The name of what chooses."""
        return "loss" if self.by is None else self.by.name

    def of(self, label: str) -> list[Trial]:
        return [trial for trial in self.trials if trial.method == label]

    def winner(self, label: str) -> Trial | None:
        """The candidate that is best by what chooses; None where all diverged.

        Of equals, the one with the least loss; of those, the one in the middle of their range.
        """
        sound = [trial for trial in self.of(label) if not trial.diverged]
        if not sound:
            return None
        sign = 1.0 if self.by is not None and self.by.higher_is_better else -1.0

        def rank(trial: Trial) -> tuple[float, float]:
            return _worth(trial.score, sign), _worth(trial.loss, -1.0)

        best = max(map(rank, sound))
        return _middle([trial for trial in sound if rank(trial) == best])

    @property
    def best(self) -> dict[str, Algorithm]:
        """The winner of each method, ready for `simulate`."""
        return {method.label: method.algorithm for method in self._winners()}

    @property
    def table(self) -> pd.DataFrame:
        """A row per candidate."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row per candidate; a hyper-parameter that its method does not search is empty."""
        names = list(dict.fromkeys(name for trial in self.trials for name in trial.values))
        best = {label: self.winner(label) for label in self.methods}
        return [
            {
                "method": trial.method,
                "candidate": trial.candidate,
                "origin": trial.origin,
                **{name: _cell(trial.values.get(name)) for name in names},
                **{f"validation_{name}": value for name, value in trial.measured.items()},
                "diverged": trial.diverged,
                "best": trial is best[trial.method],
                "seconds": trial.seconds,
                "compile_seconds": trial.compile_seconds,
            }
            for trial in self.trials
        ]

    def edges(self, label: str) -> list[str]:
        """Where the winner is the smallest or largest number that was tried: the best may lie beyond."""
        best, ends = self.winner(label), []
        for axis in self.plan.spaces[label] if best is not None else ():
            tried = [trial.values[axis.name] for trial in self.of(label)]
            if axis.kind == "other" or not all(isinstance(value, int | float) for value in tried):
                continue
            assert best is not None
            value, algorithm = best.values[axis.name], self.methods[label][best.candidate - 1].algorithm
            for end, sign, word in ((min(tried), -1, "smallest"), (max(tried), 1, "largest")):
                if value == end and min(tried) < max(tried) and _goes_on(algorithm, axis, value, sign):
                    ends.append(f"{axis.name} = {value:g} is the {word} that was tried")
        return ends

    def write(self, folder: Path) -> None:
        """tuning.csv with all candidates and, where the data came from a config, best.toml with the winners."""
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(folder / "tuning.csv", self.rows)
        lost = [label for label in self.methods if self.winner(label) is None]
        if lost:
            raise PolyfedError(
                f"{folder / 'tuning.csv'}: all {len(self.of(lost[0]))} candidates of '{lost[0]}' diverged, so that "
                "there is no winner; search smaller stepsizes"
            )
        if self.config.data:
            write_text(folder / "best.toml", self._best_toml())

    def _winners(self) -> list[Method]:
        chosen = []
        for label, candidates in self.methods.items():
            best = self.winner(label)
            if best is None:
                raise PolyfedError(f"all candidates of '{label}' diverged, so that there is no winner")
            chosen.append(candidates[best.candidate - 1])
        return chosen

    def _best_toml(self) -> str:
        winners = self._winners()
        resolved = self.config.resolved(winners[0])
        sections: dict[str, Any] = {name: resolved[name] for name in ("data", "problem", "run")}
        sections["compare"] = [
            {"name": method.algorithm.name, "label": method.label}
            | ({"finetune": True} if method.finetune else {})
            | as_table(method.algorithm)
            for method in winners
        ]
        settings = self.plan.settings
        rounds = settings.rounds or self.config.run.rounds
        work = f"{rounds} rounds each" if settings.repeats == 1 else f"{settings.repeats} runs of {rounds} rounds each"
        lines = [f"# The winners of `polyfed tune`: {settings.budget} candidates per method, {work},"]
        lines.append(f"# by the mean validation {self.chosen_by} of the deployed models over clients.")
        return "\n".join([*lines, as_toml(sections)])


def _middle(tied: list[Trial]) -> Trial:
    """Of candidates that nothing tells apart, the one whose numbers are nearest to the middle of theirs.

    Distances are counted in places along each hyper-parameter's sorted values, so that 0.01 is the middle of 0.001,
    0.01 and 0.1. Of two middles the smaller one is taken.
    """
    tried = {name: sorted({trial.values[name] for trial in tied}) for name in tied[0].values if _ordered(name, tied)}

    def distance(trial: Trial) -> tuple[float, list[float]]:
        places = [values.index(trial.values[name]) - (len(values) - 1) / 2 for name, values in tried.items()]
        return sum(map(abs, places)), places

    return min(tied, key=distance)


def _ordered(name: str, trials: list[Trial]) -> bool:
    """Whether all values of a hyper-parameter are numbers."""
    values = [trial.values.get(name) for trial in trials]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _worth(value: float | None, sign: float) -> float:
    """More is better; a metric that no client has ranks below all others."""
    return -math.inf if value is None else sign * value


def _goes_on(algorithm: Algorithm, axis: Axis, value: float, sign: int) -> bool:
    """Whether the method takes values beyond this one: 0 and 1 are the ends of a mixing weight."""
    step = 1 if axis.kind == "whole" else 1e-3 * max(1.0, abs(value)) if value == 0 else 1e-3 * abs(value)
    try:
        dataclasses.replace(algorithm, **{axis.name: value + sign * step}).check()  # pyright: ignore
    except PolyfedError:
        return False
    return True


def _cell(value: Any) -> Any:
    """A hyper-parameter as one cell of a table."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value
