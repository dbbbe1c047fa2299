"""A federation from a table with a client column: a DataFrame, a CSV or a Parquet file."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from polyfed.core.errors import PolyfedError
from polyfed.core.extras import extra_package
from polyfed.data.formats.failures import reason
from polyfed.data.formats.table_rows import RowName, TableRows, named
from polyfed.data.option_checks import PathLike, existing_path, flag, integer, text
from polyfed.data.split import ReadOptions
from polyfed.data.tables.dialect import Dialect, find_dialect
from polyfed.data.tables.learning import learn
from polyfed.data.tables.overrides import check_names, read_overrides
from polyfed.data.tables.preparation import Preparation
from polyfed.data.tables.sums import MIN_COUNT

if TYPE_CHECKING:
    from pandas import DataFrame

    from polyfed.data.federation import Federation


_COMMA = re.compile(r"^\s*([-+]?\d+),(\d+)\s*$")
"""A cell that is a number with a decimal comma."""
_GROUPED = {".": r"\s*[-+]?\d{1,3}(,\d{3})+(\.\d+)?\s*", ",": r"\s*[-+]?\d{1,3}(\.\d{3})+(,\d+)?\s*"}
"""By decimal sign: a cell that is a number whose thousands are set apart."""


def from_dataframe(
    cls: type[Federation],
    df: DataFrame,
    *,
    client: str,
    target: str,
    validation: float = 0.1,
    test: float = 0.2,
    features: Sequence[str] | None = None,
    seed: int = 0,
    classes: int | None = None,
    prepare: bool | None = False,
    columns: Mapping[str, object] | None = None,
    min_count: int = MIN_COUNT,
    only: Sequence[str] | None = None,
    preparation: Preparation | None = None,
    origin: str = "",
    source: dict[str, object] | None = None,
    row_name: RowName = lambda row: f"row {row} (counted from 0)",
) -> Federation:
    """See `Federation.from_dataframe`; `origin` ("file.csv: ") begins every error.

    A `preparation` that was learned elsewhere takes the place of all that is said of columns.
    """
    if prepare is not None:
        flag("prepare", prepare)
    integer("min_count", min_count, 1)
    overrides = read_overrides(columns)
    if preparation is not None:
        features = None
    rows = TableRows.of(
        df,
        client=client,
        target=target,
        validation=validation,
        test=test,
        features=features,
        only=only,
        seed=seed,
        classes=classes,
        raw=prepare is not False or preparation is not None,
        origin=origin,
        row_name=row_name,
    )
    with named(origin):
        check_names(overrides, rows.columns)
    if prepare is False and overrides:
        raise PolyfedError("columns says how to prepare a table, and prepare is false")
    if preparation is None and (prepare or (prepare is None and (overrides or not rows.complete))):
        sums = rows.sums(overrides, min_count)
        with named(origin):
            preparation = learn(sums, overrides)
    return rows.federation(cls, preparation, source or {"name": "dataframe", "client": client, "target": target})


class CsvOptions(TypedDict, total=False):
    """How a CSV file is written; what is None is found out."""

    separator: str | None
    encoding: str | None
    decimal: str | None


class TableOptions(ReadOptions):
    """What a reader of a table can be told: also which columns are features (None: all others), what they hold,
    and whose rows to take."""

    features: Sequence[str] | None
    prepare: bool | None
    columns: Mapping[str, object] | None
    min_count: int
    only: Sequence[str] | None


def from_table_file(
    cls: type[Federation],
    path: PathLike,
    kind: Literal["csv", "parquet"],
    *,
    client: str,
    target: str,
    dialect: CsvOptions | None = None,
    **options: Unpack[TableOptions],
) -> Federation:
    """A CSV or Parquet file through `from_dataframe`; `options` are those of `from_dataframe`."""
    file = existing_path("path", path)
    words = (text("client", client), *text_columns(options["columns"]))
    frame, found = read_with_dialect(file, kind, words, dialect)
    source: dict[str, object] = {"name": kind, "path": str(path), "client": client, "target": target, **options}
    source["features"] = options["features"] and list(options["features"])
    source |= {} if found is None else {"read": str(found)}
    return from_dataframe(cls, frame, client=client, target=target, origin=f"{file}: ", source=source, **options)


def text_columns(columns: Mapping[str, object] | None) -> list[str]:
    """The columns that are said to be categories: a CSV's words of them keep their spelling."""
    return [name for name, said in read_overrides(columns).items() if said.kind == "category"]


def read_table(path: Path, kind: str, text_columns: Sequence[str] = (), dialect: CsvOptions | None = None) -> DataFrame:
    """Read a table, or refuse the file by name; `text_columns` of a CSV keep their spelling (007 stays 007)."""
    return read_with_dialect(path, kind, text_columns, dialect)[0]


def read_with_dialect(
    path: Path, kind: str, text_columns: Sequence[str] = (), given: CsvOptions | None = None
) -> tuple[DataFrame, Dialect | None]:
    """A table, and how it is written if it is a CSV file."""
    import pandas as pd

    if not path.is_file():
        raise PolyfedError(f"{path}: not a file, expected a {kind} table")
    if kind == "csv":
        dialect = find_dialect(path, **(given or {}))
    else:
        dialect = None
        extra_package("pyarrow", "parquet", f"{path}: a Parquet file")
    try:
        if dialect is None:
            return pd.read_parquet(path), None
        try:
            return _read_csv(path, dialect, text_columns), dialect
        except UnicodeDecodeError:
            if (given or {}).get("encoding") is not None:
                raise
            dialect = replace(dialect, encoding="cp1252")  # odd letters far behind the first lines
            return _read_csv(path, dialect, text_columns), dialect
    except (OSError, ValueError) as error:  # pandas' and pyarrow's parse errors are ValueErrors
        raise PolyfedError(f"{path}: cannot be read as a {kind} table ({reason(error)})") from None


def _read_csv(path: Path, dialect: Dialect, text_columns: Sequence[str]) -> DataFrame:
    import pandas as pd

    options: Any = {"sep": dialect.separator, "encoding": dialect.encoding, "index_col": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            names = [str(name) for name in pd.read_csv(path, nrows=0, **options).columns]
            words = [name for name in names if name.strip() in text_columns or name in dialect.codes]
            frame: Any = pd.read_csv(path, decimal=dialect.decimal, dtype=dict.fromkeys(words, "str"), **options)
        except pd.errors.ParserWarning:
            raise PolyfedError(f"{path}: a row has more cells than the first line has names") from None
    for name in frame.columns:
        if pd.api.types.is_string_dtype(frame[name]) and name.strip() not in text_columns:
            frame[name] = _plain_numbers(frame[name], dialect.decimal)
    stripped = [name.strip() for name in names]
    return frame.set_axis(stripped, axis=1) if len(set(stripped)) == len(names) else frame


def _plain_numbers(column: Any, decimal: str) -> Any:
    """1,234.5 as 1234.5, where all numbers of the column that have a comma are written so; 1,5 as 1.5.

    pandas leaves a number with a decimal comma as it is where a word stands in the column.
    """
    group = "," if decimal == "." else "."
    grouped = column.str.fullmatch(_GROUPED[decimal]).eq(True)
    numbers = column.str.fullmatch(r"\s*[-+]?\d[\d.,]*\s*").eq(True)
    if grouped.any() and grouped.equals(numbers & column.str.contains(group, regex=False).eq(True)):
        column = column.mask(grouped, column.str.replace(group, "", regex=False))
    return column.str.replace(_COMMA, r"\1.\2", regex=True) if decimal == "," else column
