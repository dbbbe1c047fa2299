"""Whom a run tells how it goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyfed.core.errors import PolyfedError
from polyfed.engine.history import HistoryRow
from polyfed.engine.simulation import Simulation

if TYPE_CHECKING:
    from polyfed.engine.result import Result


class Callback:
    """Override what you want to hear of. A callback sees; it does not change the run."""

    def on_start(self, simulation: Simulation) -> None:
        """Before the first round, or the first after `resume`."""

    def on_round(self, simulation: Simulation) -> None:
        """After every round. Overriding it makes rounds run one at a time, which takes longer."""

    def on_evaluate(self, simulation: Simulation, row: HistoryRow) -> None:
        """After every evaluation, that of the start included, with the history's new row."""

    def on_end(self, result: Result) -> None:
        """When the run has come to its end, diverged, or was stopped by Ctrl-C."""


class Callbacks:
    """All of them."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        for callback in callbacks:
            if not isinstance(callback, Callback):
                what = callback.__name__ if isinstance(callback, type) else type(callback).__name__
                made = "; make one: " + what + "()" if isinstance(callback, type) else ""
                raise PolyfedError(f"callbacks: expected objects of polyfed.Callback, found {what}{made}")
        self.callbacks = list(callbacks)
        self.every_round = any(type(callback).on_round is not Callback.on_round for callback in callbacks)

    def start(self, simulation: Simulation) -> None:
        self._round = simulation.round
        for callback in self.callbacks:
            callback.on_start(simulation)

    def progress(self, simulation: Simulation, row: HistoryRow | None) -> None:
        """As the loop tells its progress."""
        for callback in self.callbacks:
            if simulation.round != self._round:
                callback.on_round(simulation)
            if row is not None:
                callback.on_evaluate(simulation, dict(row))
        self._round = simulation.round

    def end(self, result: Result) -> None:
        for callback in self.callbacks:
            callback.on_end(result)
