"""Dates in an ONNX graph are read as pandas reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from onnx import TensorProto

from polyfed.core.errors import PolyfedError
from polyfed.data.tables.cells import FORMATS, Cells
from polyfed.export.dates import moments
from polyfed.export.graph import Graph

STRANGE = [
    "",
    "soon",
    "2019",
    "2019-13-01",
    "2019-02-29",
    "2020-02-30",
    "31.04.2021",
    "2019-03-01 9",
    "12:60",
    "24:00",
    "1-2-3",
    "?",
]
ISO = (
    "2019-03", "2019-3-1", "2020-02-29", "2000-02-29", "1900-02-28", "2019-03-01 9:05", "2019-03-01 09",
    "2019-03-01T10:00",
    "2019-03-01 10:00:05.25", "2019-03-01T23:30Z", "2019-12-31T23:30-05:00", "2020-01-01T00:15+0230", "0001-01-01",
    "2019-03-01 10:00 +02:00", "2019-03-01 10:00-05", "9999-12-31 23:59", "2020-02-29T23:00:00.1-01:00",
)  # fmt: skip


def read(words: list[str], *formats: str) -> np.ndarray:
    """What the graph makes of them."""
    graph = Graph(["words", "parts"])
    given = graph.input("words", TensorProto.STRING, ("rows",))
    parts = moments(graph, given, formats, "seen")
    graph.output("parts", graph("Reshape", parts, graph.constant(np.array([-1]))), TensorProto.DOUBLE)
    session = onnxruntime.InferenceSession(graph.model({"polyfed": "0"}).SerializeToString())
    [flat] = session.run(None, {"words": np.array(words, dtype=object)})
    return np.asarray(flat).reshape(len(words), -1)


def cells(words: list[str]) -> Any:
    return Cells(pd.Series(words, name="seen", dtype=object))


@pytest.mark.parametrize("format", FORMATS)
def test_random_moments_are_read_as_pandas_reads_them(format: str) -> None:
    random = np.random.default_rng(0)
    days = pd.to_datetime("1000-01-01").as_unit("s") + pd.to_timedelta(random.integers(0, 700_000, 300), unit="D")
    when = pd.DatetimeIndex(days) + pd.to_timedelta(random.integers(0, 86_400, 300), unit="s")
    written = {"iso": "%Y-%m-%d %H:%M:%S", "time": "%H:%M"}.get(format, format)
    words = [*(moment.strftime(written) for moment in when), *STRANGE, *(ISO if format == "iso" else ())]
    expected = cells(words).moments(format)
    assert (~np.isnan(expected[:300, -1])).all()
    np.testing.assert_allclose(read(words, format), expected, atol=1e-12)


def test_every_form_of_iso_8601_that_pandas_reads_is_read() -> None:
    expected = cells(list(ISO)).moments("iso")
    assert (~np.isnan(expected)).all()
    np.testing.assert_allclose(read(list(ISO), "iso"), expected, atol=1e-12)


def test_the_first_format_that_reads_a_cell_counts() -> None:
    words = ["03.04.2019", "03/04/2019", "2019-04-03", "4:30"]
    both = read(words, "%d.%m.%Y", "%m/%d/%Y", "time")
    assert both[:2, 0].tolist() == [2019, 2019]
    np.testing.assert_allclose(both[:2, 2], np.cos(2 * np.pi * np.array([3, 2]) / 12))  # April, and March
    assert np.isnan(both[2]).all()
    np.testing.assert_allclose(both[3, -2:], [np.sin(2 * np.pi * 4.5 / 24), np.cos(2 * np.pi * 4.5 / 24)])
    assert np.isnan(both[3, :-2]).all()


def test_formats_of_ones_own_are_read_or_refused() -> None:
    words = ["1-2-99", "01-02-07", "1-2-1999"]
    np.testing.assert_allclose(read(words, "%d-%m-%y"), cells(words).moments("%d-%m-%y"), atol=1e-12)
    for format in ("%d %A %Y", "%Y%m%d", "%m-%Y", "on %d.%m.%Y", "%d.%m.%Y %I:%M", "%d %m %b %Y"):
        with pytest.raises(PolyfedError, match=r"column 'seen': dates written as .* do not fit into ONNX"):
            read(["1 Feb 1999"], format)


@pytest.mark.parametrize(
    ("format", "words"),
    [
        ("%d %b %Y", ["6 mAY 2013", "31 Apr 2013", "6 Mai 2013", "29 FEB 2016", "6 June 2013"]),
        ("%B %d, %Y", ["september 30, 2013", "September 31, 2013", "Sep 3, 2013"]),
        ("%m/%d/%Y %I:%M %p", [f"5/6/2013 {time}" for time in ("12:05 AM", "12:05 pm", "0:30 PM", "13:00 AM", "1:00")]),
    ],
)
def test_months_by_name_and_hours_of_twelve_are_read_as_pandas_reads_them(format: str, words: list[str]) -> None:
    expected = cells(words).moments(format)
    assert 0 < np.isnan(expected[:, -1]).sum() < len(words)
    np.testing.assert_allclose(read(words, format), expected, atol=1e-12)
