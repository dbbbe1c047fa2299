"""Hugging Face datasets with a client column."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

import polyfed.data as data
from polyfed.core.errors import PolyfedError
from polyfed.data import Federation

RNG = np.random.default_rng(2)
X = RNG.integers(0, 256, (30, 4, 4), dtype=np.uint8)
Y = RNG.integers(0, 3, 30)
SITE = np.array(["north", "south", "east"])[np.arange(30) % 3]


class ClassLabel:
    names = ("cat", "dog", "owl")


class Stub:
    """What polyfed uses of a datasets.Dataset: columns by name, their features, a format."""

    def __init__(self, columns: dict[str, Any], features: dict[str, Any] | None = None) -> None:
        self.columns, self.features, self.format = columns, features or {}, "python"

    @property
    def column_names(self) -> list[str]:
        return list(self.columns)

    def with_format(self, kind: str) -> Stub:
        turned = Stub(self.columns, self.features)
        turned.format = kind
        return turned

    def __getitem__(self, name: str) -> Any:
        return self.columns[name] if self.format == "numpy" else list(self.columns[name])


def test_a_hugging_face_dataset_becomes_a_client_per_value():
    dataset = Stub({"image": list(X), "label": Y, "writer": SITE.tolist()}, {"label": ClassLabel()})
    federation = Federation.from_huggingface(dataset, client="writer", target="label", validation=0, test=0)
    assert federation.clients == ("north", "south", "east")
    assert (federation.train.x.dtype, federation.feature_shape) == (np.uint8, (4, 4))
    assert (federation.classes, federation.label_names) == (3, ("cat", "dog", "owl"))
    np.testing.assert_array_equal(federation.train.of(1)[0], X[SITE == "south"])
    np.testing.assert_array_equal(federation.train.of(1)[1], Y[SITE == "south"])


def test_columns_that_are_declared_bytes_stay_bytes_and_lazy_ones_are_read_at_once():
    """The package gives whole numbers as int64, and newer versions give a lazy column."""
    lazy = types.SimpleNamespace(dtype="uint8")
    listed = types.SimpleNamespace(feature=types.SimpleNamespace(feature=lazy))

    class Column:
        def __getitem__(self, rows: slice) -> np.ndarray:
            return X.astype(np.int64)[rows]

    for declared in (lazy, listed):
        dataset = Stub({"image": Column(), "label": Y, "writer": SITE}, {"image": declared})
        federation = Federation.from_huggingface(dataset, client="writer", target="label", validation=0, test=0)
        assert federation.train.x.dtype == np.uint8
        np.testing.assert_array_equal(federation.train.of(0)[0], X[SITE == "north"])


def test_several_numeric_columns_are_features_side_by_side():
    age, dose = RNG.integers(20, 80, 30), RNG.normal(size=30)
    dataset = Stub({"age": age, "dose": dose, "y": Y, "site": SITE})
    federation = Federation.from_huggingface(dataset, client="site", target="y", validation=0, test=0)
    assert federation.feature_names == ("age", "dose")
    np.testing.assert_array_equal(federation.train.of(2)[0], np.column_stack([age, dose])[SITE == "east"])
    one = Federation.from_huggingface(dataset, client="site", target="y", features=["dose"], validation=0, test=0)
    assert one.feature_shape == (1,)
    years = Federation.from_huggingface(dataset, client="site", target="y", features=["age"], validation=0, test=0)
    assert years.train.x.dtype == np.float64  # a single number is no token id


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"x": X, "y": Y}, {}, "no client column 'site'; known: x, y"),
        ({"x": X, "site": SITE}, {}, "no target column 'y'"),
        ({"y": Y, "site": SITE}, {}, "no feature columns beside 'site' and 'y'"),
        ({"x": X, "y": Y, "site": SITE}, {"features": ["z"]}, "no feature column 'z'"),
        ({"x": X, "y": Y, "site": SITE}, {"features": "x"}, "features must be a list"),
        ({"x": ["words"] * 30, "y": Y, "site": SITE}, {}, "feature column 'x' has type .*encode it"),
        ({"x": [X[0]] * 29 + [X[0, :2]], "y": Y, "site": SITE}, {}, "column 'x' has entries of different shapes"),
    ],
)
def test_wrong_columns_are_refused_by_name(columns, options, message):
    with pytest.raises(PolyfedError, match=message):
        Federation.from_huggingface(Stub(columns), **{"client": "site", "target": "y", **options})


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ({"train": 1, "test": 2}, r"such as dataset\['train'\], found splits train, test"),
        ([1], "found list"),
    ],
)
def test_splits_and_other_things_are_refused(dataset, message):
    with pytest.raises(PolyfedError, match=message):
        Federation.from_huggingface(dataset, client="a", target="b")


def test_without_the_package_a_config_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(PolyfedError, match=r"needs the package datasets.*pip install 'polyfed\[huggingface\]'"):
        data.load("huggingface", path=tmp_path, client="site", target="y")
    with pytest.raises(PolyfedError, match=r"needs either name .* or path"):
        data.load("huggingface", client="site", target="y")


def test_with_the_package_a_saved_dataset_is_read(tmp_path, monkeypatch):
    stub = Stub({"x": X, "y": Y, "site": SITE})
    module = types.SimpleNamespace(load_from_disk=lambda path: {"train": stub}, load_dataset=lambda *names: stub)
    monkeypatch.setitem(sys.modules, "datasets", module)
    federation = data.load("huggingface", path=tmp_path, client="site", target="y")
    assert federation.source | {"name": "huggingface", "path": str(tmp_path), "split": "train"} == federation.source
    assert len(data.load("huggingface", name="owner/set", subset="small", client="site", target="y")) == 3
    with pytest.raises(PolyfedError, match="there is no split 'tran'; did you mean 'train'"):
        data.load("huggingface", path=tmp_path, client="site", target="y", split="tran")
    with pytest.raises(PolyfedError, match="owner/set: there is no client column 'sites'; did you mean 'site'"):
        data.load("huggingface", name="owner/set", client="sites", target="y")

    def fail(*_):
        raise FileNotFoundError("no dataset of that name.\nmore")

    module.load_dataset = fail
    with pytest.raises(
        PolyfedError, match=r"owner/set: the package datasets cannot read it \(no dataset of that name\)"
    ):
        data.load("huggingface", name="owner/set", client="site", target="y")


def test_a_column_of_clients_or_a_partitioner_is_needed_and_not_both(tmp_path):
    for options in ({}, {"client": "site", "partitioner": {"name": "IidPartitioner"}}):
        with pytest.raises(PolyfedError, match=r"needs either client .* or partitioner"):
            data.load("huggingface", path=tmp_path, target="y", **options)
    with pytest.raises(PolyfedError, match="must be a table with a name, found 'IidPartitioner'"):
        data.load("huggingface", path=tmp_path, target="y", partitioner="IidPartitioner")


def test_a_partitioner_of_flwr_datasets_says_whose_row_it_is(tmp_path):
    """Each client gets the rows that the partitioner itself gives it."""
    datasets, partitioners = pytest.importorskip("datasets"), pytest.importorskip("flwr_datasets.partitioner")
    rows = {"x": [float(row) for row in range(300)], "y": [row % 3 for row in range(300)]}
    dataset = datasets.Dataset.from_dict(rows)
    dataset.save_to_disk(tmp_path / "set")
    options = {"num_partitions": 4, "partition_by": "y", "alpha": 5.0, "min_partition_size": 0, "seed": 1}
    section = {"name": "DirichletPartitioner", **options}
    federation = data.load("huggingface", path=tmp_path / "set", target="y", partitioner=section)
    theirs = partitioners.DirichletPartitioner(**options)
    theirs.dataset = dataset
    assert federation.clients == tuple(f"client-{number}" for number in range(4))
    for number in range(4):
        parts = (federation.train, federation.validation, federation.test)
        ours = np.concatenate([part.x[part.offsets[number] : part.offsets[number + 1]].ravel() for part in parts])
        assert sorted(ours.tolist()) == sorted(theirs.load_partition(number)["x"])
    assert federation.source["partitioner"] == section
    linear = {"name": "LinearPartitioner", "num_partitions": 3}
    assert len(data.load("huggingface", path=tmp_path / "set", target="y", partitioner=linear)) == 3
    for wrong, message in (
        ({"name": "DirichletPartitoner"}, "did you mean 'DirichletPartitioner'"),
        ({"name": "IidPartitioner", "num_partitions": 0}, "IidPartitioner refuses"),
        ({"name": "DirichletPartitioner", "alpha": 1}, "DirichletPartitioner refuses"),
    ):
        with pytest.raises(PolyfedError, match=message):
            data.load("huggingface", path=tmp_path / "set", target="y", partitioner=wrong)
