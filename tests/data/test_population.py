"""Populations: the same rows as in memory, read one client at a time, and mistakes that are named."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import polyfed as pf
from polyfed import data
from polyfed.core.errors import PolyfedError
from polyfed.data.split import PARTS


def assert_same_rows(population: pf.Population, federation: pf.Federation) -> None:
    assert tuple(population.clients) == federation.clients
    for part in PARTS:
        a, b = population.split(part), federation.split(part)
        np.testing.assert_array_equal(a.sizes, b.sizes)
        for client in range(len(federation)):
            for mine, theirs in zip(a.of(client), b.of(client), strict=True):
                np.testing.assert_array_equal(mine, theirs)
                assert mine.dtype == theirs.dtype


def test_synthetic_rows_are_the_same_on_demand_and_in_memory() -> None:
    for sizes in (12, "lognormal"):
        options = {"clients": 5, "features": 6, "classes": 3, "sizes": sizes, "max_size": 80}
        federation, population = data.synthetic(**options), data.load("synthetic", on_demand=True, **options)
        assert isinstance(federation, pf.Federation)
        assert isinstance(population, pf.Population)
        assert_same_rows(population, federation)
        assert_same_rows(pf.Population.of(federation), population.select(range(5)))


def test_labels_that_count_from_one_do_not_make_a_class_that_nobody_has(tmp_path: Path) -> None:
    for name, array in (("x", np.ones((6, 2))), ("y", np.array([1, 2, 1, 2, 2, 1])), ("offsets", np.array([0, 3, 6]))):
        np.save(tmp_path / f"{name}.npy", array)
    with pytest.raises(PolyfedError, match=r"y.npy: the labels are 1 to 2, expected labels from 0 on: subtract 1, or"):
        pf.Population.from_npy(tmp_path)
    assert pf.Population.from_npy(tmp_path, classes=3).classes == 3


def test_a_folder_of_npy_files_is_split_like_arrays_and_read_client_by_client(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    x, y, offsets = draws.random((30, 2, 3)).astype(np.float32), draws.integers(0, 4, 30), np.array([0, 11, 16, 30])
    y[3] = 3
    for name, array in (("x", x), ("y", y), ("offsets", offsets)):
        np.save(tmp_path / f"{name}.npy", array)
    pairs = [(x[a:b], y[a:b]) for a, b in pairwise(offsets)]
    population = data.load("npy", path=str(tmp_path), seed=3)
    assert isinstance(population, pf.Population)
    assert_same_rows(population, pf.Federation.from_arrays(pairs, seed=3, classes=4))
    assert population.classes == 4
    (tmp_path / "clients.txt").write_text("a\nb\nc\n")
    assert pf.Population.from_npy(tmp_path).index("c") == 2
    np.save(tmp_path / "offsets.npy", np.array([0, 11, 31]))
    with pytest.raises(PolyfedError, match=r"offsets.npy: must grow to the number of rows, found a last offset of 31"):
        pf.Population.from_npy(tmp_path)
    (tmp_path / "y.npy").unlink()
    with pytest.raises(PolyfedError, match=r"y.npy: no such file; expected x.npy, y.npy and offsets.npy"):
        pf.Population.from_npy(tmp_path)


def test_a_million_names_are_made_when_they_are_asked_for() -> None:
    population = pf.Population(lambda i: (np.ones((2, 1)), np.ones(2)), np.full(10**6, 2), validation=0, test=0)
    assert population.clients[999_999] == "client-999999"
    assert population.index("client-007") == 7
    assert "client-7" not in population.clients
    with pytest.raises(PolyfedError, match="no client 'client-1000000' among 1000000"):
        population.index("client-1000000")


@pytest.mark.parametrize(
    ("rows", "sizes", "message"),
    [
        (lambda i: (np.ones((3, 2)), np.zeros(3, int)), [3, 4], "'client-001' has 3 rows, expected 4 as its size says"),
        (
            lambda i: (np.ones((3, 2 + i)), np.zeros(3, int)),
            [3, 3],
            r"X of client 'client-001' has rows of shape \(3,\)",
        ),
        (lambda i: (np.full((3, 2), [np.nan, 1][i == 0]), np.zeros(3, int)), [3, 3], "is not finite in row 0"),
        (
            lambda i: (np.ones((3, 2)), np.full(3, 2 * i)),
            [3, 3],
            r"client 'client-001', row 0 .* is 2, expected a label",
        ),
        (lambda i: (np.ones((1, 2)), np.zeros(1, int)), [1, 1], "'client-000' has 1 row, which leaves no training row"),
        (lambda i: (np.ones((3, 2)), np.zeros(3, int)), 3, "sizes must be arrays"),
        (lambda i: (np.ones((3, 2)), np.zeros(3, int)), {"train": [3, 3]}, "rows must be given part by part"),
    ],
)
def test_a_client_with_wrong_rows_is_named(rows, sizes, message: str) -> None:
    with pytest.raises(PolyfedError, match=message):
        pf.Population(rows, sizes, classes=2).read(1)


def test_what_needs_all_rows_says_so() -> None:
    population = data.load("synthetic", clients=3, sizes=9, on_demand=True)
    for ask in (lambda: population.train.x, lambda: pf.Problem(population, pf.models.linear()).local_models()):
        with pytest.raises(PolyfedError, match="needs the rows of all clients at once"):
            ask()
    with pytest.raises(PolyfedError, match="a summary reads all rows"):
        population.summary()


def test_other_rows_have_another_digest() -> None:
    def digest(**options) -> str:
        return data.load("synthetic", clients=40, sizes=9, features=3, on_demand=True, **options).digest()

    assert digest() == digest()
    assert len({digest(), digest(seed=1), digest(test=0.3), digest(beta=0.6)}) == 4
