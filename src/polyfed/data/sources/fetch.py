"""Downloads to the data folder: resumed where they were cut, checked, and renamed only when they are whole."""

from __future__ import annotations

import hashlib
import http.client
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.data.sources.archives import unpack
from polyfed.data.sources.catalogue import DATASETS, Dataset, Download
from polyfed.data.sources.libsvm import read_libsvm
from polyfed.data.sources.published import data_folder
from polyfed.data.sources.shakespeare import speeches

Report = Callable[[str, int, int], None]  # file name, bytes there, bytes in all (0: not known)

TRIES = 4
TIMEOUT = 30.0
"""Seconds without a byte after which a connection is given up."""
BLOCK = 2**18
FINAL = (400, 401, 403, 404, 405, 410, 451)
"""Status codes after which another try is pointless."""
FORMS: dict[str, Callable[[Path], object]] = {"shakespeare": speeches, "libsvm": read_libsvm}
"""By folder, the reader that must accept a file: some files have no known checksum."""


class _Cut(Exception):
    """The transfer ended early or never began; what came is kept, and another try may go on from there."""


class _Refused(Exception):
    """This address does not have the file."""


@dataclass(frozen=True)
class Fetched:
    """What became of one download."""

    path: Path
    size: int
    already: bool = False
    sha256: str | None = None
    """The checksum of a file for which none is known beforehand."""


def find(name: str) -> Dataset:
    """The dataset of this name; fashion-mnist is fashion_mnist."""
    known = DATASETS.get(name.replace("-", "_").lower()) or DATASETS.get(name)
    if known is None:
        raise PolyfedError(f"there is no dataset {name!r} to fetch{suggestion(name, DATASETS)}")
    return known


def fetch(
    name: str,
    folder: Path | None = None,
    *,
    base: str | None = None,
    report: Report = lambda name, done, total: None,
    pause: float = 1.0,
) -> list[Fetched]:
    """Download what is missing of a dataset; `base` is the address of a mirror with files of the same names.

    `pause` is the number of seconds before the second try; it doubles from try to try.
    """
    dataset, folder = find(name), folder or data_folder()
    if not dataset.downloads:
        raise PolyfedError(dataset.by_hand.format(folder=folder))
    if base is not None and urlsplit(base).scheme not in ("http", "https"):
        raise PolyfedError(f"--from {base}: expected an address that begins with https:// or http://")
    done = []
    for item in dataset.downloads:
        if all((folder / result).is_file() for result in item.results):
            done.append(Fetched(folder / item.results[0], item.size, already=True))
            continue
        urls = item.urls if base is None else (f"{base.rstrip('/')}/{Path(item.path).name}",)
        done.append(_get(item, folder, urls, report, pause))
    return done


def _get(item: Download, folder: Path, urls: Sequence[str], report: Report, pause: float) -> Fetched:
    target = folder / item.path
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if item.checksum is None:
            part.unlink(missing_ok=True)  # a mixture of two versions could not be noticed
        digest = _download(item, part, urls, report, pause)
        if item.members:
            unpack(part, folder, item.members)
            part.unlink()
        else:
            os.replace(part, target)
    except OSError as error:
        raise PolyfedError(f"{error.filename or target}: cannot be written ({error.strerror or error})") from None
    return Fetched(folder / item.results[0], item.size, sha256=None if item.checksum else digest)


def _download(item: Download, part: Path, urls: Sequence[str], report: Report, pause: float) -> str:
    """Download the whole file to `part`; gives its checksum, sha256 where none is known beforehand."""
    name = Path(item.path).name
    reasons: dict[str, Exception] = {}
    for attempt in range(TRIES):
        left = [url for url in urls if not isinstance(reasons.get(url), _Refused)]
        if attempt and left:
            time.sleep(pause * 2 ** (attempt - 1))
        for url in left:
            resumed = part.exists() and part.stat().st_size > 0
            try:
                _transfer(url, part, item, lambda done, total: report(name, done, total))
                return _verified(item, part, resumed)
            except (_Cut, _Refused) as error:
                reasons[url] = error
    told = "; ".join(f"{url}: {reason}" for url, reason in reasons.items())
    raise PolyfedError(f"{name} could not be downloaded ({told}){_kept(part, item)}; --from URL names a mirror")


def _verified(item: Download, part: Path, resumed: bool) -> str:
    """The checksum of a whole file, which must be the published one; any other file is deleted."""
    checksum = _digest(part, item.checksum or "sha256:")
    if item.checksum in (None, checksum):
        try:
            FORMS.get(item.path.partition("/")[0], lambda path: None)(part)
        except PolyfedError as error:
            part.unlink()
            raise _Refused(f"the file that came has the wrong form: {str(error).removeprefix(f'{part}: ')}") from None
        return checksum
    part.unlink()
    if resumed:  # two pieces that do not belong together; a fresh start may be right
        raise _Cut("the resumed file was not the published one")
    raise _Refused(f"the file that came is not the published one, {checksum} instead of {item.checksum}")


def _kept(part: Path, item: Download) -> str:
    size = part.stat().st_size if part.exists() else 0
    if not size or item.checksum is None:
        return ""
    return f"; {size / 1e6:.1f} of {item.size / 1e6:.1f} MB are kept, and the same command goes on from there"


def _transfer(url: str, part: Path, item: Download, report: Callable[[int, int], None]) -> None:
    """One request: what comes is appended to `part`, or replaces it if the server does not resume."""
    start = part.stat().st_size if part.exists() else 0
    if item.checksum and start >= item.size:
        if start == item.size:
            return
        part.unlink()
        start = 0
    request = urllib.request.Request(url, headers={"User-Agent": "polyfed", "Accept-Encoding": "identity"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            start = start if _resumes(answer, start) else 0
            length = answer.headers.get("Content-Length")
            total = start + int(length) if length and length.isdigit() else 0
            _check_total(total, item)
            with part.open("ab" if start else "wb") as file:
                _copy(answer, file, start, total, item, report)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            part.unlink(missing_ok=True)
        raise (_Refused if error.code in FINAL else _Cut)(f"the server says {error.code} {error.reason}") from None
    except ssl.SSLError as error:
        raise _Cut(f"no secure connection ({error.reason})") from None
    except urllib.error.URLError as error:
        raise _Cut(f"no connection ({getattr(error.reason, 'strerror', None) or error.reason})") from None
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise _Cut(f"the connection broke ({str(error) or type(error).__name__})") from None


def _resumes(answer: http.client.HTTPResponse, start: int) -> bool:
    """Whether the answer continues where the file ends; any other answer begins at the first byte."""
    return answer.status == 206 and (answer.headers.get("Content-Range") or "").startswith(f"bytes {start}-")


def _check_total(total: int, item: Download) -> None:
    if item.checksum and total and total != item.size:
        raise _Refused(f"a file of {total:,} bytes, where the published one has {item.size:,}")


def _copy(
    answer: http.client.HTTPResponse,
    file: BinaryIO,
    start: int,
    total: int,
    item: Download,
    report: Callable[[int, int], None],
) -> None:
    done = start
    limit = item.size if item.checksum else 10 * item.size
    while block := answer.read(BLOCK):
        done += len(block)
        if done > limit:
            raise _Refused(f"more than {limit:,} bytes, where the published file has {item.size:,}")
        file.write(block)
        report(done, total or (item.size if item.checksum else 0))
    expected = total or (item.size if item.checksum else 0)
    if expected and done < expected:
        raise _Cut(f"the connection ended after {done:,} of {expected:,} bytes")


def _digest(path: Path, checksum: str) -> str:
    kind = checksum.partition(":")[0]
    with path.open("rb") as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"
