"""A folder with one file per client."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.arrays import from_arrays
from polyfed.data.formats.npz import read_arrays
from polyfed.data.formats.tables import from_dataframe, read_table
from polyfed.data.option_checks import PathLike, existing_path, text
from polyfed.data.split import ReadOptions

if TYPE_CHECKING:
    from polyfed.data.federation import Federation

KINDS = {".csv": "csv", ".parquet": "parquet", ".npz": "npz"}


def from_folder(
    cls: type[Federation],
    path: PathLike,
    *,
    target: str,
    features: Sequence[str] | None = None,
    **options: Unpack[ReadOptions],
) -> Federation:
    """One CSV, Parquet or npz file per client, read in the order of their names; the stem is the client's name.

    Tables have the same columns in every file. An npz file has the arrays `x` and the one that `target` names.
    """
    folder = existing_path("path", path)
    text("target", target)
    if not folder.is_dir():
        raise PolyfedError(f"{folder}: not a folder, expected one with a file per client")
    visible = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    files = [p for p in visible if p.suffix.lower() in KINDS]
    if not files:
        raise PolyfedError(f"{folder}: no client files, expected one .csv, .parquet or .npz file per client")
    by_name: dict[str, Path] = {}
    for file in files:
        if file.stem in by_name:
            raise PolyfedError(
                f"{folder}: client {file.stem!r} has two files, {by_name[file.stem].name} and {file.name}"
            )
        by_name[file.stem] = file
    arrays = [file.suffix.lower() == ".npz" for file in files]
    if any(arrays) and not all(arrays):
        raise PolyfedError(
            f"{folder}: {files[arrays.index(True)].name} is beside tables, expected npz files or tables only"
        )
    chosen = None if features is None else list(features)
    source: dict[str, object] = {"name": "folder", "path": str(path), "target": target, "features": chosen, **options}
    if all(arrays):
        if features is not None:
            raise PolyfedError("features names columns of tables, but the folder has npz files")
        pairs = {name: read_arrays(file, [("array", "x"), ("array", target)]) for name, file in by_name.items()}
        try:
            return from_arrays(cls, pairs, source=source, **options)
        except PolyfedError as error:
            raise PolyfedError(f"{folder}: {error}") from None
    return _from_tables(cls, folder, by_name, target=target, features=chosen, source=source, **options)


def _from_tables(
    cls: type[Federation],
    folder: Path,
    files: dict[str, Path],
    *,
    target: str,
    features: list[str] | None,
    source: dict[str, object],
    **options: Unpack[ReadOptions],
) -> Federation:
    import pandas as pd

    frames = {name: read_table(file, KINDS[file.suffix.lower()]) for name, file in files.items()}
    first = next(iter(frames))
    for name, frame in frames.items():
        for column in frames[first].columns.symmetric_difference(frame.columns):
            lacking, having = (name, first) if column in frames[first].columns else (first, name)
            raise PolyfedError(f"{files[lacking]}: there is no column {str(column)!r}, which {files[having].name} has")
        if len(frame) == 0:
            raise PolyfedError(f"{files[name]}: client {name!r} is empty, expected at least one row")
    owner = "client"
    while owner in frames[first].columns:  # the table may have a column of that name
        owner = f"{owner}_"
    table = pd.concat([frame.assign(**{owner: name}) for name, frame in frames.items()], ignore_index=True)
    starts = np.cumsum([0, *map(len, frames.values())])
    names = list(frames)

    def row_name(row: int) -> str:
        file = int(np.searchsorted(starts, row, side="right")) - 1
        return f"row {row - starts[file]} of {files[names[file]].name} (counted from 0)"

    return from_dataframe(
        cls,
        table,
        client=owner,
        target=target,
        features=features,
        origin=f"{folder}: ",
        source=source,
        row_name=row_name,
        **options,
    )
