"""A folder with one file per client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.arrays import from_arrays
from polyfed.data.formats.npz import read_arrays
from polyfed.data.formats.tables import CsvOptions, TableOptions, from_dataframe, read_with_dialect, text_columns
from polyfed.data.option_checks import PathLike, existing_path, text
from polyfed.data.split import ReadOptions

if TYPE_CHECKING:
    from polyfed.data.federation import Federation

KINDS = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".npz": "npz"}


def from_folder(
    cls: type[Federation],
    path: PathLike,
    *,
    target: str,
    dialect: CsvOptions | None = None,
    **options: Unpack[TableOptions],
) -> Federation:
    """One CSV, Parquet or npz file per client, read in the order of their names; the stem is the client's name.

    A column that one table lacks is missing there. An npz file has the arrays `x` and the one that `target` names.
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
    features = options["features"]
    source: dict[str, object] = {"name": "folder", "path": str(path), "target": target, **options}
    source["features"] = None if features is None else list(features)
    if all(arrays):
        if features is not None or options["columns"] is not None:
            raise PolyfedError("features and columns name columns of tables, but the folder has npz files")
        pairs = {name: read_arrays(file, [("array", "x"), ("array", target)]) for name, file in by_name.items()}
        held = ReadOptions(
            validation=options["validation"], test=options["test"], seed=options["seed"], classes=options["classes"]
        )
        try:
            return from_arrays(cls, pairs, source=source, **held)
        except PolyfedError as error:
            raise PolyfedError(f"{folder}: {error}") from None
    return _from_tables(cls, folder, by_name, target=target, source=source, dialect=dialect, **options)


def _from_tables(
    cls: type[Federation],
    folder: Path,
    files: dict[str, Path],
    *,
    target: str,
    source: dict[str, object],
    dialect: CsvOptions | None,
    **options: Unpack[TableOptions],
) -> Federation:
    import pandas as pd

    words, frames, written = text_columns(options["columns"]), {}, {}
    for name, file in files.items():
        frames[name], dialect_read = read_with_dialect(file, KINDS[file.suffix.lower()], words, dialect)
        if dialect_read is not None:
            written[file.name] = str(dialect_read)
        if len(frames[name]) == 0:
            raise PolyfedError(f"{file}: client {name!r} is empty, expected at least one row")
    source |= {"read": _described(written)} if written else {}
    there = list(dict.fromkeys(str(column) for frame in frames.values() for column in frame.columns))
    needed = there if options["prepare"] is False else [target]
    for name, frame in frames.items():
        for column in needed if target in there else []:
            if column not in frame.columns:
                raise PolyfedError(f"{files[name]}: site {name!r} has no column {column!r}")
    owner = "client"
    while owner in there:  # the table may have a column of that name
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
        origin=f"{folder}: ",
        source=source,
        row_name=row_name,
        **options,
    )


def _described(written: dict[str, str]) -> str:
    """How the files are written, in words."""
    if len(kinds := set(written.values())) == 1:
        return kinds.pop()
    return "; ".join(f"{file}: {how}" for file, how in written.items())
