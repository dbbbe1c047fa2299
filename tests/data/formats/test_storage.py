"""The saved federation: bit-exact, atomic, and strict about what it reads."""

from __future__ import annotations

import json

import numpy as np
import pytest

import polyfed.data as data
from polyfed.core.errors import PolyfedError
from polyfed.data import Federation
from polyfed.data.formats import storage


def example() -> Federation:
    random = np.random.default_rng(0)
    clients = {n: (random.normal(size=(9, 2, 3)).astype(np.float32), random.choice(["b", "a"], 9)) for n in ("å", "1")}
    columns = {"alpha": [0.1, 1 / 3], "site": ["x", "y"], "n": np.array([1, 2], np.int32)}
    return Federation.from_arrays(clients, columns=columns, source={"name": "arrays", "note": [1, None]})


def test_a_saved_federation_comes_back_bit_by_bit(tmp_path):
    before = example()
    before.save(tmp_path / "f.safetensors")
    for after in (
        Federation.load(tmp_path / "f.safetensors"),
        data.load("federation", path=tmp_path / "f.safetensors"),
    ):
        for part in ("train", "validation", "test"):
            for name in ("x", "y", "offsets"):
                a, b = getattr(before.split(part), name), getattr(after.split(part), name)
                assert a.dtype == b.dtype
                assert a.shape == b.shape
                assert a.tobytes() == b.tobytes()
        for name in ("clients", "classes", "label_names", "feature_names", "source"):
            assert getattr(before, name) == getattr(after, name)
        assert list(before.columns) == list(after.columns)
        for name, values in before.columns.items():
            assert values.dtype.kind == after.columns[name].dtype.kind
            np.testing.assert_array_equal(values, after.columns[name])
    assert [p.name for p in tmp_path.iterdir()] == ["f.safetensors"]


def test_parts_without_rows_survive(tmp_path):
    before = data.quadratics(clients=2, dim=3)
    before.save(tmp_path / "q")
    after = Federation.load(tmp_path / "q")
    assert after.test.x.shape == (0, 3)
    assert after.classes is None


def test_a_failed_save_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "f.safetensors"
    example().save(path)
    old = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(storage.os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        data.quadratics().save(path)
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["f.safetensors"]


def test_files_that_are_not_federations_are_refused_by_name(tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "f"
    path.write_bytes(b"no such thing")
    with pytest.raises(PolyfedError, match="f: cannot be read as a saved federation"):
        Federation.load(path)
    save_file({"a": np.ones(2)}, path)
    with pytest.raises(PolyfedError, match="f: a safetensors file, but not a saved federation"):
        Federation.load(path)
    save_file({"a": np.ones(2)}, path, metadata={storage.KEY: json.dumps({"format": 99})})
    with pytest.raises(PolyfedError, match="f: written in format 99, expected 1"):
        Federation.load(path)
    save_file({"a": np.ones(2)}, path, metadata={storage.KEY: json.dumps({"format": 1, "text_columns": {}})})
    with pytest.raises(PolyfedError, match="f: cannot be read as a saved federation"):
        Federation.load(path)
    example().save(path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(PolyfedError, match="f: cannot be read as a saved federation"):
        Federation.load(path)
    with pytest.raises(PolyfedError, match="no such folder"):
        example().save(tmp_path / "none" / "f")
