"""PLSGD, Table 1: claims on made-up distances."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed.algorithms import FedAvg
from polyfed.papers.plsgd import table1
from polyfed.papers.plsgd.runs import TUNING


def test_rows_of_the_table_and_the_window_are_judged_by_seeds() -> None:
    def verdicts(ours: float, alone: float, own: float) -> list[str]:
        rows = []
        for method, distance, predicted in (
            ("pure local training", alone, {"predicted": 1.0, "in_window": True}),
            (table1.OURS, ours, {"predicted": 1.0, "in_window": True}),
            (table1.OWN_STEPSIZE, own, {"predicted": 2.0}),
        ):
            facts = {"federation": "one", "method": method, "R": 5}
            rows.append(facts | predicted)
            values = (distance, distance * 1.01, distance * 0.985)
            rows += [{**facts, "seed": seed, "distance": value} for seed, value in enumerate(values)]
        return [claim.verdict for claim in table1.judge(rows)]

    assert verdicts(ours=1.0, alone=2.0, own=1.5) == ["holds"] * 4
    assert verdicts(ours=20.0, alone=2.0, own=2.5) == ["holds", *["does not hold"] * 3]
    assert verdicts(ours=2.0, alone=2.0, own=2.0)[2:] == ["undecided"] * 2


def test_stepsizes_are_chosen_on_seeds_that_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the reported seeds another stepsize would be better at R = 20. The end of a grid is named."""

    class Known:
        def __init__(self, problem: object, method: FedAvg) -> None:
            assert isinstance(method.lr, float)
            self.lr = method.lr

        def distances(self, optima: object, seeds: range, rounds: tuple[int, ...]) -> np.ndarray:
            best = {True: (0.1, 0.1, 0.4), False: (0.1, 0.2, 0.4)}[min(seeds) >= TUNING]
            return np.array([[abs(self.lr - b) + 0.001 * seed for b in best] for seed in range(len(seeds))])

    monkeypatch.setattr(table1, "Seeds", Known)
    fed, grid = table1.FEDERATIONS[0], np.array([0.05, 0.1, 0.2, 0.4])
    found = table1._best(None, fed, "local SGD", grid, 3, 4)  # pyright: ignore[reportArgumentType]
    assert [(each.lr, each.end) for each in found] == [(0.1, ""), (0.1, ""), (0.4, "largest")]
    np.testing.assert_allclose(found[1].distances, 0.1 + 0.001 * np.arange(4))
