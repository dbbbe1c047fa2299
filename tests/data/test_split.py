"""Splits are stratified by label within each client, drawn by the seed and the client's name, and can be drawn anew."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from polyfed.core.errors import PolyfedError
from polyfed.data import Federation, Population
from polyfed.data.split import PARTS
from polyfed.engine.loop import PlannedRun
from polyfed.engine.simulate import simulate_all
from polyfed.engine.sweep import Sweep


def client_with(counts: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows in random order, so many of each label; their first feature is their number."""
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    return np.column_stack([np.arange(len(labels)), labels]).astype(float), labels


def label_counts(federation: Federation, client: int = 0) -> dict[str, list[int]]:
    classes = federation.classes or 2
    return {p: np.bincount(federation.split(p).of(client)[1], minlength=classes).tolist() for p in PARTS}


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([70, 30], {"train": [49, 21], "validation": [7, 3], "test": [14, 6]}),
        ([186, 14], {"train": [130, 10], "validation": [19, 1], "test": [37, 3]}),
        ([39, 1], {"train": [27, 1], "validation": [4, 0], "test": [8, 0]}),
        ([38, 2], {"train": [27, 1], "validation": [4, 0], "test": [7, 1]}),
        ([37, 3], {"train": [26, 2], "validation": [4, 0], "test": [7, 1]}),
        ([20, 20, 20, 40], {"train": [14, 14, 14, 28], "validation": [2, 2, 2, 4], "test": [4, 4, 4, 8]}),
    ],
)
def test_each_label_is_shared_out_in_proportion_to_the_sizes_of_the_parts(counts, expected):
    found = label_counts(Federation.from_arrays([client_with(counts)]))
    assert found == expected


@pytest.mark.parametrize("seed", range(5))
def test_every_count_is_within_a_row_of_its_share_for_any_labels(seed):
    random = np.random.default_rng(seed)
    counts = random.integers(5, 40, size=random.integers(2, 9)).tolist()
    found = label_counts(Federation.from_arrays([client_with(counts, seed)], seed=seed))
    rows = sum(counts)
    for part in PARTS:
        share = sum(found[part]) / rows
        for label, count in enumerate(counts):
            assert abs(found[part][label] - share * count) <= 1.5, (part, label)


def test_labels_that_tie_for_the_last_rows_are_drawn_by_lot():
    # Ten labels of five rows: half of them can have a validation row.
    first = [label_counts(Federation.from_arrays([client_with([5] * 10)], seed=s))["validation"] for s in range(40)]
    assert all(sum(held) == 5 and max(held) == 1 for held in first)
    often = np.mean(first, axis=0)
    assert often.min() > 0.2
    assert often.max() < 0.8


def test_a_client_of_one_row_a_label_is_still_split():
    found = label_counts(Federation.from_arrays([client_with([1] * 10)]))
    assert [sum(found[part]) for part in PARTS] == [7, 1, 2]


def test_a_split_depends_on_the_seed_and_the_clients_name_alone():
    rows = {name: client_with([30, 10], seed) for seed, name in enumerate("abc")}
    whole, turned = Federation.from_arrays(rows, seed=3), Federation.from_arrays({n: rows[n] for n in "cb"}, seed=3)
    for part in PARTS:
        for name in "bc":
            left, right = (f.split(part).of(f.index(name))[0] for f in (whole, turned))
            np.testing.assert_array_equal(left, right)
    other = Federation.from_arrays(rows, seed=4)
    assert set(whole.test.of(0)[0][:, 0]) != set(other.test.of(0)[0][:, 0])


def test_a_table_a_population_and_arrays_split_alike():
    pandas = pytest.importorskip("pandas")
    rows = {name: client_with([25, 12, 3], seed) for seed, name in enumerate("ab")}
    arrays = Federation.from_arrays(rows)
    frame = pandas.concat(
        [pandas.DataFrame({"who": name, "u": x[:, 0], "v": x[:, 1], "y": y}) for name, (x, y) in rows.items()]
    )
    table = Federation.from_dataframe(frame, client="who", target="y")
    population = Population(lambda client: rows["ab"[client]], [40, 40], classes=3, names=["a", "b"])
    for part in PARTS:
        for client in range(2):
            expected = arrays.split(part).of(client)[0]
            np.testing.assert_array_equal(table.split(part).of(client)[0], expected)
            np.testing.assert_array_equal(population.split(part).of(client)[0], expected)


def redrawable() -> Federation:
    rows = {name: client_with([24, 9 + 3 * seed], seed) for seed, name in enumerate("abc")}
    return Federation.from_arrays(rows, columns={"beds": [1, 2, 3]})


def test_rows_are_drawn_anew_with_the_same_sizes_and_stratified():
    federation = redrawable()
    draws = [federation.redrawn(seed) for seed in range(3)]
    for draw in draws:
        for part in PARTS:
            assert draw.split(part).sizes.tolist() == federation.split(part).sizes.tolist()
        for client in range(3):
            assert label_counts(draw, client) == label_counts(federation, client)
            left, right = (np.concatenate([f.split(p).of(client)[0] for p in PARTS]) for f in (draw, federation))
            np.testing.assert_array_equal(left[np.argsort(left[:, 0])], right[np.argsort(right[:, 0])])
        assert draw.columns["beds"].tolist() == [1, 2, 3]
    assert [draw.source["redrawn"] for draw in draws] == [0, 1, 2]
    assert len({federation.digest(), *(draw.digest() for draw in draws)}) == 4
    assert federation.redrawn(1).digest() == draws[1].digest()


def test_a_redraw_depends_on_the_seed_and_the_clients_name_alone():
    federation = redrawable()
    np.testing.assert_array_equal(
        federation.select([2, 1]).redrawn(5).test.of(0)[0], federation.redrawn(5).test.of(2)[0]
    )


def test_given_parts_are_put_together_and_real_targets_drawn_at_random():
    x = np.arange(12.0).reshape(12, 1)
    given = {"train": (x[:6], x[:6, 0] / 7), "validation": (x[6:8], x[6:8, 0] / 7), "test": (x[8:], x[8:, 0] / 7)}
    federation = Federation.from_arrays({"a": given})
    tests = [frozenset(federation.redrawn(seed).test.x[:, 0]) for seed in range(40)]
    assert all(len(rows) == 4 for rows in tests)
    assert len(set(tests)) > 20
    assert set().union(*tests) == set(x[:, 0])  # also rows that were given for training


def test_every_row_is_a_test_row_as_often():
    federation = redrawable()
    hits = np.zeros(33)
    for seed in range(300):
        hits[federation.redrawn(seed).test.of(0)[0][:, 0].astype(int)] += 1
    share = len(federation.test.of(0)[0]) / 33
    deviation = np.sqrt(300 * share * (1 - share))
    assert np.abs(hits - 300 * share).max() < 5 * deviation + 300 * 0.06  # labels are rounded to whole rows


def test_a_population_is_not_drawn_anew():
    with pytest.raises(PolyfedError, match=r"select\(range\(100\)\)\.redrawn\(3\)"):
        Population.of(redrawable()).redrawn(3)


@pytest.mark.full
def test_draws_of_one_federation_are_one_program(monkeypatch):
    federation, method = redrawable(), pf.algorithms.FedAvg(lr=0.1, local_steps=2, batch=4)
    problems = [pf.Problem(federation.redrawn(s), pf.models.linear(), "softmax") for s in range(3)]
    swept: list[int] = []
    begin = Sweep.__init__

    def counted(self, simulations, *rest, **options):
        swept.append(len(simulations))
        begin(self, simulations, *rest, **options)

    monkeypatch.setattr(Sweep, "__init__", counted)
    planned = [PlannedRun(problem, method, seed) for seed, problem in enumerate(problems)]
    together = simulate_all(planned, rounds=2, dtype="float64")
    assert swept == [3]
    alone = pf.simulate(problems[2], method, rounds=2, seed=2, dtype="float64")
    for left, right in zip(*(list(r.global_params.values()) for r in (together[2], alone)), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-14)
