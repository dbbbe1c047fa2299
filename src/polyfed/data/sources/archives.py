"""Taking known files out of an archive: nothing else is written, whatever the archive says."""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from polyfed.core.errors import PolyfedError

LARGEST = 2**30
"""The most bytes of one file of an archive."""


def unpack(archive: Path, folder: Path, members: Sequence[str]) -> None:
    """Write the files `members` (paths from `folder`) out of a tar or zip archive, found by their names.

    Each must be there once, as a plain file of sensible size. They are renamed into place when all are written.
    """
    wanted = {Path(member).name: folder / member for member in members}
    parts: dict[Path, Path] = {}
    try:
        with _open(archive) as content:
            entries = _entries(content, archive, wanted)
            for name, target in wanted.items():
                if name not in entries:
                    raise PolyfedError(f"{archive}: there is no {name} in it")
                target.parent.mkdir(parents=True, exist_ok=True)
                parts[target] = target.with_name(f"{target.name}.part")
                with _reader(content, entries[name]) as source, parts[target].open("wb") as out:
                    shutil.copyfileobj(source, out, 2**20)
        for target, part in parts.items():
            os.replace(part, target)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise PolyfedError(f"{archive}: a damaged archive ({error})") from None
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _open(archive: Path) -> Any:
    return zipfile.ZipFile(archive) if zipfile.is_zipfile(archive) else tarfile.open(archive)


def _entries(content: Any, archive: Path, wanted: dict[str, Path]) -> dict[str, Any]:
    """The archive's entries by the last part of their names, as far as they are wanted."""
    found: dict[str, Any] = {}
    for entry, path, size, plain in _listed(content):
        name = path.rpartition("/")[2]
        if name not in wanted:
            continue
        if name in found or not plain or size > LARGEST:
            raise PolyfedError(f"{archive}: {path} is there twice, no plain file or too large, expected a data file")
        found[name] = entry
    return found


def _listed(content: tarfile.TarFile | zipfile.ZipFile) -> list[tuple[Any, str, int, bool]]:
    """(entry, path, size, whether it is a plain file) of everything in an archive."""
    if isinstance(content, zipfile.ZipFile):
        return [(entry, entry.filename, entry.file_size, not entry.is_dir()) for entry in content.infolist()]
    return [(entry, entry.name, entry.size, entry.isfile()) for entry in content]


def _reader(content: Any, entry: Any) -> IO[bytes]:
    return content.open(entry) if isinstance(content, zipfile.ZipFile) else content.extractfile(entry)
