"""How a CSV file is written: found out, shown, or given."""

from __future__ import annotations

import gzip
import io
import lzma
import zipfile
from typing import Any

import numpy as np
import pandas as pd
import pytest

from polyfed.core.errors import PolyfedError
from polyfed.data import Federation
from polyfed.data.formats.tables import read_table
from polyfed.data.tables.cells import Cells
from polyfed.data.tables.columns import Number
from polyfed.data.tables.dialect import Dialect, find_dialect

ROWS = [("Köln", "1.5", "yes"), ("Köln", "-2.25", "no"), ("Bonn", "3.0", "yes"), ("Bonn", "0.5", "no")] * 5


def written(separator: str, decimal: str, encoding: str) -> bytes:
    lines = [
        separator.join(("stadt", "dosis", "ja")),
        *(separator.join((a, b.replace(".", decimal), c)) for a, b, c in ROWS),
    ]
    return ("\n".join(lines) + "\n").encode(encoding)


@pytest.mark.parametrize(
    ("separator", "decimal", "encoding"),
    [(",", ".", "utf-8"), (";", ",", "cp1252"), ("\t", ",", "utf-8-sig"), ("|", ".", "utf-16"), (";", ".", "utf-8")],
)
def test_it_is_found_out_and_the_numbers_are_the_same(tmp_path, separator, decimal, encoding):
    path = tmp_path / "t.csv"
    path.write_bytes(written(separator, decimal, encoding))
    assert find_dialect(path) == Dialect(separator, encoding, decimal)
    federation = Federation.from_csv(path, client="stadt", target="ja", test=0, validation=0)
    assert federation.clients == ("Köln", "Bonn")
    np.testing.assert_array_equal(federation.train.of(0)[0][:, 0], [1.5, -2.25] * 5)
    assert str(federation.source["read"]).startswith("separator ")


def test_what_is_given_goes_before_what_is_found(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1,5;2\n")
    assert find_dialect(path, decimal=".") == Dialect(";", "utf-8", ".")
    assert find_dialect(path, separator=",", encoding="latin-1") == Dialect(",", "latin-1", ".")


def test_quoted_separators_do_not_count(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,b\n"x;y;z",1\n"p;q;r",2\n')
    assert find_dialect(path).separator == ","


def test_odd_letters_after_the_first_lines_and_packed_files_are_read(tmp_path):
    path = tmp_path / "t.csv"
    lines = ["site,dose,y"] + [f"{'ab'[i % 2]},{i},{i % 2}" for i in range(60_000)]
    path.write_bytes(("\n".join(lines) + "\n").encode() + "ä,1,0\nä,2,1\n".encode("cp1252"))
    federation = Federation.from_csv(path, client="site", target="y")
    assert federation.clients == ("a", "b", "ä")
    packed = tmp_path / "t.csv.xz"
    packed.write_bytes(lzma.compress(written(";", ",", "utf-8")))
    assert len(Federation.from_csv(packed, client="stadt", target="ja")) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"separator": "::"}, "separator must be a single character, found '::'"),
        ({"decimal": ";"}, "decimal must be '.' or ','"),
        ({"encoding": "utf-88"}, "cannot be read as a csv table in 'utf-88'"),
    ],
)
def test_wrong_options_are_refused_by_name(tmp_path, options, message):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(PolyfedError, match=message):
        Federation.from_csv(path, client="a", target="b", **options)


def test_postcodes_stay_words_and_other_numbers_do_not(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"{'ab'[i % 2]},{('01067', '80331')[i // 2 % 2]},0{i % 5},{i % 2}" for i in range(60)]
    path.write_text("\n".join(["site,code,month,y", *rows]) + "\n")
    federation = Federation.from_csv(path, client="site", target="y")
    assert federation.feature_names == ("code=01067", "code=80331", "month")


def test_a_decimal_comma_is_read_beside_words_for_missing_cells(tmp_path):
    lines = ["ort;wert;code;ja", *(f"{a};{b};{c};{d}" for a, b, c, d in ROWS_WITH_WORDS)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    fed = Federation.from_csv(tmp_path / "t.csv", client="ort", target="ja", test=0, validation=0)
    assert fed.preparation is not None
    column = fed.preparation.columns[0]
    assert isinstance(column, Number)
    values = column.read(Cells(pd.Series([1.5, "k.A.", "2"], name="wert")))[:, 0]
    assert np.array_equal(values, [1.5, np.nan, 2.0], equal_nan=True)
    assert column.centre == pytest.approx(np.mean([1.5, 2.25, 3.75]))
    words = Federation.from_csv(
        tmp_path / "t.csv", client="ort", target="ja", test=0, validation=0, columns={"code": "category"}
    )
    assert "code=1,5" in (words.feature_names or ())  # a category keeps its spelling


ROWS_WITH_WORDS = [
    ("a", "1,5", "1,5", "yes"), ("b", "k.A.", "2,5", "no"), ("a", "2,25", "1,5", "no"), ("b", "3,75", "2,5", "yes"),
] * 6  # fmt: skip


def test_wide_lines_and_long_cells_are_no_obstacle(tmp_path):
    """csv takes cells of 131,072 letters; a wide line is one cell under any separator but its own."""
    wide, long = tmp_path / "wide.csv", tmp_path / "long.csv"
    names = [f"measurement_{place:05}" for place in range(8500)]
    cells = ";".join(["1,5"] * 8500)
    wide.write_text("\n".join([";".join(["site", *names, "y"]), *(f"{site};{cells};0" for site in "abab")]) + "\n")
    assert find_dialect(wide) == Dialect(";", "utf-8", ",")
    long.write_text("site;x;note;y\n" + "".join(f"{site};0,{i};short;{i % 2}\n" for i, site in enumerate("abababab")))
    with long.open("a") as file:
        file.write(f"a;0,5;{'x' * 150_000};1\n")
    assert find_dialect(long) == Dialect(";", "utf-8", ",")
    assert len(Federation.from_csv(long, client="site", target="y")) == 2


@pytest.mark.parametrize(
    ("lines", "separator", "decimal", "values"),
    [
        (['"3,013"', "800", '"1,000,000"'], ",", ".", [3013, 800, 1_000_000]),
        (['"1,013.5"', "800.25", "n/a"], ",", ".", [1013.5, 800.25, np.nan]),
        (["1.013,5", "800,25", "1.000", "k.A."], ";", ",", [1013.5, 800.25, 1000, np.nan]),
        (["1,125", "0,500"], ";", ",", [1.125, 0.5]),
        (["1,125", "23,402", "999", "20"], "\t", ".", [1125, 23402, 999, 20]),
        (["1,125", "23,402,100"], ";", ".", [1125, 23402100]),
        (["1,125", "23,402"], ";", ",", [1.125, 23.402]),
        (["1.125", "23.402", "7"], ";", ",", [1125, 23402, 7]),
        (["1.125", "0.500"], ";", ".", [1.125, 0.5]),
        (["51.1234", "7.125", "1,5", "1,5", "1,5", "2,5"], ";", ",", [51.1234, 7.125, 1.5, 1.5, 1.5, 2.5]),
    ],
)
def test_thousands_that_are_set_apart_are_told_from_decimals(tmp_path, lines, separator, decimal, values):
    path = tmp_path / "t.csv"
    path.write_text("\n".join([f"value{separator}word", *(f"{line}{separator}x" for line in lines)]) + "\n")
    assert find_dialect(path) == Dialect(separator, "utf-8", decimal)
    column: Any = read_table(path, "csv")["value"]
    np.testing.assert_array_equal(Cells(column).numbers, values)


def test_cells_of_several_lines_do_not_hide_the_separator(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f'{k},5;"line one\nline two; ""{k}"""; a' for k in range(300)]  # the 200th row is far behind line 200
    path.write_text("\n".join(["dose;note; site ", *rows]) + "\n")
    assert find_dialect(path) == Dialect(";", "utf-8", ",")
    table = read_table(path, "csv")
    assert list(table.columns) == ["dose", "note", "site"]  # without the blanks around them
    assert table["dose"].tolist() == [k + 0.5 for k in range(300)]


def test_a_line_that_is_cut_short_does_not_hide_the_separator(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b;c\n" + "1;2;3\n" * 30 + "4;5\n")
    assert find_dialect(path).separator == ";"
    assert len(read_table(path, "csv")) == 31


@pytest.mark.parametrize(
    ("words", "names", "left_out"),
    [
        (["ja ", "nein", "k.A.", "unbekannt"], ("nein", "ja"), 40),
        (["True", "False", "", "True"], None, 20),
        (["1.5", "2.5", "-", "unknown"], ("1.5", "2.5"), 40),
    ],
)
def test_words_for_missing_cells_are_no_classes(tmp_path, words, names, left_out):
    path = tmp_path / "t.csv"
    lines = [f"{('a', 'b', 'a ', ' b')[k % 4]},{k},{words[k // 2 % 4]}" for k in range(80)]
    path.write_text("\n".join(["site,x,y", *lines]) + "\n")
    federation = Federation.from_csv(path, client="site", target="y")
    assert federation.clients == ("a", "b")
    assert (federation.classes, federation.label_names) == (2, names)
    assert f"{left_out} rows without a value of 'y' left out" in federation.notes


def test_a_target_of_numbers_with_thousands_is_one_of_numbers(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("site,x,y\n" + "".join(f'{"ab"[k % 2]},{k},"{1000 + 37 * k:,}.5"\n' for k in range(40)))
    federation = Federation.from_csv(path, client="site", target="y", test=0, validation=0)
    assert federation.classes is None
    assert sorted(federation.train.y) == [1000.5 + 37 * k for k in range(40)]


def test_only_the_clients_that_are_named_are_taken(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("site,x,word,y\n" + "".join(f"{k % 3}0 ,{k},{'abc'[k % 3]},{k % 2}\n" for k in range(60)))
    both = Federation.from_csv(path, client="site", target="y", only=["00", "20"])
    assert both.clients == ("00", "20")
    assert both.train.rows + both.validation.rows + both.test.rows == 40
    assert both.feature_names == ("x", "word=a", "word=c")  # what others write is not known
    with pytest.raises(PolyfedError, match="only: there is no client '40'"):
        Federation.from_csv(path, client="site", target="y", only=["40"])
    with pytest.raises(PolyfedError, match="only must be a list of clients' names, found '00'"):
        Federation.from_csv(path, client="site", target="y", only="00")


def zipped(name: str) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr(name, "site,x,y\n")
    return whole.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (zipped("t.csv"), "a zip archive: unpack it"),
        (zipped("[Content_Types].xml"), "an Excel workbook: save its sheet as CSV"),
        (b"\xd0\xcf\x11\xe0 and more", "an Excel workbook"),
        (gzip.compress(b"site,x,y\n"), "compressed with gzip: call it .csv.gz"),
        (b"PAR1 and more", "a Parquet file: call it .parquet"),
        (b"a\0b", "it has a zero byte"),
    ],
)
def test_what_is_no_text_is_refused_with_what_it_is(tmp_path, content, words):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(PolyfedError) as refused:
        find_dialect(tmp_path / "t.csv")
    assert words in str(refused.value)
