"""From raw tables to features: what each kind of column becomes, learned from sums of training rows alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from polyfed.core.errors import PolyfedError
from polyfed.data import Federation
from polyfed.data.tables.columns import Category, Moment, Number, Skipped, YesNo
from polyfed.data.tables.learning import learn, learn_together
from polyfed.data.tables.overrides import read_overrides
from polyfed.data.tables.preparation import Preparation
from polyfed.data.tables.schema import Layout, SiteSchema, added, agreed_layout
from polyfed.data.tables.sums import site_sums

SITES = ("north", "south", "west")


def raw(rows: int = 240) -> Any:  # the stubs let df[names] be a Series
    """A table as people have them; the site west has no blood pressure at all."""
    random = np.random.default_rng(0)
    site = np.array(SITES)[np.arange(rows) % 3]
    df = pd.DataFrame(
        {
            "site": site,
            "age": random.integers(20, 90, rows).astype(float),
            "sbp": random.normal(130, 15, rows).round(1),
            "ward": random.choice(["A", "B", "C"], rows, p=[0.6, 0.3, 0.1]),
            "smoker": random.choice(["yes", "no"], rows, p=[0.3, 0.7]),
            "seen": pd.date_range("2019-01-01", periods=rows, freq="31h").strftime("%Y-%m-%d %H:%M"),
            "patient_id": np.arange(rows) // 2,
            "note": [f"seen by doctor number {i} on the ward today" for i in range(rows)],
            "died": random.choice(["yes", "no"], rows),
        }
    )
    df.loc[df.site == "west", "sbp"] = np.nan
    df.loc[random.choice(rows, 20, replace=False), "age"] = np.nan
    df.loc[random.choice(rows, 20, replace=False), "ward"] = None
    df.loc[0, "ward"] = "Z"
    return df


def federation(df: Any = None, **options) -> Federation:
    return Federation.from_dataframe(raw() if df is None else df, client="site", target="died", **options)


def training_rows(fed: Federation, df: Any) -> Any:
    """The rows of the table that are in training, found by the one column that tells them apart."""
    everything = Federation.from_dataframe(
        df.assign(place=np.arange(len(df)))[["site", "place", "died"]], client="site", target="died"
    )
    assert everything.clients == fed.clients
    return df.iloc[everything.train.x[:, 0].astype(int)]


def kinds(fed: Federation) -> dict[str, type]:
    assert fed.preparation is not None
    return {column.name: type(column) for column in fed.preparation.columns}


def test_a_raw_table_is_understood_and_what_is_left_out_is_said():
    fed = federation()
    assert kinds(fed) == {
        "age": Number,
        "sbp": Number,
        "ward": Category,
        "smoker": YesNo,
        "seen": Moment,
        "patient_id": Skipped,
        "note": Skipped,
    }
    assert fed.preparation is not None
    assert fed.preparation.lacking == {"west": ("sbp",)}
    told = next(note for note in fed.notes if note.startswith("columns left out"))
    assert "patient_id (an identifier" in told
    assert "note (free text)" in told
    assert fed.feature_names is not None
    assert {"age", "age missing", "sbp missing", "ward=A", "ward=other", "ward missing", "seen hour sin"} <= set(
        fed.feature_names
    )
    assert len(fed.feature_names) == fed.train.x.shape[1]
    assert np.isfinite(fed.train.x).all()


def test_numbers_have_the_mean_and_spread_of_the_training_rows_and_missing_ones_are_the_mean():
    df = raw()
    fed = federation(df)
    train = training_rows(fed, df)
    names = list(fed.feature_names or ())
    for column in ("age", "sbp"):
        own = fed.train.x[:, names.index(column)]
        gone = fed.train.x[:, names.index(f"{column} missing")]
        np.testing.assert_array_equal(gone, train[column].isna())
        expected = ((train[column] - train[column].mean()) / train[column].std(ddof=0)).fillna(0)
        np.testing.assert_allclose(own, expected, atol=1e-10)


def test_test_rows_change_nothing_that_is_learned():
    df = raw()
    train = training_rows(federation(df), df).index
    wild = df.copy()
    others = ~wild.index.isin(train)
    wild.loc[others, "age"] = 1e6
    wild.loc[others, "ward"] = "Q"
    assert federation(wild).preparation == federation(df).preparation


def test_categories_are_counted_and_rare_and_missing_ones_have_their_place():
    df = raw()
    fed = federation(df)
    train = training_rows(fed, df)
    names = list(fed.feature_names or ())
    commonest = train.ward.value_counts().idxmax()
    for ward in ("A", "B", "C"):
        expected = (train.ward == ward) | (train.ward.isna() & (ward == commonest))
        np.testing.assert_array_equal(fed.train.x[:, names.index(f"ward={ward}")], expected)
    np.testing.assert_array_equal(fed.train.x[:, names.index("ward=other")], train.ward == "Z")


def test_a_category_that_few_rows_of_every_site_have_is_not_named_by_any():
    df = raw()
    df["town"] = np.where(np.arange(len(df)) < 12, "Hameln", "Bremen")  # at most 4 rows a site
    sums = [site_sums(name, part, ["town"], {}, 5) for name, part in df.groupby("site")]
    assert not any("Hameln" in site.columns["town"].counts for site in sums)
    town = learn(sums).columns[0]
    assert isinstance(town, Category)
    assert (town.categories, town.other) == (("Bremen",), True)
    named = learn([site_sums(name, part, ["town"], {}, 4) for name, part in df.groupby("site")]).columns[0]
    assert isinstance(named, Category)
    assert named.categories == ("Bremen", "Hameln")


def test_what_is_learned_depends_neither_on_the_order_of_sites_nor_of_rows_and_survives_json():
    df, columns = raw(), ["age", "sbp", "ward", "smoker", "seen", "patient_id", "note"]
    sums = [site_sums(name, part, columns, {}, 5) for name, part in df.groupby("site")]
    learned = learn(sums)
    mixed = df.sample(frac=1, random_state=1)
    again = [site_sums(name, part, columns, {}, 5) for name, part in mixed.groupby("site", sort=False)][::-1]
    schemas = [SiteSchema.of(site) for site in again]
    layout = Layout.from_json(json.loads(json.dumps(agreed_layout(schemas).to_json())))
    vectors = [json.loads(json.dumps(layout.vector(site).tolist())) for site in again]
    assert learn_together(schemas, layout, added(map(np.array, vectors))).columns == learned.columns
    copied = Preparation.from_json(json.loads(json.dumps(learned.to_json())))
    assert copied == learned
    np.testing.assert_array_equal(copied.apply(df[df.columns[::-1]]), learned.apply(df))


def test_simulated_equals_what_sites_would_learn_together():
    df = raw()
    fed = federation(df)
    train = training_rows(fed, df)
    columns = [name for name in df.columns if name not in ("site", "died")]
    sums = [site_sums(name, train[train.site == name], columns, {}, 5) for name in fed.clients]
    assert learn(sums) == fed.preparation


def test_overrides_go_before_what_the_cells_look_like():
    fed = federation(
        columns={
            "patient_id": "number",
            "age": {"missing": ["40"], "fill": 50.0},
            "ward": {"values": ["B"], "fill": "B"},
            "smoker": "category",
            "seen": "skip",
        },
    )
    assert kinds(fed)["patient_id"] is Number
    assert kinds(fed)["seen"] is Skipped
    assert fed.preparation is not None
    columns = {column.name: column for column in fed.preparation.columns}
    age, ward, smoker = columns["age"], columns["ward"], columns["smoker"]
    assert isinstance(age, Number)
    assert isinstance(ward, Category)
    assert isinstance(smoker, Category)
    assert (age.missing, age.fill) == (("40",), 50.0)
    assert (ward.categories, ward.commonest) == (("B",), "B")
    assert smoker.categories == ("no", "yes")
    row = pd.DataFrame({"age": [40, 50], "ward": [None, "unheard of"]})
    x = dict(zip(fed.preparation.feature_names, fed.preparation.apply(row).T, strict=True))
    assert x["age"][0] == x["age"][1] == (50 - age.centre) / age.scale
    assert x["age missing"].tolist() == [1, 0]
    assert x["ward=B"].tolist() == [1, 0]
    assert x["ward=other"].tolist() == [0, 1]


def test_an_ambiguous_date_is_said_and_a_format_settles_it():
    df = raw().assign(seen=[f"0{1 + i % 9}/0{1 + i % 8}/2019" for i in range(240)])
    fed = federation(df)
    assert any("column 'seen': dates are read as %d/%m/%Y, but %m/%d/%Y fits as well" in note for note in fed.notes)
    settled = federation(df, columns={"seen": {"format": "%m/%d/%Y"}})
    assert not any("column 'seen'" in note for note in settled.notes)
    plainly = federation(df.assign(seen=[f"0{1 + i % 9}/{13 + i % 8}/2019" for i in range(240)]))
    assert plainly.preparation is not None
    seen = next(column for column in plainly.preparation.columns if column.name == "seen")
    assert isinstance(seen, Moment)
    assert seen.formats == ("%m/%d/%Y",)


def test_sites_may_write_dates_in_their_own_ways_and_postcodes_are_words():
    df = raw()
    moments = pd.to_datetime(df.seen)
    df["written"] = df.seen.where(df.site != "west", moments.dt.strftime("%d.%m.%Y %H:%M"))
    df["code"] = np.array(["01067", "80331", "20095"])[np.arange(240) // 3 % 3]
    fed = federation(df)
    names = list(fed.feature_names or ())
    for part in ("month sin", "weekday cos", "hour sin"):
        own, same = (fed.train.x[:, names.index(f"{column} {part}")] for column in ("written", "seen"))
        np.testing.assert_allclose(own, same, atol=1e-12)
    assert {"code=01067", "code=20095", "code=80331"} <= set(names)


def test_a_few_words_among_numbers_are_missing_and_that_is_said():
    df = raw()
    df["dose"] = [str(i / 7) for i in range(239)] + ["a lot"]
    df = pd.concat([df, df[-1:]] * 3)
    fed = federation(df)
    assert kinds(fed)["dose"] is Number
    assert any("column 'dose'" in note and "cannot be read" in note for note in fed.notes)


def test_a_word_that_stands_for_many_missing_numbers_does_not_make_words_of_them():
    """A third of the cells is one word; categories such as 1, 2 and 3+ stay categories."""
    df = raw()
    sbp = np.random.default_rng(2).normal(130, 15, len(df)).round(1)
    refused = np.arange(len(df)) % 9 < 3
    df["sbp"] = np.where(refused, "refused", sbp.astype(str))
    df["stage"] = np.array(["1", "2", "3+"])[np.arange(len(df)) % 7 % 3]
    fed = federation(df)
    assert fed.preparation is not None
    columns = {column.name: column for column in fed.preparation.columns}
    own = training_rows(fed, df)
    known = sbp[own.index][~refused[own.index]]
    assert isinstance(columns["sbp"], Number)
    assert columns["sbp"].indicator
    assert columns["sbp"].centre == pytest.approx(known.mean())
    assert isinstance(columns["stage"], Category)
    gone = f"{len(own) - len(known)} of {len(own)} cells cannot be read"
    assert any(gone in note for note in fed.preparation.notes)


def test_columns_without_content_are_left_out():
    df = raw().assign(empty=np.nan, same=3.5, one="x", code=[f"K{i}" for i in range(240)])
    fed = federation(df)
    assert fed.preparation is not None
    why = {column.name: column.why for column in fed.preparation.left_out}
    assert why["empty"] == "empty in every training row"
    assert why["same"] == why["one"] == "the same in every training row"
    assert why["code"].startswith("an identifier")


def test_whole_numbers_that_all_differ_are_numbers_where_sites_are_small():
    df = raw(60).assign(income=np.random.default_rng(1).permutation(60) * 531)
    assert kinds(federation(df))["income"] is Number
    assert kinds(federation(raw(900).assign(income=np.arange(900) * 7)))["income"] is Skipped


def test_a_table_of_complete_numbers_stays_as_it_is_unless_asked():
    df = raw()[["site", "patient_id", "died"]].assign(dose=np.arange(240) / 8)
    fed = federation(df)
    assert fed.preparation is not None
    assert fed.preparation.is_plain
    assert fed.feature_names == ("patient_id", "dose")
    np.testing.assert_array_equal(np.sort(np.concatenate([fed.train.x, fed.test.x, fed.validation.x])[:, 1]), df.dose)
    asked = federation(df, prepare=True)
    assert asked.feature_names == ("dose",)
    assert abs(asked.train.x.mean()) < 1e-12
    assert asked.train.x.std() == pytest.approx(1)


def test_rows_without_a_target_are_left_out_and_that_is_said():
    df = raw()
    df.loc[[3, 4], "died"] = None
    fed = federation(df)
    assert sum(split.rows for split in (fed.train, fed.validation, fed.test)) == 238
    assert "2 rows without a value of 'died' left out" in fed.notes


def test_drawn_anew_the_numbers_follow_the_new_training_rows():
    df = raw()
    df["pick"] = np.arange(len(df)) / 1000 + 0.5  # tells the rows apart, in the features
    fed = federation(df)
    other = fed.redrawn(5)
    assert fed.preparation is not None
    assert other.preparation is not None
    assert fed.preparation != other.preparation
    pick = list(fed.feature_names or ()).index("pick")
    column = next(c for c in other.preparation.columns if c.name == "pick")
    assert isinstance(column, Number)
    places = np.round((other.train.x[:, pick] * column.scale + column.centre - 0.5) * 1000).astype(int)
    sums = [
        site_sums(name, df.iloc[places[other.train.offsets[i] : other.train.offsets[i + 1]]], list(kinds(fed)), {}, 1)
        for i, name in enumerate(fed.clients)
    ]
    fresh = {column.name: column for column in learn(sums).columns}
    for column in other.preparation.used:
        expected = fresh[column.name]
        if isinstance(column, Number) and isinstance(expected, Number):
            assert (column.centre, column.scale) == pytest.approx((expected.centre, expected.scale), rel=1e-9)
        if isinstance(column, Category | YesNo) and isinstance(expected, Category | YesNo):
            assert column.commonest == expected.commonest
        if isinstance(column, Moment) and isinstance(expected, Moment):
            assert column.means == pytest.approx(expected.means)
    np.testing.assert_allclose(other.train.x, other.preparation.apply(df.iloc[places]), atol=1e-9)


def test_a_saved_federation_keeps_its_preparation(tmp_path):
    fed = federation()
    fed.save(tmp_path / "f.safetensors")
    assert Federation.load(tmp_path / "f.safetensors").preparation == fed.preparation


def test_a_broken_preparation_is_refused():
    for given in ({}, {"format": 9}, {"format": 1, "columns": [{"kind": "odd"}], "lacking": {}, "notes": []}):
        with pytest.raises(PolyfedError, match="preparation"):
            Preparation.from_json(given)
    with pytest.raises(PolyfedError, match="layout of sums"):
        Layout.from_json([{"name": "a"}])


def test_a_column_that_the_site_had_may_not_be_lacking_later():
    preparation = federation().preparation
    assert preparation is not None
    rows = raw().drop(columns=["sbp", "site", "died"])
    preparation.check_columns(rows, "west")
    with pytest.raises(PolyfedError, match="there is no column 'sbp', which site 'north' had in training"):
        preparation.check_columns(rows, "north")


def test_overrides_are_read_from_words_and_tables():
    read = read_overrides({"a": "skip", "b": {"format": "%Y"}, "c": {"values": [1, 2]}})
    assert [read[name].kind for name in "abc"] == ["skip", "date", "category"]
    assert read["c"].values == ("1", "2")


def test_a_word_that_all_rows_have_is_left_out_also_beside_a_site_too_small_to_name_it():
    frame = pd.DataFrame({"site": ["a"] * 40 + ["b"] * 40 + ["tiny"] * 3, "x": range(83), "land": "DE"})
    frame["y"] = np.arange(83) % 2
    fed = Federation.from_dataframe(frame, client="site", target="y", prepare=True)
    assert fed.preparation is not None
    assert [(c.name, c.why) for c in fed.preparation.left_out if c.name == "land"] == [
        ("land", "the same in all training rows of each site")
    ]
