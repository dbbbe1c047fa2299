"""The benchmark of very many clients: its arithmetic, and that it runs. Its times are not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import polyfed as pf
from polyfed.bench.growth import Growth, bench_growth, draw
from polyfed.bench.scale import ROWS, Work, bench_scale, population


def test_the_line_and_its_knee_are_those_of_the_times() -> None:
    values = (1, 2, 4, 8, 80)
    found = Growth("steps", values, tuple(0.1 + 0.01 * value for value in values))
    assert found.line() == (pytest.approx(0.1), pytest.approx(0.01))
    assert found.knee == pytest.approx(10)
    assert found.off == pytest.approx(0, abs=1e-12)
    assert Growth("clients", values, (0.2,) * 5).knee is None
    proportional = Growth("cohort", (10, 20, 40), (0.09, 0.2, 0.41))  # whose best line has a negative fixed part
    assert proportional.line()[0] == 0
    assert proportional.knee is None
    assert 0.05 < proportional.off < 0.15
    assert proportional.as_dict()["slope"] == pytest.approx(0.01, rel=0.05)


@pytest.mark.full
def test_growth_is_measured_and_drawn(tmp_path: Path) -> None:
    (found,) = bench_growth(1, {"cohort": (Work(clients=50, cohort=2, steps=1, features=3),)})
    assert found.values == (2,)
    assert found.seconds[0] > 0
    knee = Growth("steps", (1, 8, 80), (0.1, 0.2, 1.0))
    assert draw([found, knee], tmp_path / "growth.png").read_bytes()[1:4] == b"PNG"
    with pytest.raises(pf.PolyfedError, match="repeat must be at least 1, found 0"):
        bench_growth(0)


def test_generated_rows_follow_from_the_client_alone() -> None:
    small, large = population(100, 5), population(10_000, 5)
    for a, b in zip(small.train.of(77), large.train.of(77), strict=True):
        np.testing.assert_array_equal(a, b)
    assert small.train.sizes[0] + small.test.sizes[0] == ROWS


@pytest.mark.full
def test_the_command_tells_time_memory_and_bytes(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "polyfed",
        "bench",
        "scale",
        "--repeat",
        "1",
        "--clients",
        "100",
        "--clients",
        "5000",
    ]
    command += ["--json", "--record", str(tmp_path / "scale.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "scale.json").read_text())
    first, second = found["populations"]
    assert (first["ratio"], first["clients"], second["clients"]) == (1, 100, 5000)
    assert first["seen"] == 100 < second["seen"] <= 500  # four cohorts, and the evaluated clients
    for row in found["populations"]:
        own = (7850 + 1) * 4 + 1  # a client's own model, its mixing weight, and whether it has taken part
        assert row["store_bytes"] == row["seen"] * own
        assert row["store_bytes"] < row["checkpoint_bytes"] < 1.5 * row["store_bytes"] + 200_000
        assert 100 << 20 < row["peak_memory_bytes"] < 2 << 30
    with pytest.raises(pf.PolyfedError, match="a population must have at least 100 clients, found 99"):
        bench_scale((99,))
