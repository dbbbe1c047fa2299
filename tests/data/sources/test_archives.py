"""Archives that are whole, damaged, encrypted or hostile."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from polyfed.core.errors import PolyfedError
from polyfed.data.sources.archives import unpack


def files_in(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def tarred(members: dict[str, bytes], **odd: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        for name, target in odd.items():
            entry = tarfile.TarInfo(f"in/{name}.bin")
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return packed.getvalue()


def encrypted() -> bytes:
    """A zip whose one file is marked as encrypted, as no tool of the standard library makes it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("in/a.bin", b"A" * 20)
    content = bytearray(packed.getvalue())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + flags] |= 1
    return bytes(content)


def wrong_bit(packed: bytes, place: int) -> bytes:
    return packed[:place] + bytes([packed[place] ^ 1]) + packed[place + 1 :]


BOTH = {"in/a.bin": bytes(range(256)) * 40, "in/b.bin": b"B" * 5000}


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (encrypted(), r"a damaged archive \(in/a.bin is encrypted, and no password is known\)"),
        (wrong_bit(lzma.compress(gzip.decompress(tarred(BOTH))), 200), "a damaged archive"),
        (wrong_bit(bz2.compress(gzip.decompress(tarred(BOTH))), 200), "a damaged archive"),
        (wrong_bit(tarred(BOTH), len(tarred(BOTH)) - 6), "a damaged archive \\(CRC check failed"),
        (wrong_bit(gzip.compress(gzip.decompress(tarred(BOTH)), 0), 700), "a damaged archive \\(CRC check failed"),
        (tarred({"in/a.bin": b"A"}), "there is no b.bin in it"),
        (tarred({"in/a.bin": b"A", "x/a.bin": b"A", "in/b.bin": b"B"}), "x/a.bin is there twice"),
        (tarred({"in/a.bin": b"A"}, b="/etc/passwd"), "in/b.bin is .* not a plain file"),
        (tarred({"in/a.bin": b"A" * 5000, "in/b.bin": b"B" * 5000})[:60], "a damaged archive"),
        (b"not an archive at all", "a damaged archive"),
    ],
    ids=[
        "encrypted",
        "xz",
        "bz2",
        "gzip's sum",
        "gzip's content",
        "incomplete",
        "twice",
        "a link",
        "cut",
        "no archive",
    ],  # the bytes have the time in them
)
def test_wrong_archives_are_refused_and_leave_nothing(tmp_path, archive, message):
    (tmp_path / "packed").write_bytes(archive)
    with pytest.raises(PolyfedError, match=f"packed: {message}"):
        unpack(tmp_path / "packed", tmp_path, ["out/a.bin", "out/b.bin"])
    assert files_in(tmp_path) == ["packed"]


def test_a_zip_archive_is_unpacked_too(tmp_path):
    with zipfile.ZipFile(tmp_path / "packed", "w") as archive:
        archive.writestr("gzip/a.gz", b"A")
        archive.writestr("../evil", b"C")
    unpack(tmp_path / "packed", tmp_path / "data", ["emnist/a.gz"])
    assert files_in(tmp_path) == ["data/emnist/a.gz", "packed"]


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type = size, kind
    return entry.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("pack", "start", "message"),
    [
        (gzip.compress, header("in/c.bin", 2**40), "more than 2147483648 bytes"),
        (bz2.compress, header("in/c.bin", 2**40, tarfile.XHDTYPE), "a header of 1099511627776 bytes"),
        (lzma.compress, header("in/c.bin", 2**40, tarfile.GNUTYPE_LONGNAME), "a header of 1099511627776 bytes"),
        (gzip.compress, b"".join(header(f"in/{place}", 0) for place in range(10_001)), "more than 10000 files"),
    ],
    ids=["zeros", "long header", "long name", "many files"],
)
def test_an_archive_that_unpacks_without_end_is_left_at_once(tmp_path, pack, start, message):
    """Parts of a packed stream stand one after another: these are 4 MB, and say that they are more."""
    (tmp_path / "packed").write_bytes(pack(start) + 4 * pack(bytes(2**20)))
    begun = time.process_time()
    with pytest.raises(PolyfedError, match=rf"packed: a damaged archive \({message}"):
        unpack(tmp_path / "packed", tmp_path, ["out/a.bin"])
    assert time.process_time() - begun < 5
    assert files_in(tmp_path) == ["packed"]
