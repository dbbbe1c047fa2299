"""Cautions: what makes results on a federation doubtful is said by name, and nothing is said of good data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import polyfed as pf
from polyfed.core.errors import PolyfedError
from polyfed.data import Federation, Population
from polyfed.data.cautions import cautions, refuse_one_class, refuse_one_client


def rows(positives: int, negatives: int, seed: int = 0, features: int = 3) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(positives + negatives, features))
    return x, np.repeat([1, 0], [positives, negatives])


def said(data: Federation | Population, kind: str, candidates: int | None = None) -> list[str]:
    return [caution.sentence for caution in cautions(data, candidates) if caution.kind == kind]


def test_nothing_is_said_of_good_data():
    good = Federation.from_arrays({name: rows(40, 60, seed) for seed, name in enumerate("abc")})
    assert cautions(good) == []


def test_clients_without_a_positive_row_in_a_part_are_named():
    fed = Federation.from_arrays({"north": rows(40, 60), "south": rows(2, 60), "west": rows(1, 60)})
    assert said(fed, "split") == [
        "2 clients have no positive row in validation: south, west",
        "1 client has no positive row in test: west",
    ]


def test_a_class_of_a_client_that_is_missing_in_a_part_is_said():
    y = np.repeat([0, 1, 2], [40, 20, 2])
    fed = Federation.from_arrays({"a": (np.random.default_rng(0).normal(size=(62, 2)), y), "b": rows(30, 30, 1, 2)})
    assert said(fed, "split") == ["1 client has no row of some class of their own in validation: a"]


def test_clients_of_one_class_and_tiny_clients_are_named_and_the_rest_counted():
    clients = {f"c{i}": rows(0, 12, i) for i in range(5)} | {"big": rows(50, 50)}
    fed = Federation.from_arrays(clients)
    assert said(fed, "one-class clients") == ["5 clients have rows of one class only: c0, c1, c2 and 2 more"]
    assert said(fed, "tiny clients") == ["5 clients have fewer than 20 rows: c0, c1, c2 and 2 more"]


def table(**columns: object) -> Federation:
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"site": np.repeat(["a", "b"], 50), "y": np.tile([0, 1], 50), "dose": random.normal(size=100)})
    return Federation.from_dataframe(frame.assign(**columns), client="site", target="y")


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("patient_id", np.arange(100) % 9, "is named like an identifier"),
        ("patientId", np.arange(100) % 9, "is named like an identifier"),
        ("UUID", np.arange(100) / 7, "is named like an identifier"),
        ("case number", np.arange(100) // 1.5 // 1, "is named like an identifier"),
        ("visit", 5000 + np.arange(100), "differs in every row, as an identifier does"),
    ],
)
def test_a_column_like_an_identifier_is_named(name, values, why):
    (sentence,) = said(table(**{name: values}), "identifier")
    assert sentence == f"column {name!r} {why}: leave it out"


@pytest.mark.parametrize("name", ["count", "number_of_visits", "valid", "number", "paid"])
def test_measurements_and_counts_are_no_identifiers(name):
    assert said(table(weight=np.linspace(0, 1, 100), **{name: np.arange(100) % 5}), "identifier") == []


def test_constant_columns_and_unlike_scales_are_named():
    fed = table(income=np.linspace(1e4, 9e4, 100).round(2), flag=1.0)
    assert said(fed, "constant columns") == ["1 column is the same in every row: flag"]
    (sentence,) = said(fed, "scales")
    assert "scales of up to 5" in sentence
    assert "e+04 (income), beside" in sentence
    assert "of dose, so that the first step may explode" in sentence
    assert said(table(income=np.linspace(0.1, 0.9, 100)), "scales") == []
    (sentence,) = said(table(age=np.linspace(30, 90, 100), pressure=np.linspace(100, 160, 100)), "scales")
    assert "scales of up to 1.3e+02 (pressure, age), beside" in sentence  # no other column is a hundredth of these


def test_of_many_rows_a_sample_is_looked_at_and_that_is_said():
    x = np.column_stack([np.ones(30_000), np.arange(30_000) % 3]).astype(float)
    frame = pd.DataFrame({"site": np.arange(30_000) % 2, "y": np.arange(30_000) % 2, "a_id": x[:, 1], "b": x[:, 0]})
    fed = Federation.from_dataframe(frame, client="site", target="y")
    assert said(fed, "constant columns") == [
        "1 column is the same in every row: b (of 20,000 rows that were looked at)"
    ]


def test_few_validation_rows_for_many_candidates():
    fed = Federation.from_arrays({name: rows(40, 60, seed) for seed, name in enumerate("abc")})
    # 30 rows: a deviation of 1 / (2 sqrt 30) = 9.1 points, times sqrt(2 ln 12) = 2.23.
    (sentence,) = said(fed, "few validation rows", 12)
    assert sentence.startswith("30 validation rows choose among 12 candidates: of equals, the best looks about 20 poi")
    assert said(fed, "few validation rows", 1) == []
    large = Federation.from_arrays({name: rows(3000, 3000, seed) for seed, name in enumerate("abc")})
    assert said(large, "few validation rows", 12) == []


def test_of_a_population_no_row_is_read_but_those_of_the_first_clients():
    read: list[int] = []

    def reader(client: int) -> tuple[np.ndarray, np.ndarray]:
        read.append(client)
        return np.ones((10, 2)), np.tile([0.0, 1.0], 5)

    population = Population(reader, np.full(1000, 10))
    read.clear()
    (sentence,) = said(population, "tiny clients")
    assert sentence == "1,000 clients have fewer than 20 rows: client-000, client-001, client-002 and 997 more"
    assert "classes = 2 makes them classes" in said(population, "targets")[0]
    assert set(read) <= set(range(10))


def test_one_class_and_one_client_are_refused():
    same = Federation.from_arrays({name: rows(0, 30, seed) for seed, name in enumerate("ab")}, classes=2)
    assert said(same, "one class")
    with pytest.raises(PolyfedError, match="every row of every client has the label '0', expected at least two"):
        refuse_one_class(same)
    problem = pf.Problem(same, pf.models.linear())
    with pytest.raises(PolyfedError, match="every row of every client has the label"):
        pf.simulate(problem, pf.algorithms.FedAvg(), rounds=1)
    one = Federation.from_arrays({"a": rows(30, 30)})
    assert said(one, "one client") == ["there is one client, a, which has nobody to learn from"]
    with pytest.raises(PolyfedError, match="there is one client, 'a'"):
        refuse_one_client(one)


def test_a_constant_real_target_is_said():
    x, _ = rows(30, 30)
    fed = Federation.from_arrays([(x, np.full(60, 2.5)), (x, np.full(60, 2.5))])
    assert said(fed, "constant target") == ["every training row has the target 2.5, so that nothing is learned"]
