"""How many clients run side by side: what a model makes of its rows counts; and clients in a sweep."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import polyfed as pf
from polyfed.engine.devices.layout import BATCH_BYTES, EVAL_BYTES, chunk_size, made_bytes
from polyfed.engine.round.chunks import of_each
from polyfed.engine.simulation import Simulation
from polyfed.problem import objective
from polyfed.problem.objective import Objective
from tests.conftest import forget_programs


def made(model, inputs: tuple[int, ...], outputs: int, dtype=jnp.float32) -> int:
    built = model.build(inputs, outputs)
    params = jax.eval_shape(built.init, jax.random.key(0))
    return made_bytes(built.apply, params, jax.ShapeDtypeStruct((2, *inputs), dtype))


def test_patches_and_products_are_counted() -> None:
    assert made(pf.models.linear(), (50,), 3) == 4 * 3
    assert made(pf.models.mlp([7]), (50,), 3) == 4 * (7 + 3)
    first, second = 28 * 28 * (25 * 1 + 20), 10 * 10 * (25 * 20 + 50)
    assert made(pf.models.cifar_cnn(), (32, 32), 62) == 4 * (first + second + 512 + 62)
    first, second = 26 * 26 * (9 * 1 + 32), 12 * 12 * 16 * 64  # of a 3 x 3 kernel of many channels, the products alone
    assert made(pf.models.femnist_cnn(), (28, 28), 62) == 4 * (first + second + 128 + 62)


def test_a_loop_counts_as_often_as_it_runs() -> None:
    gates = 5 * 4 * 6  # of one layer, at every time: once before the loop, once in it
    assert made(pf.models.lstm(embedding=3, hidden=6, layers=1), (5,), 4, jnp.int32) == 4 * (2 * gates + 4)


def test_a_large_batch_of_images_leaves_an_accelerator_room() -> None:
    device = SimpleNamespace(platform="gpu", memory_stats=lambda: {"bytes_limit": 80 << 30})
    per_row = made(pf.models.femnist_cnn(), (28, 28), 62)
    chunk = chunk_size(1000, 1_206_590, 20 * per_row, device)
    assert 2 <= chunk < 200
    assert chunk * 4 * 20 * per_row < 10 << 30


def test_a_size_nearby_that_leaves_no_last_chunk_to_fill_is_taken() -> None:
    cpu = SimpleNamespace(platform="cpu")
    assert chunk_size(10, 203_532, 1, cpu) == 2  # 4 would run 12
    assert chunk_size(10, 101_770, 1, cpu) == 5  # 9 would run 18
    assert chunk_size(5, 203_532, 1, cpu) == 5  # 4 would run 8
    assert chunk_size(50, 2_000_000, 1, cpu) == 2
    assert chunk_size(5, 2_000_000, BATCH_BYTES + 1, cpu, most_bytes=BATCH_BYTES) == 1  # 2 would run 6
    assert chunk_size(7, 250_000, 1, cpu) == 4
    for clients in range(1, 40):
        for numbers in (90_000, 240_000, 600_000):
            size, target = chunk_size(clients, numbers, 1, cpu), min(clients, max(2, 1_000_000 // numbers))
            plain = -(-clients // -(-clients // target))
            assert -(-clients // size) * size <= -(-clients // plain) * plain
            assert min(clients, 2) <= size <= 1.25 * target


def test_the_batches_of_a_chunk_stay_in_the_cache() -> None:
    """By its parameters alone, many clients of a small model would fit; a step that takes all rows gathers no batch."""
    draws = np.random.default_rng(0)
    clients = [(draws.normal(size=(40, 60)), draws.integers(0, 10, 40)) for _ in range(120)]
    problem = pf.Problem(pf.Federation.from_arrays(clients, classes=10), pf.models.linear())
    chunks = {
        batch: Simulation(problem, pf.algorithms.FedAvg(batch=batch), devices=1).programs.round.chunk
        for batch in (20, "full")
    }
    assert chunks[20] * 20 * 60 * 4 <= 1.25 * BATCH_BYTES
    assert chunks["full"] == 120


def test_an_evaluation_takes_no_more_rows_than_fit() -> None:
    from tests.models.test_conv import images

    federation = images((28, 28), classes=62, rows=300)
    few = Simulation(pf.Problem(federation, pf.models.femnist_cnn()), pf.algorithms.FedAvg(batch=20))
    per_row = made(pf.models.femnist_cnn(), (28, 28), 62)
    assert few.programs.longest["train"] == EVAL_BYTES // per_row < 300
    all_ = Simulation(pf.Problem(federation, pf.models.linear()), pf.algorithms.FedAvg(batch=20))
    assert all_.programs.longest["train"] == 300


def test_clients_of_unlike_sizes_are_measured_in_any_chunks() -> None:
    """Those of like sizes go together; every client still gets its own figures."""
    draws = np.random.default_rng(0)
    sizes = (300, 5, 40, 1, 700, 9, 260)
    clients = [(draws.normal(size=(n, 4)).astype(np.float32), draws.integers(0, 3, n)) for n in sizes]
    problem = pf.Problem(pf.Federation.from_arrays(clients, classes=3, validation=0, test=0), pf.models.linear())
    found = []
    for chunk in (1, 3, 7):
        simulation = Simulation(problem, pf.algorithms.FedAvg(), devices=1)
        simulation.programs.measure_chunk = chunk
        simulation.advance(1)
        found.append(simulation.measure()["global"]["train"])
    model = jax.device_get(simulation.server.params)
    for client, (x, y) in enumerate(clients):
        logits = x @ model["w"] + model["b"]
        loss = np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(y)), y])
        for metrics in found:
            np.testing.assert_allclose(metrics["loss"][client], loss, rtol=1e-5)
            np.testing.assert_allclose(metrics["accuracy"][client], np.mean(logits.argmax(axis=1) == y), rtol=1e-6)


def test_rows_that_were_copied_together_are_the_same_rows(problem, monkeypatch) -> None:
    """The round reads as many rows as the largest client has, so that the last client's copy would pass the end."""
    copies = []
    real = Objective._copied

    def counted(self: Objective, count: int) -> Any:
        copies.append(real(self, count))
        return copies[-1]

    def run() -> list[np.ndarray]:
        method = pf.algorithms.APFL(local_steps=5, batch=4, lr=0.1)
        simulation = Simulation(pf.Problem(problem.federation, pf.models.linear(), "softmax"), method, dtype="float64")
        simulation.advance(3)
        return jax.tree.leaves(jax.device_get((simulation.server, simulation.client_state)))

    monkeypatch.setattr(Objective, "_copied", counted)
    ours = run()
    assert copies[0][0] is not None
    monkeypatch.setattr(objective, "NEARBY_BYTES", 0)
    forget_programs()
    for a, b in zip(ours, run(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert copies[-1][0] is None


def test_runs_go_inside_the_clients_and_each_gets_its_own() -> None:
    rng = np.random.default_rng(0)
    rows, weights, offsets = (jnp.asarray(rng.normal(size=shape)) for shape in ((3, 4, 5), (2, 5, 6), (2, 3)))
    rates = jnp.array([0.5, 2.0])

    def work(w: jax.Array, rate: jax.Array, x: jax.Array, offset: jax.Array) -> dict[str, jax.Array]:
        return {"product": rate * (x @ w) + offset, "rows": x.sum()}

    def of_run(w: jax.Array, rate: jax.Array, offsets: jax.Array) -> dict[str, jax.Array]:
        return of_each(work, (w, rate), (rows, offsets))

    results = jax.vmap(of_run)(weights, rates, offsets)
    for run in range(2):
        for client in range(3):
            wanted = rates[run] * (rows[client] @ weights[run]) + offsets[run, client]
            np.testing.assert_allclose(results["product"][run, client], wanted, rtol=1e-5)
            np.testing.assert_allclose(results["rows"][run, client], rows[client].sum(), rtol=1e-5)
    [product] = [
        line
        for line in str(jax.make_jaxpr(jax.vmap(of_run))(weights, rates, offsets)).splitlines()
        if "dot_general" in line
    ]
    assert "[3,4,2,6]" in product  # a product for each client, of all runs
