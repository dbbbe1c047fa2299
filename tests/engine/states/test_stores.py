"""Clients' states on the devices, in memory or in a file: the same run."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

import polyfed as pf
from polyfed.core.machine import memory_bytes
from polyfed.engine.devices.layout import layout
from polyfed.engine.simulation import Simulation
from polyfed.engine.states import in_waves as streamed
from polyfed.engine.states.client_rows import ClientRows
from polyfed.engine.states.in_waves import Streamed, choose

METHODS = {
    "no state": pf.algorithms.FedAvg(local_steps=2, batch=4),
    "prepared": pf.algorithms.APFL(local_steps=2, batch=4),
    "absorbing": pf.algorithms.Scafflix(alpha=0.5, p=0.3, batch=4, plm_epochs=2),
    "compressed": pf.algorithms.DIANA(alpha=0.5, lr=0.1, plm_epochs=2),
}


def end(result) -> list[np.ndarray]:
    metrics = result.history.drop(columns="seconds").to_numpy(float)
    arrays = (result.simulation.server, result.client_state, result.personal(1))
    return [*map(np.asarray, jax.tree.leaves(arrays)), metrics]


@pytest.fixture
def small_waves(monkeypatch) -> None:
    """Two clients a device at a time."""
    monkeypatch.setattr(streamed, "WAVE_BYTES", 300)


@pytest.mark.parametrize(
    ("name", "participation"),
    [
        pytest.param("no state", pf.Bernoulli(0.5), marks=pytest.mark.full),
        ("prepared", 3),
        pytest.param("absorbing", pf.Bernoulli(0.5), marks=pytest.mark.full),
        pytest.param("prepared", 1.0, marks=pytest.mark.full),
        pytest.param("compressed", 3, marks=pytest.mark.full),
        pytest.param("compressed", 1.0, marks=pytest.mark.full),
    ],
    ids=str,
)
def test_where_states_are_kept_changes_nothing_beyond_rounding(
    problem, small_waves, tmp_path: Path, name, participation
) -> None:
    options = {"rounds": 4, "eval_every": 2, "participation": participation, "chunk": 1, "dtype": "float64"}
    expected = pf.simulate(problem, METHODS[name], store="device", **options)
    pf.simulate(problem, METHODS[name], store="host", checkpoint=tmp_path, **{**options, "rounds": 2})
    found = pf.simulate(problem, METHODS[name], store="disk", resume=tmp_path, checkpoint=tmp_path, **options)
    assert isinstance(found.simulation._residence, Streamed)
    for a, b in zip(end(found), end(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith("round-")]


def test_clients_that_were_never_asked_take_no_room(problem, tmp_path: Path) -> None:
    simulation = Simulation(problem, METHODS["prepared"], participation=1, store="host")
    simulation.advance(1)
    kept = simulation.state()
    assert len(kept.clients) == 1
    assert [jax.tree.leaves(block)[0].shape[0] for block in kept.rows] == [1]


def test_rows_are_those_that_were_put_last_and_the_start_elsewhere(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    start = {"w": np.arange(3.0), "flag": np.array(True)}
    for folder in (None, tmp_path):
        rows = ClientRows(50, start, folder)
        plain = {"w": np.tile(start["w"], (50, 1)), "flag": np.ones(50, bool)}
        for _ in range(20):
            clients = draws.permutation(50)[: draws.integers(0, 8)].astype(np.int32)
            new = {"w": draws.normal(size=(len(clients), 3)), "flag": draws.random(len(clients)) < 0.5}
            rows.put(clients, new)
            for name, values in new.items():
                plain[name][clients] = values
            asked = draws.integers(0, 50, 10).astype(np.int32)
            for name, values in rows.take(asked).items():
                np.testing.assert_array_equal(values, plain[name][asked])
        assert len(set(rows.stored.tolist())) == len(rows.stored) < 50
    assert not list(tmp_path.iterdir())  # the file has no name


def test_a_file_of_states_survives_its_pages_being_handed_back(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("polyfed.engine.states.client_rows.MAPPED", 1)
    rows = ClientRows(4, np.zeros(5000), tmp_path)
    for client in range(4):
        rows.put(np.array([client]), np.full((1, 5000), client + 1.0))
    np.testing.assert_array_equal(rows.take(np.arange(4))[:, -1], [1, 2, 3, 4])


def test_the_choice_follows_the_room() -> None:
    place = layout(4, 1)
    assert choose("auto", 1 << 20, place) == "device"
    assert choose("auto", 1 << 60, place) == "disk"
    assert choose("host", 1 << 60, place) == "host"
    assert choose("auto", memory_bytes() // 4, place) == "host"
    with pytest.raises(pf.PolyfedError, match="store must be one of auto, device, host, disk, found 'ram'"):
        choose("ram", 0, place)
