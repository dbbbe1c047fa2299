"""Rows that come to the devices with their clients: the same run as with all rows there; and samples of clients."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import polyfed as pf
from polyfed.engine.simulation import Simulation
from polyfed.engine.states import in_waves as streamed
from polyfed.engine.states.client_rows import ClientRows
from polyfed.engine.states.in_waves import Store, Streamed
from polyfed.report import write_report
from polyfed.studies.config import make_config
from polyfed.studies.experiment import Options, run
from polyfed.studies.run_directory import read_run
from tests.engine.states.test_stores import METHODS, end

OPTIONS = {"rounds": 4, "eval_every": 2, "chunk": 1, "dtype": "float64"}


@pytest.fixture(scope="module")
def on_demand(federation) -> pf.Problem:
    return pf.Problem(pf.Population.of(federation), pf.models.linear(), "softmax", l2=0.01)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "participation"),
    [("prepared", 3), ("absorbing", 1.0), ("compressed", pf.Bernoulli(0.5))],
)
def test_rows_on_demand_give_the_numbers_of_rows_in_memory(
    problem, on_demand, monkeypatch, tmp_path: Path, name, participation
) -> None:
    monkeypatch.setattr(streamed, "WAVE_BYTES", 900)  # one client a device at a time
    options = {**OPTIONS, "participation": participation}
    expected = pf.simulate(problem, METHODS[name], store="device", **options)
    pf.simulate(on_demand, METHODS[name], checkpoint=tmp_path, **{**options, "rounds": 2})
    found = pf.simulate(on_demand, METHODS[name], store="disk", resume=tmp_path, checkpoint=tmp_path, **options)
    assert isinstance(found.simulation._residence, Streamed)
    assert found.simulation._residence._wave == 1
    for a, b in zip(end(found), end(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_only_the_rows_of_cohorts_and_of_evaluated_clients_are_read() -> None:
    asked: list[int] = []

    def rows(client: int) -> tuple[np.ndarray, np.ndarray]:
        asked.append(client)
        draws = np.random.default_rng(client)
        return draws.normal(size=(4, 3)), draws.integers(0, 2, 4)

    population = pf.Population(rows, np.full(1_000_000, 4), classes=2, validation=0, test=0.25)
    problem = pf.Problem(population, pf.models.linear(), "softmax")
    method = pf.algorithms.APFL(local_steps=1, batch=2)
    simulation = Simulation(problem, method, participation=4, store="host", eval_clients=6)
    asked.clear()
    simulation.advance(3)
    simulation.measure()
    simulation.measure()  # whose rows are still there
    assert isinstance(simulation._residence, Streamed)
    simulation._residence.feed._reader.shutdown()
    cohorts = [client for number in range(4) for client in simulation.programs.cohort(number)[0].ravel().tolist()]
    assert sorted(asked) == sorted([*cohorts, *simulation.evaluated.tolist()])  # those of the next round, too
    kept = simulation.state()
    assert set(kept.clients.tolist()) == {*cohorts[:12], *simulation.evaluated.tolist()}
    assert kept.excluded.shape == kept.shares.shape == kept.clients.shape
    assert kept.shares.sum() == pytest.approx(3)


def test_states_that_are_read_ahead_are_never_stale() -> None:
    draws = np.random.default_rng(0)
    rows, plain, later = ClientRows(40, np.zeros(3)), np.zeros((40, 3)), np.arange(6)
    for _ in range(60):
        now, later = (draws.permutation(40)[:6].astype(np.int32) for _ in range(2))
        rows.begin(later)
        new = draws.normal(size=(6, 3))
        rows.put(now, new)
        plain[now] = new
        np.testing.assert_array_equal(rows.take(now), plain[now])
        np.testing.assert_array_equal(rows.take(later), plain[later])
    rows.begin(later)
    rows.clear()
    np.testing.assert_array_equal(rows.take(later), np.zeros((6, 3)))


def test_rows_in_memory_grow_with_the_clients_that_are_stored(monkeypatch) -> None:
    monkeypatch.setattr("polyfed.engine.states.client_rows.FIRST", 2)
    rows = ClientRows(1_000_000, np.zeros(10_000))  # 80 GB, were there room for all
    for client in range(0, 50, 5):
        rows.put(np.array([client, client + 1]), np.full((2, 10_000), client))
    np.testing.assert_array_equal(rows.take(np.arange(0, 50, 5))[:, -1], np.arange(0, 50, 5))
    assert len(rows._rows[0]) <= 2 * len(rows.stored)


@pytest.mark.full
def test_a_sample_is_measured_as_all_clients_are(problem, on_demand) -> None:
    options = {**OPTIONS, "rounds": 2, "participation": 3}
    everyone = pf.simulate(problem, METHODS["prepared"], store="device", **options)
    assert "evaluated_clients" not in everyone.history
    places: list[tuple[pf.Problem, Store]] = [(problem, "device"), (problem, "host"), (on_demand, "host")]
    for data, store in places:
        found = pf.simulate(data, METHODS["prepared"], store=store, eval_clients=3, **options)
        chosen = found.simulation.evaluated
        assert len(set(chosen.tolist())) == 3
        table, whole = found.evaluate("test"), everyone.evaluate("test").iloc[chosen]
        assert list(table["client"]) == list(whole["client"])
        np.testing.assert_allclose(table.iloc[:, 1:], whole.iloc[:, 1:], rtol=1e-12)
        assert set(found.history["evaluated_clients"]) == {3}
        mean = found.history["personal_test_loss"].iloc[-1]
        assert mean == pytest.approx(whole["personal_loss"].mean(), rel=1e-12)


def test_the_sample_is_the_same_for_all_methods_and_seeds(problem) -> None:
    def sample(method: str, seed: int, count: int = 3) -> list[int]:
        return Simulation(problem, METHODS[method], seed=seed, eval_clients=count).evaluated.tolist()

    assert sample("no state", 5) == sample("prepared", 5)
    assert len({tuple(sample("no state", seed)) for seed in range(8)}) == 1
    assert sample("no state", 0, 2) != [0, 1]
    assert sample("no state", 0, 6) == list(range(6))
    for wrong in (0, 7, True, 2.0):
        with pytest.raises(pf.PolyfedError, match=f"eval_clients must be a whole number from 1 to the 6 .* {wrong}"):
            Simulation(problem, METHODS["no state"], eval_clients=wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(pf.PolyfedError, match="store 'device' needs all rows on the devices"):
        Simulation(pf.Problem(pf.Population.of(problem.federation), problem.model), METHODS["no state"], store="device")


@pytest.mark.full
def test_a_run_directory_holds_the_sample_and_says_so(tmp_path: Path) -> None:
    def made(name: str, **changes) -> tuple[dict, list[dict], Path]:
        sections = {
            "data": {"source": "synthetic", "clients": 12, "sizes": 12, "features": 5, "on_demand": "one" in name},
            "algorithm": {"name": "apfl", "local_steps": 2, "batch": 4, "adaptive": "round"},
            "run": {
                "rounds": 2,
                "eval_every": 1,
                "participation": 3,
                "dtype": "float64",
                "finetune_steps": 0,
                **changes,
            },
        }
        run(make_config(sections), tmp_path / name, Options(say=lambda _: None))
        with (tmp_path / name / "clients.csv").open() as file:
            clients = list(csv.DictReader(file))
        return json.loads((tmp_path / name / "summary.json").read_text()), clients, tmp_path / name

    _, everyone, _ = made("all")
    summary, clients, folder = made("one", eval_clients=4)
    assert summary["clients"] == 12
    assert summary["evaluated_clients"] == len(clients) == 4
    assert summary["figure"].endswith("over 4 of 12 clients, the same sample in every run")
    by_name = {row["client"]: row for row in everyone}
    for row in clients:
        for column, value in row.items():
            if column != "client" and "verdict" not in column and value:
                # what a client reaches alone included, though the others were not trained
                assert float(value) == pytest.approx(float(by_name[row["client"]][column]), rel=1e-10), column
    assert all(len(leaf) == 4 for leaf in load_file(folder / "models" / "personal.safetensors").values())
    assert (folder / "shares.csv").read_text().splitlines()[0].split(",")[1:] == [row["client"] for row in clients]
    assert "4 of 12 clients" in write_report([read_run(folder)], folder / "report.html", title="one").read_text()
