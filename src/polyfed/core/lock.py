"""One process at a time in a folder, by a lock of the operating system: it goes with its process, however that ends."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from polyfed.core.errors import PolyfedError

NAME = ".lock"


@contextmanager
def locked(folder: Path, mode: int = 0o777) -> Generator[None]:
    """While it is held, another process that wants the folder is refused. A folder that stayed empty is removed.

    `mode`: that of the folder, where it is made here.
    """
    try:
        import fcntl
    except ImportError:  # a system without such locks
        yield
        return
    made = [place for place in (folder, *folder.absolute().parents) if not place.exists()]
    path = folder / NAME
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
        handle = _opened(path)
    except OSError as error:
        raise PolyfedError(f"{folder}: cannot be written to: {error.strerror or error}") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(handle, 20).decode(errors="replace").strip()
            who = f"process {owner}" if owner.isdigit() else "another process"
            raise PolyfedError(f"{folder}: {who} writes to this folder; wait for it, or take another") from None
        if not _same(handle, path):  # its last owner removed the file between the two calls
            raise PolyfedError(f"{folder}: another process has just ended here; try again")
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            with suppress(OSError):  # the first that is not empty ends it
                for place in made:
                    place.rmdir()
    finally:
        os.close(handle)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _same(handle: int, path: Path) -> bool:
    try:
        return os.fstat(handle).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False
