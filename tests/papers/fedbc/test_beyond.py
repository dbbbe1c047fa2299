"""FedBC's Fig. 1: where the optimum is, and claims that can fail."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed.papers.fedbc import beyond
from polyfed.papers.shared.experiment import silent


def test_the_gradients_of_the_two_clients_cancel_at_the_optimum() -> None:
    problem = beyond.problem_of(3)
    point = beyond.optimum_of(problem)
    gradients = []
    for client in range(2):
        a, b = problem.federation.train.of(client)
        gradients.append(a.T @ (a @ point - b) / len(a))
    np.testing.assert_allclose(gradients[0], -gradients[1], atol=1e-12)
    assert np.linalg.norm(gradients[0]) > 0.1


def rows(fedavg: float, growing: float, strict: float, loose: float) -> list[dict]:
    levels = {beyond.FEDAVG: fedavg, beyond.GROWING: growing, beyond.fixed(0): strict, beyond.fixed(1): loose}
    made = [{"method": "optimum", "seed": seed, "x": 0.0, "y": 0.0, "distance": 0.0} for seed in range(3)]
    return made + [
        {
            "method": label,
            "seed": seed,
            "round": stop,
            "x": 0.1,
            "y": 0.1,
            "distance": 1 + 0.1 * seed if stop == 0 else end,
        }
        for label, value in levels.items()
        for seed in range(3)
        for stop, end in ((0, 1.0), (5, value * (1 + 0.01 * seed)), (10, value * (1 + 0.01 * seed)))
    ]


def test_distances_at_the_end_decide() -> None:
    assert [c.verdict for c in beyond.judge(rows(0.2, 0.1, 0.1, 0.05))] == ["holds"] * 4
    verdicts = [c.verdict for c in beyond.judge(rows(0.001, 0.002, 0.002, 0.1))]
    assert verdicts == ["does not hold"] * 4
    assert len(beyond.draw(rows(0.2, 0.1, 0.1, 0.05)).axes) == 2


@pytest.mark.full
def test_the_quick_version_runs() -> None:
    measured = beyond.fig1.run(True, silent)
    first = [row for row in measured.rows if row.get("round") == 0]
    assert {row["x"] for row in first} == {0.0}
    ends = {row["method"]: row["distance"] for row in measured.rows if row.get("round") == 50 and row["seed"] == 0}
    assert ends[beyond.fixed(0)] < ends[beyond.FEDAVG] == pytest.approx(ends[beyond.fixed(1)])
