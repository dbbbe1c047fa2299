"""IDX files: every type and packing, and each way in which one can be wrong."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from polyfed.core.errors import PolyfedError
from polyfed.data.formats.idx import read_idx
from tests.data.conftest import idx_bytes


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(0x08, "u1"), (0x09, "i1"), (0x0B, "i2"), (0x0C, "i4"), (0x0D, "f4"), (0x0E, "f8")],
)
def test_every_type_is_read_packed_or_not(tmp_path, kind, dtype):
    array = np.arange(24).reshape(2, 3, 4)
    for name, data in (("a", idx_bytes(array, kind)), ("a.gz", gzip.compress(idx_bytes(array, kind)))):
        (tmp_path / name).write_bytes(data)
        values = read_idx(tmp_path / name)
        np.testing.assert_array_equal(values, array)
        assert values.dtype.str[1:] == dtype


GOOD = idx_bytes(np.arange(20).reshape(5, 4))
REFUSED = {
    "an empty file": (b"", "not an IDX file, it begins with an empty file"),
    "another format": (b"PK\x03\x04 and so on", "not an IDX file, it begins with 50 4b 03 04"),
    "an unknown type": (b"\0\0\x0a\1" + GOOD[4:], "not an IDX file"),
    "too few numbers": (GOOD[:-1], r"cut short or too long, it has 31 bytes where shape \(5, 4\) needs 32"),
    "too many numbers": (GOOD + b"1", "has 33 bytes where"),
    "a cut header": (GOOD[:9], "cut short or too long, it has 9 bytes"),
    "a cut gzip file": (gzip.compress(GOOD)[:-6], "a damaged or incomplete gzip file"),
    "half a gzip file": (gzip.compress(GOOD)[:14], "a damaged or incomplete gzip file"),
    "a gzip file with a wrong byte": (gzip.compress(GOOD)[:-8] + b"\0" * 8, "a damaged or incomplete gzip file"),
    "the wrong axes": (idx_bytes(np.arange(5)), "1 axes and type u1, expected 2 axes and type u1"),
    "the wrong type": (idx_bytes(np.arange(20).reshape(5, 4), 0x0C), "type i4, expected 2 axes and type u1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_file_is_refused_by_name(tmp_path, case):
    data, message = REFUSED[case]
    (tmp_path / "images.gz").write_bytes(data)
    with pytest.raises(PolyfedError, match=f"images.gz: .*{message}"):
        read_idx(tmp_path / "images.gz", axes=2, kind="u1")
