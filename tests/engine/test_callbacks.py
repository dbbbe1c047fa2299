"""Who listens to a run is told of its start, of every round, of evaluations and of its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyfed as pf
from polyfed.core.errors import PolyfedError


class Listener(pf.Callback):
    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []
        self.rows: list[dict[str, Any]] = []

    def on_start(self, simulation: Any) -> None:
        self.heard.append(("start", simulation.round))

    def on_evaluate(self, simulation: Any, row: dict[str, Any]) -> None:
        self.heard.append(("evaluate", row["round"]))
        self.rows.append(row)
        row["objective"] = 0.0  # its own copy

    def on_end(self, result: pf.Result) -> None:
        self.heard.append(("end", result.simulation.round))


class EveryRound(Listener):
    def on_round(self, simulation: Any) -> None:
        self.heard.append(("round", simulation.round))


@pytest.fixture(scope="module")
def problem() -> pf.Problem:
    return pf.Problem(pf.data.load("synthetic", clients=4, sizes=30, seed=1), pf.models.linear(), l2=0.01)


def simulated(problem: pf.Problem, *listeners: pf.Callback, rounds: int = 5, **options: Any) -> pf.Result:
    method = pf.algorithms.FedAvg(lr=0.1, local_steps=2)
    return pf.simulate(problem, method, rounds=rounds, eval_every=3, callbacks=listeners, **options)


def test_listeners_hear_everything_in_order_and_change_nothing(problem: pf.Problem) -> None:
    one, every = Listener(), EveryRound()
    result = simulated(problem, one, every)
    assert one.heard == [("start", 0), *(("evaluate", n) for n in (0, 3, 5)), ("end", 5)]
    rounds = [("evaluate", 0), ("round", 1), ("round", 2), ("round", 3), ("evaluate", 3), ("round", 4), ("round", 5)]
    assert every.heard == [("start", 0), *rounds, ("evaluate", 5), ("end", 5)]
    assert all(row["objective"] > 0 for row in result.rows)
    plain = simulated(problem)
    assert np.asarray(plain.global_params["w"]).tobytes() == np.asarray(result.global_params["w"]).tobytes()


def test_a_resumed_run_starts_where_it_left_off(problem: pf.Problem, tmp_path: Path) -> None:
    simulated(problem, rounds=3, checkpoint=tmp_path)
    listener = EveryRound()
    simulated(problem, listener, resume=tmp_path)
    assert listener.heard == [("start", 3), ("round", 4), ("round", 5), ("evaluate", 5), ("end", 5)]


def test_what_is_no_callback_is_refused(problem: pf.Problem) -> None:
    with pytest.raises(
        PolyfedError, match=r"expected objects of polyfed\.Callback, found Listener; make one: Listener()"
    ):
        simulated(problem, Listener)  # pyright: ignore[reportArgumentType]
    with pytest.raises(PolyfedError, match=r"expected objects of polyfed\.Callback, found function"):
        simulated(problem, lambda *_: None)  # pyright: ignore[reportArgumentType]
