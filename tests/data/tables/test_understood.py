"""What was understood of a table: kinds, missing shares, and how each site differs from the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from polyfed.data import Federation
from polyfed.data.cautions import cautions
from polyfed.data.tables.understood import by_site, understood
from tests.data.tables.test_preparation import raw


def table() -> tuple[Federation, Any]:
    """Without held-out rows, so that the whole table is training rows."""
    df = raw()
    df.loc[df.site == "south", "age"] += 30
    df.loc[df.site == "north", "ward"] = "C"
    return Federation.from_dataframe(df, client="site", target="died", validation=0, test=0), df


def test_missing_shares_and_shifts_are_those_of_the_rows():
    fed, df = table()
    columns = {column.column: column for column in understood(fed)}
    assert list(columns) == [name for name in df.columns if name not in ("site", "died")]
    for site in fed.clients:
        own, others = df[df.site == site], df[df.site != site]
        at = {name: next((a for a in column.sites if a.site == site), None) for name, column in columns.items()}
        age, ward, sbp = at["age"], at["ward"], at["sbp"]
        assert age is not None
        assert ward is not None
        assert sbp is not None
        assert age.missing == pytest.approx(own.age.isna().mean())
        assert age.shift == pytest.approx((own.age.mean() - others.age.mean()) / df.age.std(ddof=0))
        shares = [part.ward.value_counts(normalize=True) for part in (own, others)]
        assert ward.shift == pytest.approx(0.5 * shares[0].sub(shares[1], fill_value=0).abs().sum())
        assert sbp.shift is None if site == "west" else sbp.shift is not None
    farthest, emptiest = columns["age"].farthest, columns["sbp"].emptiest
    assert farthest is not None
    assert emptiest is not None
    assert (farthest.site, emptiest.site, emptiest.missing) == ("south", "west", 1.0)
    assert columns["note"].why == "free text"
    assert columns["smoker"].emptiest is None


def test_site_by_site_it_has_every_used_column():
    fed, _ = table()
    at = by_site(understood(fed))
    assert set(at) == set(fed.clients)
    assert set(at["west"]) == {"age", "sbp", "ward", "smoker", "seen"}
    assert at["west"]["sbp"] == {"kind": "number", "missing": 1.0, "shift": None}


def test_a_table_of_complete_numbers_is_described_too_and_arrays_are_not():
    df = pd.DataFrame({"c": ["a", "b"] * 10, "x": np.arange(20) / 4, "y": [0, 0, 1, 1] * 5})
    (column,) = understood(Federation.from_dataframe(df, client="c", target="y"))
    assert (column.column, column.kind, column.features, column.missing) == ("x", "number", 1, 0.0)
    assert understood(Federation.from_arrays([(np.ones((5, 2)), np.arange(5) % 2)] * 2)) == []


def test_a_prepared_table_has_no_caution_about_columns_that_it_leaves_out_or_scales():
    fed, _ = table()
    assert not {caution.kind for caution in cautions(fed)} & {"identifier", "scales", "constant columns"}
