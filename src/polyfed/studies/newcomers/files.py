"""The newcomers' data, as the command line names it: a config, a saved federation, a table or an npz file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from polyfed import data
from polyfed.core.errors import PolyfedError
from polyfed.data import Federation
from polyfed.data.formats.tables import from_dataframe, read_table
from polyfed.studies.newcomers.trained import FOLDER

TABLES = {".csv": "csv", ".parquet": "parquet"}
SHARED = ("client", "target", "features", "validation", "test", "seed")
"""The keys of a run's [data] that hold for a newcomer's table, too."""


def read_newcomers(
    path: Path, run: Path, *, clients: list[str] | None = None, target: str | None = None, by: str | None = None
) -> Federation:
    """The newcomers of a file; columns that are not named here are called as in the run's own data.

    A table without a client column is one newcomer, named after the file.
    """
    if not path.exists():
        raise PolyfedError(f"{path}: no such file")
    if path.suffix == ".toml":
        from polyfed.studies.config import read_config

        found = read_config(path, data_only=True).federation
    elif path.suffix == ".safetensors":
        found = Federation.load(path)
    elif path.suffix == ".npz":
        given = {"target": target, "client": by}
        found = data.load("npz", path=str(path), **{key: name for key, name in given.items() if name is not None})
    elif path.suffix in TABLES:
        found = _table(path, run, target, by)
    else:
        known = ".toml (a config with [data]), .csv, .parquet, .npz or .safetensors (a saved federation)"
        raise PolyfedError(f"{path}: cannot tell what this is, expected {known}")
    if not clients:
        return found if isinstance(found, Federation) else found.select(range(len(found)))
    return found.select([found.index(client) for client in clients])


def _table(path: Path, run: Path, target: str | None, by: str | None) -> Federation:
    options = _run_columns(run)
    if target is not None:
        options["target"] = target
    if "target" not in options:
        raise PolyfedError(f"{path}: say which column is to be predicted, with --target")
    column = by or options.pop("client", None) or "client"
    options.pop("client", None)
    frame = read_table(path, TABLES[path.suffix], text_columns=(column,))
    if by is None and column not in frame.columns:
        frame = frame.assign(**{column: path.stem})
    return from_dataframe(Federation, frame, client=column, origin=f"{path}: ", **options)


def _run_columns(run: Path) -> dict[str, Any]:
    """What the run's own [data] says of its tables."""
    config = run / "config.toml"
    if not config.is_file() or not (run / FOLDER).is_dir():
        return {}
    section = tomllib.loads(config.read_text()).get("data", {})
    if section.get("source") not in ("csv", "parquet", "folder"):
        return {}
    return {key: section[key] for key in SHARED if key in section}
