"""Federations from arrays: splits, labels, types, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed.core.errors import PolyfedError
from polyfed.data import Federation
from polyfed.data.split import split_sizes


def pair(rows: int, features: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.normal(size=(rows, features)), random.normal(size=rows)


def rows_of(federation: Federation, name: str) -> dict[str, set[float]]:
    client = federation.index(name)
    return {p: set(federation.split(p).of(client)[1].tolist()) for p in ("train", "validation", "test")}


@pytest.mark.parametrize(
    ("rows", "expected"), [(2, (1, 0, 1)), (3, (2, 0, 1)), (5, (3, 1, 1)), (10, (7, 1, 2)), (101, (71, 10, 20))]
)
def test_ten_and_twenty_percent_are_held_out_and_never_less_than_one_test_row(rows, expected):
    assert split_sizes(rows, 0.1, 0.2) == expected


def test_every_row_of_a_client_lands_in_exactly_one_part():
    parts = [pair(n, seed=n) for n in (10, 25, 2)]
    federation = Federation.from_arrays(parts)
    assert [s.tolist() for s in (federation.train.sizes, federation.validation.sizes, federation.test.sizes)] == [
        [7, 17, 2 - 1],
        [1, 3, 0],
        [2, 5, 1],
    ]
    for i, (x, y) in enumerate(parts):
        got_x = np.concatenate([federation.split(p).of(i)[0] for p in ("train", "validation", "test")])
        got_y = np.concatenate([federation.split(p).of(i)[1] for p in ("train", "validation", "test")])
        order, back = np.argsort(y), np.argsort(got_y)
        np.testing.assert_array_equal(got_y[back], y[order])
        np.testing.assert_array_equal(got_x[back], x[order])


def test_permuting_or_removing_clients_changes_nobodys_split():
    parts = {name: pair(30, seed=i) for i, name in enumerate("abc")}
    straight = Federation.from_arrays(parts, seed=4)
    turned = Federation.from_arrays({name: parts[name] for name in "cab"}, seed=4)
    alone = Federation.from_arrays({"b": parts["b"]}, seed=4)
    for name in "abc":
        assert rows_of(straight, name) == rows_of(turned, name)
    assert rows_of(alone, "b") == rows_of(straight, "b")
    assert rows_of(Federation.from_arrays(parts, seed=5), "b") != rows_of(straight, "b")


def test_shares_of_zero_hold_nothing_out_and_keep_the_order():
    x, y = pair(9)
    federation = Federation.from_arrays([(x, y)], validation=0, test=0)
    np.testing.assert_array_equal(federation.train.x, x)
    assert len(federation.validation.x) == len(federation.test.x) == 0
    assert federation.test.x.shape == (0, 3)


def test_given_splits_are_kept_as_they_are():
    a = {"train": pair(4, seed=1), "test": pair(2, seed=2)}
    b = {"train": pair(3, seed=3), "validation": pair(1, seed=4), "test": pair(5, seed=5)}
    federation = Federation.from_arrays({"a": a, "b": b})
    for i, given in enumerate((a, b)):
        for part in ("train", "validation", "test"):
            x, y = given.get(part, (np.zeros((0, 3)), np.zeros(0)))
            np.testing.assert_array_equal(federation.split(part).of(i)[0], x)
            np.testing.assert_array_equal(federation.split(part).of(i)[1], y)


def single_client(y, **options) -> Federation:
    return Federation.from_arrays([(np.ones((len(y), 2)), y)], validation=0, test=0, **options)


def test_text_labels_are_numbered_in_sorted_order_over_all_clients():
    x = np.ones((2, 2))
    federation = Federation.from_arrays([(x, ["dog", "cat"]), (x, ["ant", "dog"])], validation=0, test=0)
    assert federation.train.y.tolist() == [2, 1, 0, 2]
    assert (federation.label_names, federation.classes) == (("ant", "cat", "dog"), 3)


@pytest.mark.parametrize(
    ("y", "classes", "dtype", "values"),
    [
        ([0, 3, 1], 4, np.int32, [0, 3, 1]),
        ([True, False], 2, np.int32, [1, 0]),
        ([-1, 1, 1], None, np.int32, [-1, 1, 1]),
        ([-1.0, 1.0], None, np.float64, [-1.0, 1.0]),
        ([0.5, 2.0], None, np.float64, [0.5, 2.0]),
        (np.array([0.5, 2.0], np.float32), None, np.float32, [0.5, 2.0]),
        (np.array([[2], [0], [1]]), 3, np.int32, [2, 0, 1]),
        ([-1.0, 1.0, 1.0], None, np.int32, [-1, 1, 1]),
        ([0.0, 1.0, 1.0], 2, np.int32, [0, 1, 1]),
        (np.array([[0.0], [1.0], [1.0]]), 2, np.int32, [0, 1, 1]),
        (np.array([[0.0, 1.0], [1.0, 1.0]]), None, np.float64, [[0.0, 1.0], [1.0, 1.0]]),
        ([0.25, 0.75, 0.25], 2, np.int32, [0, 1, 0]),
        ([1, 2, 2], 2, np.int32, [0, 1, 1]),
        ([3, 5, 4, 5], 3, np.int32, [0, 2, 1, 2]),
        ([4, 4], 5, np.int32, [4, 4]),
    ],
)
def test_the_type_of_the_target_decides_between_classes_and_regression(y, classes, dtype, values):
    federation = single_client(y)
    assert federation.classes == classes
    assert federation.train.y.dtype == dtype
    assert federation.train.y.tolist() == values


def test_given_classes_are_kept_and_accept_whole_floating_point_labels():
    federation = single_client([0.0, 2.0], classes=5)
    assert (federation.classes, federation.train.y.dtype, federation.train.y.tolist()) == (5, np.int32, [0, 2])


@pytest.mark.parametrize(
    ("y", "names", "notes"),
    [
        ([1, 2, 2], ("1", "2"), ["labels 1 -> 0, 2 -> 1 (the positive class)"]),
        ([2.5, 0.5, 0.5], ("0.5", "2.5"), ["labels 0.5 -> 0, 2.5 -> 1 (the positive class)"]),
        (["no", "yes"], ("no", "yes"), ["labels no -> 0, yes -> 1 (the positive class)"]),
        ([0, 1], None, []),
        ([0, 1, 2], None, []),
    ],
)
def test_two_values_are_two_classes_under_their_own_names(y, names, notes):
    federation = single_client(y)
    assert (federation.label_names, federation.notes) == (names, notes)


@pytest.mark.parametrize(
    ("y", "note"),
    [
        ([0.0, 1.0, 1.0], "two classes; classes = 0 reads them as real numbers"),
        (np.tile([0.0, 1.0, 2.0], 4), "3 whole numbers, 0 to 2, are taken as real numbers; classes = 3 reads them"),
        (np.arange(150) % 120, "120 whole numbers are so many classes; classes = 0 reads them as real numbers"),
    ],
)
def test_a_choice_that_the_values_do_not_settle_is_said_with_the_way_out(y, note):
    (found,) = single_client(y).notes
    assert note in found


def test_no_classes_at_all_makes_any_number_a_real_one():
    for y in ([1, 2, 2], [0.0, 1.0, 1.0], [-3, 4, 5]):
        federation = single_client(y, classes=0)
        assert (federation.classes, federation.train.y.dtype, federation.notes) == (None, np.float64, [])
        assert federation.train.y.tolist() == y


def test_two_classes_that_were_asked_for_may_have_any_two_values():
    federation = single_client([1.0, 2.0, 1.0], classes=2)
    assert (federation.train.y.tolist(), federation.label_names) == ([0, 1, 0], ("1", "2"))
    with pytest.raises(PolyfedError, match=r"is 2, expected a label in 0\.\.1"):
        single_client([0, 1, 2], classes=2)


@pytest.mark.parametrize(
    ("given", "kept"),
    [("uint8", "uint8"), ("int64", "int32"), ("float32", "float32"), ("float64", "float64"), ("bool", "float64")],
)
def test_images_token_ids_and_floats_keep_their_kind(given, kept):
    federation = Federation.from_arrays([(np.ones((4, 2), given), [0, 1, 0, 1])])
    assert federation.train.x.dtype == kept == federation.test.x.dtype


def test_views_index_and_selection_agree():
    federation = Federation.from_arrays({n: pair(20, seed=i) for i, n in enumerate("abc")}, columns={"k": [1, 2, 3]})
    chosen = federation.select([2, 0])
    assert chosen.clients == ("c", "a")
    assert chosen.columns["k"].tolist() == [3, 1]
    np.testing.assert_array_equal(chosen.test.of(0)[0], federation.test.of(2)[0])
    assert len(chosen) == 2
    assert federation.feature_shape == (3,)


X = np.ones((4, 2))
Y = [0, 1, 0, 1]
BAD = np.array([[1.0, 1.0], [1.0, np.nan], [1.0, 1.0], [1.0, 1.0]])
REFUSED = {
    "no clients": ([], {}, "at least one client"),
    "an empty client": ({"a": (X, Y), "b": (X[:0], Y[:0])}, {}, "client 'b' is empty"),
    "a client too small": ({"a": (X, Y), "b": (X[:1], Y[:1])}, {}, "client 'b' has 1 row, which leaves no training"),
    "nan in x": ({"a": (X, Y), "b": (BAD, Y)}, {}, "client 'b', row 1 .* has nan in feature 1"),
    "inf in y": ({"a": (X, [0.0, 1.0, 2.0, np.inf])}, {}, "client 'a', row 3 .* is inf"),
    "a label too large": (
        {"a": (X, Y), "b": (X, [0, 1, 7, 1])},
        {"classes": 3},
        r"client 'b', row 2 .* is 7, .*0\.\.2",
    ),
    "a negative label": ({"a": (X, [0, 1, -1, 2])}, {}, "client 'a', row 2 .* is -1"),
    "a broken label": ({"a": (X, [0, 1, 1.5, 2])}, {"classes": 3}, "client 'a', row 2 .* is 1.5"),
    "too many text labels": ({"a": (X, list("abca"))}, {"classes": 2}, "3 distinct labels .* classes = 2"),
    "unequal lengths": ({"a": (X, Y[:3])}, {}, "client 'a' has 4 rows in X and 3 in y"),
    "other features": ({"a": (X, Y), "b": (np.ones((4, 3)), Y)}, {}, r"X of client 'b' has rows of shape \(3,\)"),
    "text in x": ({"a": (np.full((4, 2), "q"), Y)}, {}, "X of client 'a' has type"),
    "flat x": ({"a": (np.ones(4), Y)}, {}, r"X of client 'a' has shape \(4,\)"),
    "ragged x": ({"a": ([[1, 2], [3]], [0, 1])}, {}, "X of client 'a' is ragged"),
    "mixed targets": ({"a": (X, Y), "b": (X, list("abca"))}, {}, "text for some clients"),
    "objects in y": ({"a": (X, np.array([0, "a", 1, 2], dtype=object))}, {}, "y of client 'a' mixes types"),
    "not a pair": ({"a": X}, {}, "client 'a' must be a pair"),
    "double names": ([(X, Y), (X, Y)], {"names": ["a", "a"]}, "unique, found 'a'"),
    "an empty name": ([(X, Y)], {"names": [""]}, "non-empty string"),
    "too few names": ([(X, Y), (X, Y)], {"names": ["a"]}, "1 names for 2 clients"),
    "a bad column": ([(X, Y)], {"columns": {"site": [1, 2]}}, "column 'site'"),
    "a share of one": ([(X, Y)], {"test": 1.0}, "test is a share"),
    "shares above one": ([(X, Y)], {"test": 0.5, "validation": 0.5}, r"0\.5 \+ 0\.5"),
    "a share in words": ([(X, Y)], {"validation": "10%"}, "validation must be a finite number, found '10%'"),
    "a negative seed": ([(X, Y)], {"seed": -1}, "seed must be a whole number"),
    "no test rows": (
        {"a": {"train": (X, Y), "test": (X, Y)}, "b": {"train": (X, Y)}},
        {},
        "client 'b' has no test rows",
    ),
    "no train split": ({"a": {"test": (X, Y)}}, {}, "client 'a' has no split 'train'"),
    "no train rows": ({"a": {"train": (X[:0], Y[:0]), "test": (X, Y)}}, {}, "client 'a' is empty"),
    "a misspelt split": ({"a": {"train": (X, Y), "tset": (X, Y)}}, {}, "unknown split 'tset'; did you mean 'test'"),
    "nan in a given split": ({"a": {"train": (X, Y), "test": (BAD, Y)}}, {}, "client 'a', test row 1"),
    "mixed forms": ({"a": {"train": (X, Y)}, "b": (X, Y)}, {}, "client 'b' has no given splits"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_arrays_are_refused_by_name(case):
    clients, options, message = REFUSED[case]
    with pytest.raises(PolyfedError, match=message):
        Federation.from_arrays(clients, **options)


def test_unknown_names_come_with_a_suggestion():
    federation = Federation.from_arrays({"north": (X, Y), "south": (X, Y)})
    with pytest.raises(PolyfedError, match="no client 'nort'; did you mean 'north'"):
        federation.index("nort")
    with pytest.raises(PolyfedError, match="no split 'tests'; did you mean 'test'"):
        federation.split("tests")
