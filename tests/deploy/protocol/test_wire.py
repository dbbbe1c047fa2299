"""A message has the bytes that the simulator counted, plus a header that does not grow with the model."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import polyfed as pf
from polyfed import compress
from polyfed.engine.simulation import Simulation
from polyfed.studies.config import algorithm_from
from tests.conftest import few
from tests.deploy.loopback import Loopback

HEADER = 2000
"""The bytes of a message that are no numbers of the model: terms of the answer, names and shapes."""
FEATURES, CLASSES = 1000, 3
METHODS: dict[str, dict[str, Any]] = {
    "plain": {"name": "fedavg", "batch": "full"},
    "plain, by size": {"name": "fedprox", "batch": "full", "weighting": "size"},
    "seeded rand_k": {"compressor": {"name": "rand_k", "k": 600}},
    "rand_k with indices": {"compressor": {"name": "rand_k", "k": 600, "seeded": False}},
    "top_k": {"compressor": {"name": "top_k", "k": 600}},
    "dithering": {"compressor": {"name": "dithering", "levels": 5}},
    "natural": {"compressor": "natural"},
}


@pytest.fixture(scope="module")
def wide() -> pf.Federation:
    rng = np.random.default_rng(0)
    clients = {
        name: {"train": (rng.normal(size=(rows, FEATURES)), np.arange(rows) % CLASSES)}
        for name, rows in (("a", 6), ("b", 7), ("c", 8))
    }
    return pf.Federation.from_arrays(clients, classes=CLASSES)


@pytest.mark.parametrize("kind", few(METHODS, "seeded rand_k"))
def test_the_bits_of_an_upload_are_those_that_the_simulator_counts(wide, loopback, kind) -> None:
    grid: Loopback = loopback(federation=wide)
    method = {"name": "dcgd", "lr": 1e-4, "alpha": 1.0, **METHODS[kind]}
    if method["name"] != "dcgd":
        method = METHODS[kind]
    server = grid.serve(method, {"rounds": 1})
    problem = pf.Problem(wide, pf.models.linear(), "softmax", l2=0.01)
    expected = Simulation(problem, algorithm_from(method), dtype="float64")
    expected.advance(1)
    for ours, theirs in zip(jax.tree.leaves(server), jax.tree.leaves(expected.server), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)
    counted, sent = expected.bits_up / 8, sum(size for _, size in grid.uploads)
    assert len(grid.uploads) == 3
    assert counted <= sent <= 1.02 * counted + 3 * HEADER


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "compressor",
    [
        compress.Identity(),
        compress.RandK(7),
        compress.RandK(7, seeded=False),
        compress.RandK(np.int32(9)),  # pyright: ignore[reportArgumentType]
        compress.TopK(5),
        compress.Dithering(3),
        compress.Dithering(1000),
        compress.Natural(),
    ],
    ids=repr,
)
def test_a_code_has_the_bits_that_it_says_and_is_read_as_what_was_sent(compressor, dtype) -> None:
    with jax.enable_x64(True):
        vector = jax.numpy.asarray(np.random.default_rng(0).normal(size=101), dtype).at[3].set(0)
        key = jax.random.key(5)
        code = compressor.encode(key, vector)
        np.testing.assert_array_equal(compressor.decode(key, code, 101, dtype), compressor(key, vector))
        bits = compressor.bits(101, 8 * np.dtype(dtype).itemsize)
    assert bits <= 8 * sum(part.nbytes for part in code.values()) < bits + 8 * len(code)
