"""The newcomers' data, as the command line names it: a config, a saved federation, a table or an npz file."""

from __future__ import annotations

import tomllib
from pathlib import Path

from polyfed import data
from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject
from polyfed.data import Federation
from polyfed.data.formats.tables import from_dataframe, read_table
from polyfed.data.tables.columns import Category
from polyfed.data.tables.preparation import Preparation
from polyfed.studies.newcomers.trained import FOLDER
from polyfed.studies.saved_models import ABOUT, read_about
from polyfed.studies.saved_models import FOLDER as MODELS

TABLES = {".csv": "csv", ".parquet": "parquet"}
SHARED = ("client", "target", "features", "validation", "test", "seed")
"""The keys of a run's [data] that hold for a newcomer's table, too."""


def read_newcomers(
    path: Path, run: Path, *, clients: list[str] | None = None, target: str | None = None, by: str | None = None
) -> Federation:
    """The newcomers of a file. Columns that are not named here have the names that they have in the run's own data.

    A table without a client column is one newcomer, named after the file.
    """
    if not path.exists():
        raise PolyfedError(f"{path}: no such file")
    if path.suffix == ".toml":
        from polyfed.studies.config import read_config

        newcomers = read_config(path, data_only=True).federation
    elif path.suffix == ".safetensors":
        newcomers = Federation.load(path)
    elif path.suffix == ".npz":
        columns = {"target": target, "client": by}
        named = {key: column for key, column in columns.items() if column is not None}
        newcomers = data.load("npz", path=str(path), **named)
    elif path.suffix in TABLES:
        newcomers = _table(path, run, target, by)
    else:
        known = ".toml (a config with [data]), .csv, .parquet, .npz or .safetensors (a saved federation)"
        raise PolyfedError(f"{path}: cannot tell what this is, expected {known}")
    if not clients:
        return newcomers if isinstance(newcomers, Federation) else newcomers.select(range(len(newcomers)))
    return newcomers.select([newcomers.index(client) for client in clients])


def _table(path: Path, run: Path, target: str | None, by: str | None) -> Federation:
    options = _run_columns(run)
    if target is not None:
        options["target"] = target
    if "target" not in options:
        raise PolyfedError(f"{path}: say which column is to be predicted, with --target")
    column = by or options.pop("client", None) or "client"
    options.pop("client", None)
    preparation = _preparation(run)
    words = [] if preparation is None else [c.name for c in preparation.used if isinstance(c, Category)]
    frame = read_table(path, TABLES[path.suffix], text_columns=(column, *words))
    if by is None and column not in frame.columns:
        frame = frame.assign(**{column: path.stem})
    return from_dataframe(Federation, frame, client=column, origin=f"{path}: ", preparation=preparation, **options)


def _preparation(run: Path) -> Preparation | None:
    """How the run's table was prepared; None where its numbers stayed as they were."""
    if not (run / MODELS / ABOUT).is_file():
        return None
    about = read_about(run)["preparation"]
    preparation = None if about is None else Preparation.from_json(about)
    return None if preparation is None or preparation.is_plain else preparation


def _run_columns(run: Path) -> JsonObject:
    """What the run's own [data] says about its tables."""
    config = run / "config.toml"
    if not config.is_file() or not (run / FOLDER).is_dir():
        return {}
    section = tomllib.loads(config.read_text()).get("data", {})
    if section.get("source") not in ("csv", "parquet", "folder", "dataframe"):
        return {}
    return {key: section[key] for key in SHARED if key in section}
