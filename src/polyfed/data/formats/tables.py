"""A federation from a table with a client column: a DataFrame, a CSV or a Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.data.formats.failures import reason
from polyfed.data.labels import encode
from polyfed.data.option_checks import PathLike, existing_path, fractions, integer, text
from polyfed.data.split import PARTS, ReadOptions, Split, split_rows

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
    origin: str = "",
    source: dict[str, object] | None = None,
    row_name: RowName = lambda row: f"row {row} (counted from 0)",
) -> Federation:
    """See `Federation.from_dataframe`; `origin` ("file.csv: ") begins every error."""
    validation, test = fractions(validation, test)
    integer("seed", seed)
    if not hasattr(df, "columns"):
        raise PolyfedError(f"a table must be a pandas DataFrame, found {type(df).__name__}")
    chosen = _columns(df, client, target, features, origin)
    if len(df) == 0:
        raise PolyfedError(f"{origin}the table has no rows")
    table: Any = df  # the stubs let df[name] be a DataFrame, which _columns has ruled out
    names, owner = _clients(table[client], origin, row_name)
    where: RowName = lambda row: f"client {names[owner[row]]!r}, {row_name(row)}"  # noqa: E731
    x = np.column_stack([_feature(table[name], name, origin, where) for name in chosen])
    raw = _target(table[target], target, origin, where)
    try:
        targets = encode(raw, classes, where)
    except PolyfedError as error:
        raise PolyfedError(f"{origin}column {target!r}: {error}") from None
    y = targets.y
    order = np.argsort(owner, kind="stable")
    sizes = np.bincount(owner, minlength=len(names))
    try:
        rows = split_rows(names, sizes, y[order], validation=validation, test=test, seed=seed)
    except PolyfedError as error:
        raise PolyfedError(f"{origin}{error}") from None
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
        feature_names=tuple(chosen),
        source=targets.described(source or {"name": "dataframe", "client": client, "target": target}),
    )


class TableOptions(ReadOptions):
    """What a reader of a table can be told: also which columns are features (None: all others)."""

    features: Sequence[str] | None


def from_table_file(
    cls: type[Federation],
    path: PathLike,
    kind: Literal["csv", "parquet"],
    *,
    client: str,
    target: str,
    **options: Unpack[TableOptions],
) -> Federation:
    """A CSV or Parquet file through `from_dataframe`; `options` are those of `from_dataframe`."""
    file = existing_path("path", path)
    frame = read_table(file, kind, text_columns=(text("client", client),))
    source: dict[str, object] = {"name": kind, "path": str(path), "client": client, "target": target, **options}
    source["features"] = options["features"] and list(options["features"])
    return from_dataframe(cls, frame, client=client, target=target, origin=f"{file}: ", source=source, **options)


def read_table(path: Path, kind: str, text_columns: Sequence[str] = ()) -> DataFrame:
    """Read a table, or refuse the file by name; `text_columns` of a CSV keep their spelling (007 stays 007)."""
    import pandas as pd

    if not path.is_file():
        raise PolyfedError(f"{path}: not a file, expected a {kind} table")
    try:
        if kind == "csv":
            return pd.read_csv(path, dtype=dict.fromkeys(text_columns, "str"))
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:  # pandas' and pyarrow's parse errors are ValueErrors
        raise PolyfedError(f"{path}: cannot be read as a {kind} table ({reason(error)})") from None


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
