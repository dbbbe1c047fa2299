"""Rows that are picked by seed, and come back from a file."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_csv
from polyfed.papers.shared.rows import NoRows, distinct, ends, mean_curve, read_rows, rounded, tidy, where

ROWS = [
    {"method": "b", "seed": 1, "round": 5, "value": 4.0},
    {"method": "b", "seed": 0, "round": 5, "value": 2.0},
    {"method": "b", "seed": 0, "round": 1, "value": 9.0},
    {"method": "b", "seed": 1, "round": 1, "value": 7.0},
    {"method": "a", "seed": 0, "round": 5, "other": 1.0},
]


def test_ends_are_of_the_latest_round_and_by_seed() -> None:
    np.testing.assert_array_equal(ends(ROWS, "value", method="b"), [2.0, 4.0])
    with pytest.raises(NoRows, match="no row has 'value' where method is a"):  # not an empty array: no claim of nothing
        ends(ROWS, "value", method="a")
    x, y = mean_curve(ROWS, "value", method="b")
    np.testing.assert_array_equal(x, [1, 5])
    np.testing.assert_array_equal(y, [8, 3])


def test_rows_are_picked_by_their_columns_or_by_lacking_one() -> None:
    assert distinct(ROWS, "method") == ["b", "a"]
    assert where(ROWS, value=None) == ROWS[-1:]


def test_rows_come_back_from_a_file_as_they_were(tmp_path) -> None:
    rows = tidy([{"name": "x, y", "whole": 3, "real": 0.1 + 0.2, "flag": True, "none": None, "empty": ""}])
    assert rows == [{"name": "x, y", "whole": 3, "real": 0.1 + 0.2, "flag": True}]
    write_csv(tmp_path / "data.csv", [{**rows[0], "more": ""}])
    assert read_rows(tmp_path / "data.csv") == rows
    with pytest.raises(PolyfedError, match=r"none.csv: no stored rows to draw from"):
        read_rows(tmp_path / "none.csv")


def test_stored_numbers_have_few_digits_and_whole_ones_all() -> None:
    row = {"round": 1234567, "gap": 1.23456789e-9, "rate": np.float64(0.333333333), "name": "x"}
    assert rounded(row, 3) == {"round": 1234567, "gap": 1.23e-9, "rate": 0.333, "name": "x"}
