"""What a column's cells are read as."""

from __future__ import annotations

import datetime
import math

import numpy as np
import pandas as pd
import pytest

from polyfed.data import Federation
from polyfed.data.tables.cells import FORMATS, ISO, PARTS, TIME, Cells


def cells(values, missing=(), **options) -> Cells:
    return Cells(pd.Series(values, name="c", **options), missing)


def test_numbers_are_read_from_words_and_what_is_none_is_missing():
    column = cells(["1.5", " 2 ", "old", "?", None, "-3e2", "inf", "NA"])
    np.testing.assert_array_equal(column.numbers, [1.5, 2, np.nan, np.nan, np.nan, -300, np.nan, np.nan])
    np.testing.assert_array_equal(column.present, [True, True, True, False, False, True, True, False])


def test_whole_numbers_are_spelt_alike_whatever_their_type():
    assert cells([7, 8]).words == cells([7.0, 8.0]).words == cells(["7", "8"]).words == ["7", "8"]
    assert cells([7.0, "8", None], dtype=object).words == ["7", "8"]


def test_words_that_mean_missing_can_be_added():
    np.testing.assert_array_equal(cells([-9, 3, 4.5], ["-9"]).numbers, [np.nan, 3, 4.5])
    np.testing.assert_array_equal(cells(["unknown", "a"], ["unknown"]).codes, [-1, 0])


def test_answers_are_yes_or_no_in_several_tongues():
    column = cells(["yes", "No", "TRUE", "f", "ja", "perhaps", None])
    np.testing.assert_array_equal(column.answers, [1, 0, 1, 0, 1, np.nan, np.nan])
    np.testing.assert_array_equal(cells([True, False]).answers, [1, 0])
    np.testing.assert_array_equal(cells([0.0, 1.0, 2.0]).answers, [0, 1, np.nan])


WRITTEN = {
    ISO: "2013-05-06",
    "%d.%m.%Y": "06.05.2013",
    "%d.%m.%Y %H:%M": "06.05.2013 18:30",
    "%d.%m.%Y %H:%M:%S": "06.05.2013 18:30:00",
    "%d/%m/%Y": "06/05/2013",
    "%d/%m/%Y %H:%M": "06/05/2013 18:30",
    "%m/%d/%Y": "05/06/2013",
    "%m/%d/%Y %H:%M": "05/06/2013 18:30",
    "%Y/%m/%d": "2013/05/06",
    "%Y/%m/%d %H:%M": "2013/05/06 18:30",
    "%d/%m/%Y %H:%M:%S": "06/05/2013 18:30:00",
    "%m/%d/%Y %H:%M:%S": "05/06/2013 18:30:00",
    "%m/%d/%Y %I:%M %p": "5/6/2013 6:30 PM",
    "%m/%d/%Y %I:%M:%S %p": "05/06/2013 06:30:00 pm",
    "%d-%m-%Y": "06-05-2013",
    "%d-%m-%Y %H:%M": "06-05-2013 18:30",
    "%m-%d-%Y": "05-06-2013",
    "%d-%b-%Y": "06-May-2013",
    "%d %b %Y": "6 MAY 2013",
    "%d %B %Y": "06 May 2013",
    "%b %d, %Y": "May 6, 2013",
    "%B %d, %Y": "May 06, 2013",
    "%d.%m.%y": "06.05.13",
    "%d/%m/%y": "06/05/13",
    "%m/%d/%y": "5/6/13",
}


@pytest.mark.parametrize("format", WRITTEN)
def test_a_date_gives_its_year_and_points_on_three_circles(format):
    parts = cells([WRITTEN[format], "soon", None]).moments(format)
    assert parts.shape == (3, len(PARTS))
    assert np.isnan(parts[1:]).all()
    hour = 18.5 if "%M" in format else 0.0
    monday = datetime.date(2013, 5, 6).weekday()
    turns = (4 / 12, monday / 7, hour / 24)
    circle = [f(2 * math.pi * turn) for turn in turns for f in (math.sin, math.cos)]
    np.testing.assert_allclose(parts[0], [2013, *circle], atol=1e-12)


def test_every_format_is_tried_by_some_test():
    assert set(WRITTEN) | {TIME} == set(FORMATS)


def test_hours_alone_have_no_date():
    parts = cells(["06:00", "18:00:00", "25:00", "noon"]).moments(TIME)
    assert np.isnan(parts[:, :-2]).all()
    np.testing.assert_allclose(parts[:2, -2:], [[1, 0], [-1, 0]], atol=1e-12)
    assert np.isnan(parts[2:]).all()


def test_dates_of_pandas_and_moments_with_an_offset_are_in_universal_time():
    expected = cells(["2013-05-06T16:30"]).moments(ISO)
    np.testing.assert_array_equal(cells(["2013-05-06T18:30:00+02:00"]).moments(ISO), expected)
    stamp = pd.Timestamp("2013-05-06 18:30", tz="Europe/Berlin")
    np.testing.assert_array_equal(cells([stamp]).moments(ISO), expected)
    np.testing.assert_array_equal(cells([pd.Timestamp("2013-05-06 16:30")]).moments(ISO), expected)


def test_durations_are_numbers_of_seconds_and_cells_that_hold_lists_are_words():
    waits = cells(pd.to_timedelta(["1h", None, "90s"]))
    np.testing.assert_array_equal(waits.numbers, [3600, np.nan, 90])
    lists = cells([[1, 2], None, [1, 2]])
    assert lists.words == ["[1, 2]"]
    assert lists.present.tolist() == [True, False, True]


def test_thousands_in_a_frame_are_numbers_also_in_its_target():
    words = [f"{1000 + 37 * k:,}.5" for k in range(40)]
    frame = pd.DataFrame({"site": ["a", "b"] * 20, "income": words, "y": words})
    np.testing.assert_array_equal(cells(words).numbers, [1000.5 + 37 * k for k in range(40)])
    assert np.isnan(cells(["01,067"] * 40).numbers).all()
    federation = Federation.from_dataframe(frame, client="site", target="y", test=0, validation=0)
    assert federation.classes is None
    assert sorted(federation.train.y) == [1000.5 + 37 * k for k in range(40)]
    assert federation.feature_names == ("income",)
