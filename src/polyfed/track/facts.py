"""What a tracker is told of a run."""

from __future__ import annotations

import math

from polyfed.engine.history import HistoryRow
from polyfed.engine.simulation import Simulation


def settings_of(simulation: Simulation) -> dict[str, str | int | float | bool]:
    """The method with its hyper-parameters, the problem, and what decides the run's numbers."""
    problem, method = simulation.problem, simulation.method
    plain = {
        name: value if isinstance(value, str | int | float | bool) else repr(value)
        for name, value in vars(method).items()
    }
    return {
        "algorithm": method.name,
        **{name: value for name, value in plain.items() if value != "None"},
        "loss": problem.loss.name,
        "l2": problem.l2,
        "clients": len(problem),
        "parameters": simulation.parameters,
        "seed": simulation.seed,
        "dtype": simulation.dtype,
        "data_digest": problem.fingerprint,
    }


def figures_of(row: HistoryRow) -> dict[str, float]:
    """The numbers of a row of the history, but for the round; what is not finite is left out."""
    figures = {name: float(value) for name, value in row.items() if isinstance(value, int | float) and name != "round"}
    return {name: value for name, value in figures.items() if math.isfinite(value)}
