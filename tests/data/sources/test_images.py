"""MNIST, Fashion-MNIST, EMNIST and CIFAR-10: small files by hand, and the published ones against known facts."""

from __future__ import annotations

import gzip
import hashlib
import time

import numpy as np
import pytest

import polyfed.data as data
from polyfed.core.errors import PolyfedError
from polyfed.data.formats.idx import read_idx
from polyfed.data.sources import cache, mnist
from polyfed.data.sources.catalogue import CIFAR_BATCHES, CIFAR_FOLDER
from polyfed.data.sources.images import Images, matching_test_rows
from polyfed.data.sources.label_names import EMNIST
from tests.data.conftest import idx_bytes, numbers, small_mnist

PARTS = ("train", "validation", "test")
RNG = np.random.default_rng(0)
TRAIN, TEST = RNG.integers(0, 10, 600), RNG.integers(0, 10, 200)


@pytest.fixture
def small(tmp_path, monkeypatch):
    small_mnist(tmp_path / "mnist", TRAIN, TEST)
    monkeypatch.setenv("POLYFED_DATA", str(tmp_path))
    return tmp_path / "mnist"


def label_counts(federation, part, client):
    return np.bincount(federation.split(part).of(client)[1], minlength=10)


@pytest.mark.parametrize(
    ("partition", "options"),
    [
        ("iid", {}),
        ("contiguous", {}),
        ("classes_per_client", {"k": 3}),
        ("dirichlet", {"concentration": 0.5}),
        ("power_law", {"exponent": 1.1, "classes": 2}),
    ],
)
def test_published_test_images_are_only_tested_on_and_each_once(small, partition, options):
    federation = data.load("mnist", partition=partition, clients=10, validation=0.2, **options)
    seen = {part: np.sort(numbers(federation.split(part).x)) for part in PARTS}
    np.testing.assert_array_equal(np.sort(np.concatenate([seen["train"], seen["validation"]])), np.arange(600))
    np.testing.assert_array_equal(seen["test"], np.arange(600, 800))
    every = np.concatenate([TRAIN, TEST])
    for part in PARTS:
        np.testing.assert_array_equal(federation.split(part).y, every[numbers(federation.split(part).x)])
    for client in range(10):
        own = label_counts(federation, "train", client) + label_counts(federation, "validation", client)
        quota = own / np.bincount(TRAIN, minlength=10) * np.bincount(TEST, minlength=10)
        assert np.abs(label_counts(federation, "test", client) - quota).max() < 1 + 1e-9
    assert federation.label_names == tuple("0123456789")
    assert federation.source | {"partition": partition, "test": "published", **options} == federation.source


def test_a_share_is_held_out_of_all_images_of_a_client(small):
    federation = data.load("mnist", partition="classes_per_client", k=2, clients=10, validation=0, test=0.25)
    seen = np.sort(np.concatenate([numbers(federation.split(part).x) for part in PARTS]))
    np.testing.assert_array_equal(seen, np.arange(800))
    for client in range(10):
        own = len(federation.train.of(client)[1]) + len(federation.test.of(client)[1])
        assert federation.test.sizes[client] == np.floor(0.25 * own + 0.5)
        assert set(federation.test.of(client)[1]) <= set(federation.train.of(client)[1])
    assert len(federation.validation.x) == 0


def test_images_stay_bytes_in_aligned_memory(small):
    federation = data.load("mnist", partition="iid", clients=4)
    for part in PARTS:
        assert federation.split(part).x.dtype == np.uint8
        assert federation.split(part).x.ctypes.data % 64 == 0
    assert federation.train.y.dtype == np.int32
    assert federation.feature_shape == (28, 28)


def test_the_same_seed_gives_the_same_rows_and_another_others(small):
    first, again, other = (data.load("mnist", clients=5, partition="iid", seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.test.x, again.test.x)
    np.testing.assert_array_equal(first.train.x, again.train.x)
    assert not np.array_equal(first.test.x, other.test.x)


def test_nobody_is_left_without_a_test_row():
    # Client 0 has one training row of each class, client 1 all others: the quotas of client 0 are 0.1 each.
    y = np.repeat(np.arange(2), 100).astype(np.int32)
    images = Images(np.zeros((220, 1), np.uint8), np.concatenate([y, np.repeat([0, 1], 10)]).astype(np.int32), 200, 2)
    rows = [np.array([0, 100]), np.setdiff1d(np.arange(200), [0, 100])]
    for seed in range(20):
        owned = matching_test_rows(images, rows, seed)
        assert len(owned[0]) >= 1
        np.testing.assert_array_equal(np.sort(np.concatenate(owned)), np.arange(200, 220))
    with pytest.raises(PolyfedError, match="too few rows for 30 clients; take fewer clients, or a share"):
        matching_test_rows(images, [np.array([i]) for i in range(30)], 0)


def test_test_rows_are_on_average_in_proportion_to_the_training_rows():
    # Ten clients with a share of 1/10, 15 test rows: 1.5 each on average, 1 or 2 in every draw.
    images = Images(np.zeros((115, 1), np.uint8), np.zeros(115, np.int32), 100, 1)
    rows = np.split(np.arange(100), 10)
    drawn = np.array([[len(own) for own in matching_test_rows(images, rows, seed)] for seed in range(400)])
    assert set(np.unique(drawn)) == {1, 2}
    np.testing.assert_allclose(drawn.mean(axis=0), 1.5, atol=5 * 0.5 / np.sqrt(400))


def test_a_file_is_parsed_once_until_it_changes(small, monkeypatch):
    read: list[str] = []
    monkeypatch.setattr(mnist, "read_idx", lambda path, **o: read.append(path.name) or read_idx(path, **o))
    first = data.load("mnist", partition="iid", clients=4)
    second = data.load("mnist", partition="dirichlet", clients=5, min_size=1)
    assert len(read) == 4
    first.train.x[:] = 0  # one user's change is not another's
    assert data.load("mnist", partition="iid", clients=4).train.x.any()
    small_mnist(small, TRAIN[:300], TEST)
    assert len(data.load("mnist", partition="iid", clients=4).train.x) < len(second.train.x)
    assert len(read) == 8


def test_the_cache_keeps_what_fits(small, monkeypatch):
    monkeypatch.setattr(cache, "LIMIT", 100)
    assert len(data.load("mnist", partition="iid", clients=4)) == 4
    assert not cache._kept


def test_fashion_and_emnist_are_read_from_their_own_files(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYFED_DATA", str(tmp_path))
    small_mnist(tmp_path / "fashion-mnist", TRAIN, TEST)
    clothes = data.load("fashion_mnist", clients=3, partition="iid").label_names
    assert clothes is not None
    assert (len(clothes), clothes[9]) == (10, "ankle boot")
    small_mnist(
        tmp_path / "emnist", 1 + TRAIN % 26, 1 + TEST % 26, names=("emnist-letters-train", "emnist-letters-test")
    )
    letters = data.load("emnist", version="letters", clients=3, partition="contiguous", validation=0)
    assert (letters.classes, letters.label_names) == (26, tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    np.testing.assert_array_equal(letters.train.y, TRAIN % 26)  # the files count from 1
    assert letters.train.x[3, 1, 0] == 3  # and exchange rows and columns
    with pytest.raises(PolyfedError, match="version has the unknown value 'leters'; did you mean 'letters'"):
        data.load("emnist", version="leters")


@pytest.mark.parametrize(("version", "classes"), [("byclass", 62), ("bymerge", 47), ("balanced", 47), ("digits", 10)])
def test_emnists_versions_have_their_known_numbers_of_classes(version, classes):
    assert len(EMNIST[version]) == len(set(EMNIST[version])) == classes


def test_wrong_files_are_refused_by_name(small):
    labels = small / "t10k-labels-idx1-ubyte.gz"
    labels.write_bytes(gzip.compress(idx_bytes(TEST[:-1])))
    with pytest.raises(PolyfedError, match=r"t10k-labels-idx1-ubyte.gz: has 199 labels for 200 images"):
        data.load("mnist")
    labels.write_bytes(gzip.compress(idx_bytes(np.where(np.arange(200) == 7, 12, TEST))))
    with pytest.raises(PolyfedError, match=r"label 12 of image 7 \(counted from 0\), expected 0..9"):
        data.load("mnist")
    labels.write_bytes(gzip.compress(idx_bytes(TEST))[:-20])
    with pytest.raises(PolyfedError, match=r"t10k-labels-idx1-ubyte.gz: a damaged or incomplete gzip file"):
        data.load("mnist")
    labels.write_bytes((small / "t10k-images-idx3-ubyte.gz").read_bytes())
    with pytest.raises(PolyfedError, match=r"t10k-labels-idx1-ubyte.gz: an IDX file of 3 axes"):
        data.load("mnist")
    labels.unlink()
    with pytest.raises(PolyfedError, match=r"t10k-labels-idx1-ubyte.gz: no such file; `polyfed data fetch mnist`"):
        data.load("mnist")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition": "dirichelt"}, "did you mean 'dirichlet'"),
        ({"concentraton": 1}, "mnist with partition 'dirichlet' has no option 'concentraton'; did you mean"),
        ({"partition": "iid", "k": 2}, "has no option 'k'"),
        ({"partition": "column"}, "needs the option 'values'"),
        ({"clients": 0}, "clients must be a whole number of at least 1"),
        ({"test": "pubished"}, "test must be 'published' or a share"),
        ({"test": 1.5}, "test is a share"),
        ({"validation": 0.6, "test": 0.5}, r"validation \+ test must be below 1"),
        ({"seed": -1}, "seed must be a whole number"),
    ],
)
def test_wrong_options_are_refused(small, options, message):
    with pytest.raises(PolyfedError, match=message):
        data.load("mnist", **options)


def records(labels, pixels) -> bytes:
    return b"".join(bytes([label]) + pixel.tobytes() for label, pixel in zip(labels, pixels, strict=True))


def test_cifars_records_become_height_width_colour(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYFED_DATA", str(tmp_path))
    folder = tmp_path / CIFAR_FOLDER
    folder.mkdir()
    pixels = RNG.integers(0, 256, (6, 4, 3, 32, 32), dtype=np.uint8)
    labels = RNG.integers(0, 10, (6, 4))
    for name, own, own_labels in zip(CIFAR_BATCHES, pixels, labels, strict=True):
        (folder / name).write_bytes(records(own_labels, own))
    federation = data.load("cifar10", partition="contiguous", clients=2, validation=0)
    np.testing.assert_array_equal(federation.train.y, labels[:5].ravel())
    for row in range(20):
        for colour in range(3):
            np.testing.assert_array_equal(federation.train.x[row, :, :, colour], pixels[row // 4, row % 4, colour])
    assert federation.label_names is not None
    assert federation.label_names[6] == "frog"
    thinned = data.load("cifar10", partition="contiguous", clients=2, validation=0, test=0, every=3)
    np.testing.assert_array_equal(thinned.train.y, labels.ravel()[::3])
    with pytest.raises(PolyfedError, match="every must be a whole number"):
        data.load("cifar10", partition="contiguous", clients=2, every=0)
    (folder / "data_batch_3.bin").write_bytes(records(labels[0], pixels[0])[:-5])
    with pytest.raises(PolyfedError, match=r"data_batch_3.bin: has 12,287 bytes, expected a multiple of 3073"):
        data.load("cifar10")


def test_writers_are_the_clients_of_mnist_by_writer(small, monkeypatch):
    writers = RNG.integers(0, 20, 600) * 7
    extended = np.zeros((600, 8), int)
    extended[:, 0], extended[:, 1], extended[:, 2] = TRAIN, 4, writers
    file = small / "qmnist-train-labels-idx2-int.gz"
    file.write_bytes(gzip.compress(idx_bytes(extended, 0x0C)))
    federation = data.load("mnist_by_writer", validation=0.1, test=0.2)
    assert federation.clients == tuple(f"writer-{i * 7:04d}" for i in range(20))
    for client in range(20):
        own = np.concatenate([numbers(federation.split(part).of(client)[0]) for part in PARTS])
        np.testing.assert_array_equal(np.sort(own), np.flatnonzero(writers == client * 7))
    large = data.load("mnist_by_writer", min_rows=30)
    expected = [i * 7 for i in range(20) if (writers == i * 7).sum() >= 30]
    assert large.clients == tuple(f"writer-{w:04d}" for w in expected)
    few, more = (data.load("mnist_by_writer", clients=n, seed=3).clients for n in (4, 9))
    assert set(few) < set(more)
    assert (len(few), len(more), list(more)) == (4, 9, sorted(more))
    assert data.load("mnist_by_writer", clients=4, seed=4).clients != few
    with pytest.raises(PolyfedError, match="has 20 writers with at least 2 rows, expected at least clients = 21"):
        data.load("mnist_by_writer", clients=21)
    with pytest.raises(PolyfedError, match="none of its 20 writers has 700 rows, as min_rows asks for"):
        data.load("mnist_by_writer", min_rows=700)
    extended[5, 0] = (extended[5, 0] + 1) % 10
    file.write_bytes(gzip.compress(idx_bytes(extended, 0x0C)))
    with pytest.raises(PolyfedError, match=r"qmnist-train.*row 5 \(counted from 0\) is a"):
        data.load("mnist_by_writer")
    file.write_bytes(gzip.compress(idx_bytes(extended[:-1], 0x0C)))
    with pytest.raises(PolyfedError, match=r"qmnist-train.*has 599 rows for 600 images"):
        data.load("mnist_by_writer")
    file.write_bytes(gzip.compress(idx_bytes(extended[:, :5], 0x0C)))
    with pytest.raises(PolyfedError, match="has 5 columns, expected the 8"):
        data.load("mnist_by_writer")


@pytest.mark.realdata
def test_apfls_mnist_settings(published, monkeypatch):
    """APFL: 100 clients with 2 or 4 classes or IID; test rows distributed as the training rows."""
    monkeypatch.setenv("POLYFED_DATA", str(published("mnist")))
    start = time.perf_counter()
    options = [
        {"partition": "classes_per_client", "k": 2},
        {"partition": "classes_per_client", "k": 4},
        {"partition": "iid"},
    ]
    for given, classes in zip(options, (2, 4, 10), strict=True):
        federation = data.load("mnist", clients=100, validation=0, **given)
        assert (len(federation.train.x), len(federation.test.x)) == (60_000, 10_000)
        for client in range(100):
            train, test = (label_counts(federation, part, client) for part in ("train", "test"))
            assert (train > 0).sum() == classes
            np.testing.assert_array_equal(train > 0, test > 0)
            assert np.abs(train / train.sum() - test / test.sum()).max() < 0.05
    assert time.perf_counter() - start < 10  # 0.7 s here


@pytest.mark.realdata
@pytest.mark.parametrize(("exponent", "smallest", "largest"), [(1.1, 1222, 7486), (1.2, 374, 12057), (1.3, 110, 16444)])
def test_fedbcs_mnist_setting(published, monkeypatch, exponent, smallest, largest):
    """FedBC, Tables 4 and 5: 20 devices, all 70,000 images, a power law, C = 2, an 80/20 split."""
    monkeypatch.setenv("POLYFED_DATA", str(published("mnist")))
    classes = data.fedbc_classes("mnist", 2, exponent)
    options = {"partition": "power_law", "exponent": exponent, "classes": classes}
    federation = data.load("mnist", clients=20, validation=0, test=0.2, **options)
    rows = federation.train.sizes + federation.test.sizes
    assert rows.sum() == 70_000
    assert rows.max() == pytest.approx(largest, rel=0.02)
    assert rows.min() == pytest.approx(smallest, rel=0.06)
    held = [len(set(federation.train.of(i)[1]) | set(federation.test.of(i)[1])) for i in range(20)]
    assert held == classes
    np.testing.assert_allclose(federation.test.sizes / rows, 0.2, atol=0.005)


@pytest.mark.realdata
def test_mnists_writers_are_539_people(published, monkeypatch):
    monkeypatch.setenv("POLYFED_DATA", str(published("mnist")))
    federation = data.load("mnist_by_writer")
    rows = np.sum([federation.split(part).sizes for part in PARTS], axis=0)
    assert (len(federation), rows.sum(), rows.min(), rows.max(), np.median(rows)) == (539, 60_000, 19, 131, 116)
    assert len(data.load("mnist_by_writer", min_rows=50)) == 537
    assert set(federation.columns["series"].tolist()) == {0, 4}


@pytest.mark.full
@pytest.mark.realdata
def test_cifar_is_the_published_one_pixel_by_pixel(published, monkeypatch):
    """The checksums of the decoded batches, and the channel means, are those that are known of CIFAR-10."""
    monkeypatch.setenv("POLYFED_DATA", str(published("cifar10")))
    start = time.perf_counter()
    federation = data.load("cifar10", partition="contiguous", clients=5, validation=0)
    assert time.perf_counter() - start < 15  # 1.1 s here
    digests = [hashlib.sha256(federation.train.of(i)[0].tobytes()).hexdigest()[:16] for i in range(5)]
    known = ["fc115a3de050d667", "89e609b642f687bc", "93a365823e617294", "809eb95ecd057a36", "d05b7d66d216d6df"]
    assert digests == known
    assert federation.train.y[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    means = federation.train.x.mean(axis=(0, 1, 2)) / 255
    np.testing.assert_allclose(means, [0.49139968, 0.48215841, 0.44653091], atol=1e-8)
