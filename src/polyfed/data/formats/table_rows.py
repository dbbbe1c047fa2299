"""The rows of a table, split and with their clients and targets, before anything is made of their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.data.labels import Targets, encode
from polyfed.data.option_checks import fractions, integer, text
from polyfed.data.split import PARTS, Pair, Split, split_rows
from polyfed.data.tables.cells import is_missing, is_number, spelt
from polyfed.data.tables.overrides import Override
from polyfed.data.tables.preparation import Preparation
from polyfed.data.tables.sums import SiteSums, site_sums

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from polyfed.data.federation import Federation

RowName = Callable[[int], str]  # position in the table -> "row 3 (counted from 0)", perhaps with a file


@dataclass(frozen=True)
class TableRows:
    """A table's rows by client, in training, validation and test rows, before anything is made of their columns."""

    table: Any
    """a DataFrame; the stubs let table[name] be a DataFrame, which `of` has ruled out"""
    columns: list[str]
    """those that may be features"""
    clients: tuple[str, ...]
    targets: Targets
    order: np.ndarray
    """the rows by client"""
    parts: dict[str, Pair]
    """by part: places in `order`, and where each client's begin"""
    origin: str
    """begins every error"""
    where: RowName
    note: str | None = None

    @classmethod
    def of(
        cls,
        df: DataFrame,
        *,
        client: str,
        target: str,
        validation: float = 0.1,
        test: float = 0.2,
        features: Sequence[str] | None = None,
        only: Sequence[str] | None = None,
        seed: int = 0,
        classes: int | None = None,
        raw: bool = True,
        origin: str = "",
        row_name: RowName = lambda row: f"row {row} (counted from 0)",
    ) -> Self:
        """`raw`: rows without a target are left out, and that is noted; else they are an error.

        `only`: the clients whose rows are taken; all by default.
        """
        validation, test = fractions(validation, test)
        integer("seed", seed)
        if not hasattr(df, "columns"):
            raise PolyfedError(f"a table must be a pandas DataFrame, found {type(df).__name__}")
        chosen = _columns(df, client, target, features, origin)
        if len(df) == 0:
            raise PolyfedError(f"{origin}the table has no rows")
        table: Any = df
        note = None
        if only is not None:
            kept = _rows_of(only, table[client], origin)
            table, row_of_all = table.iloc[kept], row_name
            row_name = lambda row: row_of_all(int(kept[row]))  # noqa: E731
        if raw:
            table = table.assign(**{target: _plain_target(table[target])})
        unlabelled = np.flatnonzero(np.asarray(table[target].isna()))
        if raw and len(unlabelled):
            labelled = np.flatnonzero(np.asarray(table[target].notna()))
            if not len(labelled):
                raise PolyfedError(f"{origin}target column {target!r} is missing in every row")
            table, row_of = table.iloc[labelled], row_name
            table = table.assign(**{target: table[target].infer_objects()})  # yes, no and gaps are objects
            row_name = lambda row: row_of(int(labelled[row]))  # noqa: E731
            count = "1 row" if len(unlabelled) == 1 else f"{len(unlabelled):,} rows"
            note = f"{count} without a value of {target!r} left out"
        names, owner = _clients(table[client], origin, row_name)
        where: RowName = lambda row: f"client {names[owner[row]]!r}, {row_name(row)}"  # noqa: E731
        values = _target(table[target], target, origin, where)
        with named(f"{origin}column {target!r}: "):
            targets = encode(values, classes, where)
        order = np.argsort(owner, kind="stable")
        sizes = np.bincount(owner, minlength=len(names))
        with named(origin):
            parts = split_rows(names, sizes, targets.y[order], validation=validation, test=test, seed=seed)
        return cls(table, chosen, names, targets, order, parts, origin, where, note)

    @property
    def complete(self) -> bool:
        """Whether all cells are numbers, so that nothing need be prepared; infinite ones are refused later."""
        return all(_is_complete(self.table[name]) for name in self.columns)

    def sums(self, overrides: Mapping[str, Override], min_count: int) -> list[SiteSums]:
        """What each client's training rows tell, as sites would tell it."""
        for name in self.columns:
            _refuse_infinite(self.table[name], name, self.origin, self.where)
        rows, offsets = self.parts["train"]
        own = [self.table.iloc[self.order[rows[a:b]]] for a, b in pairwise(offsets)]
        with named(self.origin):
            return [
                site_sums(name, part, self.columns, overrides, min_count)
                for name, part in zip(self.clients, own, strict=True)
            ]

    def federation(
        self, cls: type[Federation], preparation: Preparation | None, source: dict[str, object]
    ) -> Federation:
        """The rows as features; without a preparation complete numbers stay as they are, and others are refused."""
        if preparation is None:
            x = np.column_stack([_feature(self.table[name], name, self.origin, self.where) for name in self.columns])
            preparation = Preparation.plain(self.columns)
        else:
            with named(self.origin):
                x = preparation.apply(self.table)
        y = self.targets.y
        splits = []
        for part in PARTS:
            places, offsets = self.parts[part]
            splits.append(Split(x[self.order[places]], y[self.order[places]], offsets))
        train, validation, test = splits
        return cls(
            clients=self.clients,
            train=train,
            validation=validation,
            test=test,
            classes=self.targets.classes,
            label_names=self.targets.label_names,
            feature_names=preparation.feature_names,
            preparation=preparation,
            source=({} if self.note is None else {"note": self.note}) | self.targets.described(source),
        )


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
    owner, names = pd.factorize(column.astype("str").str.strip())
    for row in np.flatnonzero(np.asarray(names)[owner] == "")[:1]:
        raise PolyfedError(f"{origin}column {column.name!r} has an empty client name in {row_name(row)}")
    return tuple(map(str, names)), owner


def _rows_of(only: Sequence[str], column: Series, origin: str) -> np.ndarray:
    """The rows of these clients."""
    if isinstance(only, str) or not all(isinstance(name, str) for name in only) or not only:
        raise PolyfedError(f"only must be a list of clients' names, found {only!r}")
    owners: Any = column.map(spelt, na_action="ignore")
    names = owners.dropna().unique().tolist()
    for name in only:
        if name not in names:
            raise PolyfedError(f"{origin}only: there is no client {name!r}{suggestion(name, names)}")
    return np.flatnonzero(np.asarray(owners.isin(list(only))))


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


def _plain_target(column: Series) -> Any:
    """Words without blanks around them, those that mean a missing cell as missing, and numbers as numbers."""
    import pandas as pd

    words: Any = column
    if not (pd.api.types.is_string_dtype(words) or pd.api.types.is_object_dtype(words)):
        return column
    if not words.map(lambda value: isinstance(value, str), na_action="ignore").dropna().all():
        return column
    words = words.str.strip()
    words = words.mask(words.map(is_missing, na_action="ignore").eq(True))
    known = words.dropna()
    if len(known) and known.map(is_number).all():
        return pd.to_numeric(words.str.replace(",", "", regex=False))
    return words


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
