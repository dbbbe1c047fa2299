"""Taking known files out of an archive: nothing else is written, whatever the archive says."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from polyfed.core.errors import PolyfedError

LARGEST = 2**30
"""The most bytes of one file of an archive."""
MOST, ENTRIES = 2 * LARGEST, 10_000
"""The most bytes of an unpacked tar archive, and the most files in it: a small file can claim to be endless."""
HEADER = 2**21
"""The most bytes that are read at a time: tarfile reads a header in one piece, however long it says that it is."""
PACKED: dict[bytes, Callable[[IO[bytes]], IO[bytes]]] = {
    b"\x1f\x8b": lambda file: cast(IO[bytes], gzip.GzipFile(fileobj=file)),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
}
"""How a packed tar archive begins."""


@dataclass(frozen=True)
class Entry:
    """One entry of an archive."""

    path: str
    size: int
    plain: bool
    """Whether it is a plain file."""
    open: Callable[[], IO[bytes] | None]


def unpack(archive: Path, folder: Path, members: Sequence[str]) -> None:
    """Write the files `members` (paths from `folder`) out of a tar or zip archive, found by their names.

    Each must be there once, as a plain file of sensible size. They are renamed into place when all are written.
    """
    wanted = {Path(member).name: folder / member for member in members}
    parts: dict[Path, Path] = {}
    try:
        with _opened(archive) as content:
            entries = _chosen(_entries(content), archive, wanted)
            for name, target in wanted.items():
                if name not in entries or (source := entries[name].open()) is None:
                    raise PolyfedError(f"{archive}: there is no {name} in it")
                target.parent.mkdir(parents=True, exist_ok=True)
                parts[target] = target.with_name(f"{target.name}.part")
                with source, parts[target].open("wb") as out:
                    shutil.copyfileobj(source, out, 2**20)
            if isinstance(content, tarfile.TarFile):
                _read_to_the_end(content)
        for target, part in parts.items():
            os.replace(part, target)
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, lzma.LZMAError, EOFError, zlib.error) as error:
        raise PolyfedError(f"{archive}: a damaged archive ({error})") from None
    except NotImplementedError as error:
        raise PolyfedError(f"{archive}: packed in a way that is not known here ({error})") from None
    except OSError as error:
        if error.errno is not None:  # of the disk, and not of what bz2 found in the file
            raise
        raise PolyfedError(f"{archive}: a damaged archive ({error})") from None
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


class _Bounded:
    """An unpacked tar archive, as far as MOST bytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.tell = stream, stream.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= HEADER:
            raise tarfile.ReadError(f"a header of {size} bytes")
        self._refuse(self.tell() + size)
        return self.stream.read(size)

    def seek(self, place: int) -> int:
        self._refuse(place)
        return self.stream.seek(place)

    def _refuse(self, place: int) -> None:
        if place > MOST:
            raise tarfile.ReadError(f"more than {MOST} bytes")


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile | zipfile.ZipFile]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as content:
            yield content
        return
    with archive.open("rb") as file:
        start = file.read(8)
        kind = next((opens for magic, opens in PACKED.items() if start.startswith(magic)), None)
        file.seek(0)
        with file if kind is None else kind(file) as stream:
            bounded: Any = _Bounded(stream)
            with tarfile.open(fileobj=bounded, mode="r:") as content:
                yield content


def _read_to_the_end(content: tarfile.TarFile) -> None:
    """What follows the last file: only at the end of the stream does gzip tell whether all of it was as written."""
    stream = content.fileobj
    assert stream is not None
    while stream.read(2**20):
        pass


def _entries(content: tarfile.TarFile | zipfile.ZipFile) -> list[Entry]:
    if isinstance(content, zipfile.ZipFile):
        for info in content.infolist():
            if info.flag_bits & 1:
                raise zipfile.BadZipFile(f"{info.filename} is encrypted, and no password is known")
        return [
            Entry(info.filename, info.file_size, not info.is_dir(), partial(content.open, info))
            for info in content.infolist()
        ]
    entries = []
    for info in content:
        entries.append(Entry(info.name, info.size, info.isfile(), partial(content.extractfile, info)))
        if len(entries) > ENTRIES:
            raise tarfile.ReadError(f"more than {ENTRIES} files")
    return entries


def _chosen(entries: Sequence[Entry], archive: Path, wanted: Container[str]) -> dict[str, Entry]:
    """The wanted entries by the last part of their paths."""
    chosen: dict[str, Entry] = {}
    for entry in entries:
        name = entry.path.rpartition("/")[2]
        if name not in wanted:
            continue
        if name in chosen or not entry.plain or entry.size > LARGEST:
            raise PolyfedError(
                f"{archive}: {entry.path} is there twice, not a plain file or too large, expected a data file"
            )
        chosen[name] = entry
    return chosen
