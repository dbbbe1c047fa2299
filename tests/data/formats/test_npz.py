"""npz files with an array of clients."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed.data as data
from polyfed.core.errors import PolyfedError
from polyfed.data import Federation

RNG = np.random.default_rng(2)
X = RNG.integers(0, 256, (30, 4, 4), dtype=np.uint8)
Y = RNG.integers(0, 3, 30)
SITE = np.array(["north", "south", "east"])[np.arange(30) % 3]


def test_an_npz_file_becomes_a_client_per_name(tmp_path):
    np.savez(tmp_path / "all.npz", x=X, y=Y, site=SITE)
    federation = data.load("npz", path=tmp_path / "all.npz", client="site", validation=0, test=0)
    assert federation.clients == ("north", "south", "east")
    assert federation.train.x.dtype == np.uint8
    for i, name in enumerate(federation.clients):
        np.testing.assert_array_equal(federation.train.of(i)[0], X[name == SITE])
        np.testing.assert_array_equal(federation.train.of(i)[1], Y[name == SITE])
    np.savez(tmp_path / "other.npz", pixels=X, label=Y, client=np.arange(30) // 10)
    other = Federation.from_npz(tmp_path / "other.npz", target="label", features="pixels")
    assert other.clients == ("0", "1", "2")


def test_wrong_npz_files_are_refused_by_name(tmp_path):
    file = tmp_path / "all.npz"

    def refused(message: str, **options: str) -> None:
        with pytest.raises(PolyfedError, match=rf"all\.npz: {message}"):
            data.load("npz", path=file, **options)

    np.savez(file, x=X, y=Y, site=SITE)
    refused("there is no client array 'client'; did you mean 'site'")
    refused("there is no client array 'ward_7'; known: site, x, y", client="ward_7")
    refused("there is no client array 'sit'; did you mean 'site'", client="sit")
    refused("there is no target array 'label'", client="site", target="label")
    np.savez(file, x=X, y=Y[:-1], client=SITE)
    refused("the target array has 29 entries, expected one for each of 30 rows")
    np.savez(file, x=X, y=Y, client=np.array("north"))
    refused("the client array has a single value")
    np.savez(file, x=X, y=Y, client=RNG.random(30))
    refused(r"the client array has shape \(30,\) and type float64, expected a name or a number per row")
    np.savez(file, x=X, y=Y, client=np.array([{}] * 30, dtype=object))
    refused("cannot be read as an npz file of plain arrays")
    file.write_bytes(b"PK\x03\x04nothing of the kind")
    refused("cannot be read as an npz file")
    with file.open("wb") as out:
        np.save(out, X)
    refused("a single array, expected an npz file with several")
