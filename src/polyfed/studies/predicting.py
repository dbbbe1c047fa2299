"""Scoring the rows of a file with a run's models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyfed.core.errors import PolyfedError
from polyfed.core.extras import extra_package
from polyfed.core.files import safe_cell, whole
from polyfed.data.formats.tables import read_with_dialect
from polyfed.data.tables.columns import Category
from polyfed.data.tables.dialect import Dialect
from polyfed.data.tables.preparation import Preparation
from polyfed.studies.saved_models import ABOUT, SavedModels, load


@dataclass(frozen=True)
class Scored:
    """The rows of a file with what a model says of them."""

    table: Any
    """a DataFrame; the cells of a CSV are as they were written"""
    dialect: Dialect
    written: int = 0
    """how many of its columns stood in a CSV before; no word of the others can be taken for a formula"""

    def as_csv(self) -> str:
        table = self.table.copy()
        for column in table.columns[self.written :]:
            if table[column].dtype.kind not in "biufM":
                table[column] = [safe_cell(cell) for cell in table[column]]
        names = [*table.columns[: self.written], *map(safe_cell, table.columns[self.written :])]
        return table.to_csv(index=False, sep=self.dialect.separator, header=names)

    def write(self, path: Path) -> None:
        """A Parquet file where the name says so, else CSV; whole or not at all."""
        with whole(path) as part:
            if path.suffix == ".parquet":
                extra_package("pyarrow", "parquet", f"{path}: a Parquet file")
                self.table.to_parquet(part, index=False)
            else:
                part.write_text(self.as_csv(), encoding=self.dialect.encoding)


def predict_file(run: Path, rows: Path, client: str | None, *, shared: bool = False) -> Scored:
    """Score a file's rows: by a client's model, by the global one, or each row by that of its own client."""
    import pandas as pd

    models, client = models_of(run, client, shared=shared)
    run = models.path
    kind = "parquet" if rows.suffix == ".parquet" else "csv"
    if not rows.is_file():
        raise PolyfedError(f"{rows}: no such file")
    if models.preparation is None:
        raise PolyfedError(f"{run}: its data were no table, so that its models read arrays: use pf.load(run).predict")
    names = [] if models.client_column is None else [models.client_column]
    frame, dialect = read_with_dialect(rows, kind, [*names, *_categories(models.preparation)])
    try:
        scored = _scored(models, frame, client, shared)
    except PolyfedError as error:
        raise PolyfedError(str(error) if str(error).startswith(str(run)) else f"{rows}: {error}") from None
    if dialect is None:
        return Scored(scored, Dialect())
    options: Any = {"sep": dialect.separator, "encoding": dialect.encoding, "index_col": False}
    written = pd.read_csv(rows, dtype="str", keep_default_na=False, **options)
    own = len(written.columns)
    for name in scored.columns[own:]:
        written[name] = scored[name].to_numpy()
    return Scored(written, dialect, own)


def models_of(run: Path, client: str | None, *, shared: bool) -> tuple[SavedModels, str | None]:
    """The models of a run or a site, and whose is meant: at a site, its own where nobody is named."""
    models = load(at_site(run))
    if client is None and not shared and "site_model" in models.about:
        client = models.clients[0]
    return models, client


def at_site(folder: Path) -> Path:
    """Of a site's folder, the models of the run that ended last there; any other path as it is."""
    if not (folder / "site.toml").is_file():
        return folder
    ended = sorted((folder / "models").glob(f"*/{ABOUT}"), key=lambda file: file.stat().st_mtime)
    if not ended:
        raise PolyfedError(f"{folder}: no run has ended at this site yet")
    return ended[-1].parent


def _scored(models: SavedModels, frame: Any, client: str | None, shared: bool) -> Any:
    if shared or client is not None:
        return models.predict(client, frame)
    column = models.client_column
    if column is None or column not in frame.columns:
        raise PolyfedError(
            f"there is no client column{f' {column!r}' if column else ''}; say whose model, with --client or --global"
        )
    owners = frame[column]
    if owners.isna().any():
        raise PolyfedError(
            f"column {column!r} has no client name in row {int(owners.isna().argmax())} (counted from 0)"
        )
    return models.predict_each((str(owner).strip() for owner in owners.tolist()), frame)


def _categories(preparation: Preparation) -> Sequence[str]:
    """The columns whose words keep their spelling."""
    return [column.name for column in preparation.used if isinstance(column, Category)]
