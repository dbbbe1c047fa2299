"""A federation from a table with a client column: a DataFrame, a CSV or a Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import numpy as np

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.data.formats.failures import reason
from polyfed.data.labels import encode
from polyfed.data.option_checks import PathLike, existing_path, flag, fractions, integer, text
from polyfed.data.split import PARTS, ReadOptions, Split, split_rows
from polyfed.data.tables.dialect import Dialect, find_dialect
from polyfed.data.tables.learning import learn
from polyfed.data.tables.overrides import Override, check_names, read_overrides
from polyfed.data.tables.preparation import Preparation
from polyfed.data.tables.sums import MIN_COUNT, site_sums

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from polyfed.data.federation import Federation

RowName = Callable[[int], str]  # position in the table -> "row 3 (counted from 0)", perhaps with a file


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
    preparation: Preparation | None = None,
    origin: str = "",
    source: dict[str, object] | None = None,
    row_name: RowName = lambda row: f"row {row} (counted from 0)",
) -> Federation:
    """See `Federation.from_dataframe`; `origin` ("file.csv: ") begins every error.

    A `preparation` that was learned elsewhere takes the place of all that is said of columns.
    """
    validation, test = fractions(validation, test)
    integer("seed", seed)
    integer("min_count", min_count, 1)
    if prepare is not None:
        flag("prepare", prepare)
    overrides = read_overrides(columns)
    if not hasattr(df, "columns"):
        raise PolyfedError(f"a table must be a pandas DataFrame, found {type(df).__name__}")
    chosen = _columns(df, client, target, features if preparation is None else None, origin)
    with named(origin):
        check_names(overrides, chosen)
    if len(df) == 0:
        raise PolyfedError(f"{origin}the table has no rows")
    if prepare is False and overrides:
        raise PolyfedError("columns says how to prepare a table, and prepare is false")
    table: Any = df  # the stubs let df[name] be a DataFrame, which _columns has ruled out
    notes = {}
    unlabelled = np.flatnonzero(np.asarray(table[target].isna()))
    if (prepare is not False or preparation is not None) and len(unlabelled):
        kept = np.flatnonzero(np.asarray(table[target].notna()))
        if not len(kept):
            raise PolyfedError(f"{origin}target column {target!r} is missing in every row")
        table, row_of = table.iloc[kept], row_name
        row_name = lambda row: row_of(int(kept[row]))  # noqa: E731
        count = "1 row" if len(unlabelled) == 1 else f"{len(unlabelled):,} rows"
        notes["note"] = f"{count} without a value of {target!r} left out"
    names, owner = _clients(table[client], origin, row_name)
    where: RowName = lambda row: f"client {names[owner[row]]!r}, {row_name(row)}"  # noqa: E731
    raw = _target(table[target], target, origin, where)
    try:
        targets = encode(raw, classes, where)
    except PolyfedError as error:
        raise PolyfedError(f"{origin}column {target!r}: {error}") from None
    y = targets.y
    order = np.argsort(owner, kind="stable")
    sizes = np.bincount(owner, minlength=len(names))
    with named(origin):
        rows = split_rows(names, sizes, y[order], validation=validation, test=test, seed=seed)
    if preparation is not None:
        with named(origin):
            x = preparation.apply(table)
    elif prepare or (prepare is None and (overrides or not all(_is_complete(table[name]) for name in chosen))):
        for name in chosen:
            _refuse_infinite(table[name], name, origin, where)
        with named(origin):
            preparation = _learned(
                table, names, order[rows["train"][0]], rows["train"][1], chosen, overrides, min_count
            )
            x = preparation.apply(table)
    else:
        preparation = Preparation.plain(chosen)
        x = np.column_stack([_feature(table[name], name, origin, where) for name in chosen])
    train, held_validation, held_test = (
        Split(x[order[rows[part][0]]], y[order[rows[part][0]]], rows[part][1]) for part in PARTS
    )
    return cls(
        clients=names,
        train=train,
        validation=held_validation,
        test=held_test,
        classes=targets.classes,
        label_names=targets.label_names,
        feature_names=preparation.feature_names,
        preparation=preparation,
        source=notes | targets.described(source or {"name": "dataframe", "client": client, "target": target}),
    )


def _learned(
    table: Any,
    names: Sequence[str],
    rows: np.ndarray,
    offsets: np.ndarray,
    columns: Sequence[str],
    overrides: Mapping[str, Override],
    min_count: int,
) -> Preparation:
    """The preparation that follows from each client's training rows, as sites would tell it."""
    sites = [
        site_sums(name, table.iloc[rows[offsets[i] : offsets[i + 1]]], columns, overrides, min_count)
        for i, name in enumerate(names)
    ]
    return learn(sites, overrides)


def _is_complete(column: Series) -> bool:
    """Whether all cells are numbers, so that nothing need be prepared; infinite ones are refused later."""
    import pandas as pd

    return pd.api.types.is_numeric_dtype(column) and column.dtype.kind != "c" and not column.isna().any()


def _refuse_infinite(column: Series, name: str, origin: str, where: RowName) -> None:
    if column.dtype.kind == "f":
        for row in np.flatnonzero(np.isinf(column.to_numpy(dtype=np.float64, na_value=np.nan)))[:1]:
            raise PolyfedError(
                f"{origin}column {name!r} is {column.iloc[row]} at {where(row)}, expected a finite number"
            )


@contextmanager
def named(origin: str) -> Iterator[None]:
    """Within it, an error begins with the origin."""
    try:
        yield
    except PolyfedError as error:
        raise PolyfedError(f"{origin}{error}") from None


class CsvOptions(TypedDict, total=False):
    """How a CSV file is written; what is None is found out."""

    separator: str | None
    encoding: str | None
    decimal: str | None


class TableOptions(ReadOptions):
    """What a reader of a table can be told: also which columns are features (None: all others), and what they hold."""

    features: Sequence[str] | None
    prepare: bool | None
    columns: Mapping[str, object] | None
    min_count: int


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

    return pd.read_csv(
        path,
        sep=dialect.separator,
        encoding=dialect.encoding,
        decimal=dialect.decimal,
        dtype=dict.fromkeys((*text_columns, *dialect.codes), "str"),
    )


def _columns(df: DataFrame, client: str, target: str, features: Sequence[str] | None, origin: str) -> list[str]:
    """The feature columns, after checking that every named column is there, once."""
    present = [str(column) for column in df.columns]
    text("client", client)
    text("target", target)
    if features is not None and not isinstance(features, list | tuple):
        raise PolyfedError(f"features must be a list of column names, found {features!r}")
    for role, column in [("client", client), ("target", target), *(("feature", name) for name in features or ())]:
        if column not in df.columns:
            raise PolyfedError(f"{origin}there is no {role} column {column!r}{suggestion(str(column), present)}")
    if client == target:
        raise PolyfedError(f"{origin}client and target are both the column {client!r}, expected two columns")
    doubled = df.columns[df.columns.duplicated()]
    if len(doubled):
        raise PolyfedError(f"{origin}the column {doubled[0]!r} appears more than once")
    chosen = [c for c in df.columns if c not in (client, target)] if features is None else list(features)
    seen: set[str] = set()
    for column in chosen:
        if column in (client, target):
            raise PolyfedError(f"{origin}the column {column!r} is a feature and also the client or the target")
        if column in seen:
            raise PolyfedError(f"{origin}features names the column {column!r} more than once")
        seen.add(column)
    if not chosen:
        raise PolyfedError(f"{origin}there are no feature columns beside {client!r} and {target!r}")
    return chosen


def _clients(column: Series, origin: str, row_name: RowName) -> tuple[tuple[str, ...], np.ndarray]:
    """(names in order of first appearance, each row's client)."""
    import pandas as pd

    for row in np.flatnonzero(column.isna())[:1]:
        raise PolyfedError(f"{origin}column {column.name!r} has no client name in {row_name(row)}")
    if column.dtype.kind == "f" and (column == np.floor(column)).all():
        column = column.astype(np.int64)  # whole numbers that a missing value elsewhere turned into 1.0, 2.0
    owner, names = pd.factorize(column.astype("str"))
    for row in np.flatnonzero(np.asarray(names)[owner] == "")[:1]:
        raise PolyfedError(f"{origin}column {column.name!r} has an empty client name in {row_name(row)}")
    return tuple(map(str, names)), owner


def _feature(column: Series, name: str, origin: str, where: RowName) -> np.ndarray:
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(column) or column.dtype.kind == "c":
        odd = [row for row, value in enumerate(column.tolist()) if isinstance(value, str) and not _is_number(value)][:1]
        example = f", such as {column.iloc[odd[0]]!r} at {where(odd[0])}" if odd else f" (type {column.dtype})"
        raise PolyfedError(f"{origin}feature column {name!r} is not numeric{example}; encode it or drop it")
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    for row in np.flatnonzero(~np.isfinite(values))[:1]:
        wrong = "missing or NaN" if np.isnan(values[row]) else str(values[row])
        raise PolyfedError(f"{origin}column {name!r} is {wrong} at {where(row)}, expected a finite number")
    return values


def _target(column: Series, name: str, origin: str, where: RowName) -> np.ndarray:
    """The target as NumPy numbers or text."""
    import pandas as pd

    for row in np.flatnonzero(np.asarray(column.isna()))[:1]:
        raise PolyfedError(f"{origin}target column {name!r} is missing or NaN at {where(row)}")
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    if pd.api.types.is_bool_dtype(column):
        return column.to_numpy(dtype=np.bool_)
    if pd.api.types.is_integer_dtype(column):
        return column.to_numpy(dtype=np.int64)
    if pd.api.types.is_float_dtype(column):
        return column.to_numpy(dtype=np.float32 if "32" in str(column.dtype) else np.float64)
    values = column.tolist()
    for row, value in enumerate(values):
        if not isinstance(value, str):
            raise PolyfedError(
                f"{origin}target column {name!r} has {value!r} ({type(value).__name__}) at {where(row)}, "
                "expected all numbers or all text"
            )
    return np.asarray(values, dtype=np.str_)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
