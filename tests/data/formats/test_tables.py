"""Own data in tables: what is read, and what is refused with which words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import polyfed.data as data
from polyfed.core.errors import PolyfedError
from polyfed.data import Federation


def table(rows: int = 12) -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "hospital": np.array(["north", "south", "east"])[np.arange(rows) % 3],
            "age": random.integers(20, 80, rows),
            "dose": random.normal(size=rows),
            "y": random.integers(0, 2, rows),
        }
    )


def test_a_table_becomes_one_client_per_name_with_its_own_rows():
    df = table()
    federation = Federation.from_dataframe(df, client="hospital", target="y", validation=0, test=0)
    assert federation.clients == ("north", "south", "east")
    assert federation.feature_names == ("age", "dose")
    assert federation.classes == 2
    for i, name in enumerate(federation.clients):
        own = df.loc[df["hospital"] == name]
        np.testing.assert_array_equal(federation.train.of(i)[0], own[["age", "dose"]])
        np.testing.assert_array_equal(federation.train.of(i)[1], own["y"])
    assert federation.train.x.dtype == np.float64


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_gives_the_same_federation_as_its_table(tmp_path, kind):
    df, path = table(30), tmp_path / f"trial.{kind}"
    getattr(df, f"to_{kind}")(path, index=False)
    expected = Federation.from_dataframe(df, client="hospital", target="y", seed=3)
    for got in (
        data.load(kind, path=str(path), client="hospital", target="y", seed=3),
        getattr(Federation, f"from_{kind}")(path, client="hospital", target="y", seed=3),
    ):
        assert got.clients == expected.clients
        np.testing.assert_array_equal(got.test.x, expected.test.x)
        np.testing.assert_array_equal(got.train.y, expected.train.y)
    assert got.source["name"] == kind


def test_client_numbers_become_names_and_a_csv_keeps_their_spelling(tmp_path):
    df = table().assign(hospital=[7, 8, 9] * 4)
    assert Federation.from_dataframe(df, client="hospital", target="y").clients == ("7", "8", "9")
    floats = df.assign(hospital=df.hospital.astype(float))
    assert Federation.from_dataframe(floats, client="hospital", target="y").clients == ("7", "8", "9")
    df.assign(hospital=["007", "008", "009"] * 4).to_csv(tmp_path / "t.csv", index=False)
    assert Federation.from_csv(tmp_path / "t.csv", client="hospital", target="y").clients == ("007", "008", "009")


@pytest.mark.parametrize(
    ("target", "classes", "names"),
    [
        (pd.Series(["no", "yes", "no"] * 4), 2, ("no", "yes")),
        (pd.Series(["no", "yes", "no"] * 4, dtype="category"), 2, ("no", "yes")),
        (pd.Series(["ja", "nein", "ja"] * 4), 2, ("nein", "ja")),
        (pd.Series([True, False, True] * 4), 2, None),
        (pd.Series([0, 1, 4] * 4, dtype="Int64"), 5, None),
        (pd.Series([0.5, 1.0, 4.0] * 4), None, None),
        (pd.Series([-1, 1, 1] * 4), None, None),
    ],
)
def test_the_target_column_decides_the_task(target, classes, names):
    federation = Federation.from_dataframe(table().assign(y=target), client="hospital", target="y")
    assert (federation.classes, federation.label_names) == (classes, names)


def test_the_word_that_means_yes_is_the_positive_class():
    df = table().assign(y=["ja", "nein", "ja"] * 4)
    federation = Federation.from_dataframe(df, client="hospital", target="y", validation=0, test=0)
    assert [set(federation.train.of(federation.index(name))[1].tolist()) for name in ("north", "south")] == [{1}, {0}]


def test_chosen_features_keep_their_order():
    federation = Federation.from_dataframe(
        table(), client="hospital", target="y", features=["dose", "age"], validation=0, test=0
    )
    assert federation.feature_names == ("dose", "age")
    assert (federation.train.x[:, 1] >= 20).all()


def changed(**columns) -> pd.DataFrame:
    df = table().astype({"age": object, "y": object, "hospital": object})
    for name, (row, value) in columns.items():
        df.loc[row, name] = value
    return df.infer_objects()


RAW = {"prepare": False}
REFUSED = {
    "only missing targets": (table().assign(y=None), {}, "target column 'y' is missing in every row"),
    "a word for prepare": (table(), {"prepare": "yes"}, "prepare must be true or false"),
    "columns unprepared": (table(), {"columns": {"age": "number"}, **RAW}, "prepare is false"),
    "columns of nobody": (table(), {"columns": {"aeg": "number"}}, "no site has the column 'aeg'; did you mean 'age'"),
    "an unknown kind": (table(), {"columns": {"age": "numbr"}}, r"columns.age.kind is 'numbr'; did you mean 'number'"),
    "an unknown key": (table(), {"columns": {"age": {"knd": "skip"}}}, "columns.age has no key 'knd'"),
    "columns in words": (table(), {"columns": "age"}, "columns must be a table"),
    "a kind that is a number": (table(), {"columns": {"age": 3}}, "columns.age must be one of number, .* found 3"),
    "a list that is a word": (table(), {"columns": {"age": {"missing": "9"}}}, "columns.age.missing must be a list"),
    "a fill of no number": (table(), {"columns": {"age": {"kind": "number", "fill": "a"}}}, "fill must be a number"),
    "no usable column": (
        table(60).assign(age="x")[["hospital", "age", "y"]],
        {},
        "no column can be used: 'age': the same in every training row",
    ),
    "an infinite number": (
        changed(dose=(3, np.inf)),
        {"prepare": True},
        "column 'dose' is inf at client 'north', row 3",
    ),
    "no client column": (table(), {"client": "hopsital"}, "no client column 'hopsital'; did you mean 'hospital'"),
    "no target column": (table(), {"target": "z"}, "no target column 'z'; known: age, dose, hospital, y"),
    "no feature column": (table(), {"features": ["doze"]}, "no feature column 'doze'; did you mean 'dose'"),
    "features in words": (table(), {"features": "dose"}, "features must be a list"),
    "client as feature": (table(), {"features": ["hospital"]}, "'hospital' is a feature and also"),
    "a feature twice": (table(), {"features": ["age", "age"]}, "'age' more than once"),
    "client is target": (table(), {"target": "hospital"}, "both the column 'hospital'"),
    "no features": (table()[["hospital", "y"]], {}, "no feature columns"),
    "no rows": (table()[:0], {}, "no rows"),
    "a missing client": (changed(hospital=(4, None)), {}, "column 'hospital' has no client name in row 4"),
    "an empty client name": (changed(hospital=(4, "")), {}, "column 'hospital' has an empty client name in row 4"),
    "a missing feature": (changed(dose=(5, np.nan)), RAW, "column 'dose' is missing or NaN at client 'east', row 5"),
    "an infinite feature": (changed(dose=(3, np.inf)), {}, "column 'dose' is inf at client 'north', row 3"),
    "a word among numbers": (
        changed(age=(7, "old")),
        RAW,
        "column 'age' is not numeric, such as 'old' at client 'south', row 7 .*; encode it or drop it",
    ),
    "a date": (table().assign(day=pd.Timestamp("2020-01-01")), RAW, "column 'day' is not numeric .*datetime"),
    "a missing target": (changed(y=(2, None)), RAW, "target column 'y' is missing or NaN at client 'east', row 2"),
    "mixed targets": (changed(y=(6, "yes")), {}, "target column 'y' has [01] .* at client 'north', row 0"),
    "a label too large": (changed(y=(6, 9)), {"classes": 2}, r"column 'y': .* client 'north', row 6 .* is 9, .*0\.\.1"),
    "a small client": (pd.concat([table(), table()[:1].assign(hospital="west")]), {}, "client 'west' has 1 row"),
    "a doubled column": (pd.concat([table(), table()[["dose"]]], axis=1), {}, "'dose' appears more than once"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_tables_are_refused_by_name(case):
    df, options, message = REFUSED[case]
    with pytest.raises(PolyfedError, match=message):
        Federation.from_dataframe(df, **{"client": "hospital", "target": "y", **options})


def test_errors_of_a_file_begin_with_its_name(tmp_path):
    path = tmp_path / "t.csv"
    changed(age=(7, "old")).to_csv(path, index=False)
    with pytest.raises(PolyfedError, match=r"t\.csv: feature column 'age' .*'old'"):
        Federation.from_csv(path, client="hospital", target="y", prepare=False)
    with pytest.raises(PolyfedError, match=r"t\.csv: there is no client column 'hospitl'"):
        Federation.from_csv(path, client="hospitl", target="y")
    with pytest.raises(PolyfedError, match=r"none\.csv: no such file"):
        Federation.from_csv(tmp_path / "none.csv", client="a", target="y")
    with pytest.raises(PolyfedError, match="not a file"):
        Federation.from_csv(tmp_path, client="a", target="y")


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("csv", b""),
        ("csv", b"a,b\n1,2\n1,2,3,4\n"),
        ("csv", b"a,b\n\xff\xfe\x00,1\n"),
        ("parquet", b"PAR1 but not really"),
    ],
)
def test_a_broken_file_is_refused_by_name(tmp_path, kind, content):
    path = tmp_path / f"broken.{kind}"
    path.write_bytes(content)
    with pytest.raises(PolyfedError, match=rf"broken\.{kind}: cannot be read as a {kind} table"):
        data.load(kind, path=path, client="a", target="b")


def test_the_time_is_linear_in_the_number_of_columns() -> None:
    compared = 0

    class Name(str):
        """Counts how often it is compared."""

        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str(self) == str(other)

    count = 300
    names = [Name(f"feature {i}") for i in range(count)]
    table = pd.DataFrame(np.ones((4, count)), columns=[str(name) for name in names])
    table["site"], table["y"] = ["a", "b"] * 2, [0.0, 1.0, 2.0, 3.0]
    Federation.from_dataframe(table, client="site", target="y", features=names, test=0.0, validation=0.0)
    assert compared < 30 * count
