"""LIBSVM files: the parser against small files by hand, and the published files against their known counts."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from polyfed import data
from polyfed.core.errors import PolyfedError
from polyfed.data.sources.libsvm import KNOWN, read_libsvm
from polyfed.data.sources.published import data_folder


def write(folder: Path, text: str, name: str = "small") -> Path:
    (folder / name).write_bytes(text.encode())
    return folder / name


def test_rows_become_dense_and_indices_count_from_one(tmp_path):
    file = write(tmp_path, "1 1:0.5 3:-2e-1 \r\n\n-1\t2:1 # a remark 9:9\n-1\n+1 3:4 1:7")
    x, labels = read_libsvm(file)
    np.testing.assert_array_equal(x, [[0.5, 0, -0.2], [0, 1, 0], [0, 0, 0], [7, 0, 4]])
    np.testing.assert_array_equal(labels, [1, -1, -1, 1])
    assert x.dtype == np.float64
    assert read_libsvm(file, features=5)[0].shape == (4, 5)


def test_reading_gives_every_digit_back(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 7)) * 10.0 ** rng.integers(-12, 12, size=(50, 7))
    x[rng.random(x.shape) < 0.4] = 0
    lines = [
        " ".join([str(i % 2), *(f"{j + 1}:{v!r}" for j, v in enumerate(row.tolist()) if v)]) for i, row in enumerate(x)
    ]
    np.testing.assert_array_equal(read_libsvm(write(tmp_path, "\n".join(lines)), 7)[0], x)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1:1\n1 2:abc\n", "small, line 2: found 'abc', expected a finite number"),
        ("1 1:1\n\n1 2:nan\n", "line 3: found 'nan', expected a finite number"),
        ("1 1:1_0\n", "line 1: found '1_0', expected a finite number"),
        ("1 qid:3 1:1\n", "line 1: found 'qid', expected a finite number"),
        ("1 1:1\n1 0:1\n", "line 2: found '0', expected an index that is a whole number, at least 1"),
        ("1 1.5:1\n", "line 1: found '1.5', expected an index"),
        ("1 1:1\n-1 4:1\n", "line 2: found '4', expected an index of at most 3"),
        ("1 1:1 2\n", "line 1: found '2', expected index:value"),
        ("1:1 2:1\n", "line 1: found '1', expected a label"),
        ("1 1:1:2\n", "line 1: found '1', expected index:value"),
        ("1 1:1\n1 2: 1\n", "line 2: found '1', expected index:value"),
        ("1 1::1\n", "line 1: found '1', expected one ':'"),
        ("1 1:1\n1 2:1 :\n", "line 2: found a ':' without an index"),
        ("1 1:1 2:1 1:3\n", "line 1: found '1', expected every index once"),
        ("", "small: has no rows"),
        ("\n # nothing\n", "small: has no rows"),
    ],
)
def test_a_mistake_is_refused_with_file_and_line(tmp_path, text, message):
    with pytest.raises(PolyfedError) as error:
        read_libsvm(write(tmp_path, text), features=3)
    assert message in str(error.value)


def test_too_wide_a_file_is_refused_before_memory_is_taken(tmp_path):
    with pytest.raises(PolyfedError, match="too many to lay out densely"):
        read_libsvm(write(tmp_path, "1 1:1\n-1 9000000000:1\n"))


@pytest.mark.parametrize(
    ("labels", "expected", "classes", "note"),
    [
        ("1 2 1", [-1, 1, -1], None, "1 -> -1, 2 -> +1"),
        ("0 1 1", [-1, 1, 1], None, "0 -> -1, 1 -> +1"),
        ("+1 -1 1", [1, -1, 1], None, "-1 -> -1, 1 -> +1"),
        ("3 7 5", [0, 2, 1], 3, "3 -> 0, 5 -> 1, 7 -> 2"),
        ("0.5 7 5", [0.5, 7, 5], None, "real numbers, as in the file"),
    ],
)
def test_labels_are_mapped_and_the_mapping_is_kept(tmp_path, labels, expected, classes, note):
    file = write(tmp_path, "".join(f"{label} 1:1\n" for label in labels.split()))
    federation = data.load("libsvm", path=file, clients=1)
    np.testing.assert_array_equal(federation.train.y, expected)
    assert federation.classes == classes
    assert federation.source["labels"] == note


def test_one_label_alone_is_refused(tmp_path):
    with pytest.raises(PolyfedError, match="every row has the label 2"):
        data.load("libsvm", path=write(tmp_path, "2 1:1\n2 1:1\n"))


def test_clients_own_contiguous_blocks_in_file_order(tmp_path):
    """FLIX: machine i of n owns the rows floor((i-1) r/n) + 1 to floor(i r/n), counted from 1."""
    rows, clients = 23, 5
    file = write(tmp_path, "".join(f"{j % 2} 1:{j}\n" for j in range(1, rows + 1)))
    federation = data.load("libsvm", path=file, clients=clients)
    for i in range(1, clients + 1):
        first, last = (i - 1) * rows // clients + 1, i * rows // clients
        np.testing.assert_array_equal(federation.train.of(i - 1)[0][:, 0], np.arange(first, last + 1))
    assert len(federation.validation.x) == len(federation.test.x) == 0


def test_a_partition_takes_its_own_options_and_held_out_shares(tmp_path):
    file = write(tmp_path, "".join(f"{j % 4} 1:{j + 1}\n" for j in range(80)))
    options = {"partition": "classes_per_client", "k": 2, "clients": 4, "test": 0.25}
    federation = data.load("libsvm", path=str(file), **options)
    assert all(len(np.unique(federation.train.of(i)[1])) == 2 for i in range(4))
    assert len(federation.test.x) == 20
    assert federation.source | options == federation.source
    with pytest.raises(PolyfedError, match="no option 'kk'"):
        data.load("libsvm", path=file, kk=3)


def test_a_missing_file_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYFED_DATA", str(tmp_path))
    with pytest.raises(PolyfedError) as error:
        data.load("libsvm", name="mushrooms")
    assert str(tmp_path / "libsvm" / "mushrooms") in str(error.value)
    assert "POLYFED_DATA" in str(error.value)
    with pytest.raises(PolyfedError, match="did you mean 'mushrooms'"):
        data.load("libsvm", name="mushroom")
    with pytest.raises(PolyfedError, match="use path"):
        data.load("libsvm", name="../mushrooms")
    with pytest.raises(PolyfedError, match=r"either name .* or path"):
        data.load("libsvm")
    with pytest.raises(PolyfedError, match="a folder, expected a LIBSVM file"):
        data.load("libsvm", path=tmp_path)


def test_the_data_folder_is_the_users_cache_unless_set(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYFED_CACHE", str(tmp_path))
    monkeypatch.delenv("POLYFED_DATA", raising=False)
    assert data_folder() == tmp_path / "data"
    monkeypatch.setenv("POLYFED_DATA", str(tmp_path / "elsewhere"))
    assert data_folder() == tmp_path / "elsewhere"


def test_a_shortened_published_file_is_noted(tmp_path, monkeypatch):
    (tmp_path / "libsvm").mkdir()
    write(tmp_path / "libsvm", "1 1:1\n2 2:1\n", "mushrooms")
    monkeypatch.setenv("POLYFED_DATA", str(tmp_path))
    federation = data.load("libsvm", name="mushrooms", clients=2)
    assert federation.feature_shape == (112,)
    assert federation.source["note"] == "2 rows, where the published file has 8124"


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "features", "negative", "positive"),
    [
        ("mushrooms", 112, 3916, 4208),
        ("a6a", 123, 8528, 2692),
        ("a6a.t", 123, 16192, 5149),
        ("a9a", 123, 24720, 7841),
        ("w7a", 300, 23952, 740),
        ("w7a.t", 300, 24318, 739),
        ("w8a", 300, 48270, 1479),
        ("w6a.ge5", 300, 11946, 346),
        ("ijcnn1.num12", 22, 45137, 4853),
    ],
)
def test_published_files_have_their_known_counts(published, monkeypatch, name, features, negative, positive):
    monkeypatch.setenv("POLYFED_DATA", str(published("libsvm")))
    federation = data.load("libsvm", name=name, clients=50)
    y = federation.train.y
    assert federation.train.x.shape == (negative + positive, features)
    assert ((y == -1).sum(), (y == 1).sum()) == (negative, positive)
    assert KNOWN[name].rows == len(y)
    assert federation.source.get("note") == KNOWN[name].note
    assert ("incomplete" in str(federation.source.get("note"))) == (name in ("w6a.ge5", "ijcnn1.num12"))


@pytest.mark.realdata
def test_reading_agrees_with_scikit_learn_and_is_quick(published):
    from sklearn.datasets import load_svmlight_file

    for name in ("mushrooms", "ijcnn1.num12"):
        file = published("libsvm") / "libsvm" / name
        x, labels = read_libsvm(file, KNOWN[name].features)
        theirs, their_labels = load_svmlight_file(str(file), n_features=KNOWN[name].features)
        np.testing.assert_array_equal(x, theirs.toarray())
        np.testing.assert_array_equal(labels, their_labels)
    start = time.perf_counter()
    read_libsvm(published("libsvm") / "libsvm" / "w8a", 300)
    assert time.perf_counter() - start < 5  # 0.6 s on two cores


@pytest.mark.parametrize(("labels", "notes"), [("12", ["labels 1 -> -1, 2 -> +1"]), (("-1", "+1"), [])])
def test_a_reader_is_told_which_label_became_which(tmp_path, labels, notes) -> None:
    (tmp_path / "rows").write_text("".join(f"{labels[i % 2]} 1:{i + 1}\n" for i in range(8)))
    assert data.libsvm(path=tmp_path / "rows", clients=2).notes == notes
