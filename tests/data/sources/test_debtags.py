"""Debtags: a small file by hand, and the real one against its own json."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

import polyfed as pf
import polyfed.data as data
from polyfed.core.errors import PolyfedError

WORDS, TAGS = ["the", "perl", "game", "rare"], ["devel", "play", "web"]
PARTS = ("train", "validation", "test")


def small_file(folder, sizes):
    """Package k of a maintainer has the word k % 3, and word 3 if it is its first; its tag is k % 3."""
    rows = [
        [f"m{place}", [k % 3, *([3] if k == 0 else [])], [k % 3]]
        for place, size in enumerate(sizes)
        for k in range(size)
    ]
    file = folder / "debtags.json"
    file.write_text(json.dumps({"words": WORDS, "tags": TAGS, "rows": rows}))
    return file


def test_maintainers_have_their_packages_as_words_and_tags(tmp_path):
    federation = data.load("debtags", path=small_file(tmp_path, [40, 10, 20]), min_rows=20)
    assert federation.clients == ("m0", "m2")
    assert federation.classes is None
    for part, sizes in zip(PARTS, ([28, 14], [4, 2], [8, 4]), strict=True):
        assert federation.split(part).sizes.tolist() == sizes
    x = np.concatenate([federation.split(part).of(0)[0] for part in PARTS])
    y = np.concatenate([federation.split(part).of(0)[1] for part in PARTS])
    assert set(np.unique(x)) == {0, 255}
    assert x[:, 3].sum() == 255
    np.testing.assert_array_equal(x[:, :3] // 255, y)  # word k % 3 has tag k % 3
    assert y.sum(axis=0).tolist() == [14, 13, 13]


def test_of_large_maintainers_some_packages_are_drawn(tmp_path):
    federation = data.load("debtags", path=small_file(tmp_path, [400, 40]), max_rows=50)
    assert [sum(int(federation.split(part).sizes[client]) for part in PARTS) for client in (0, 1)] == [50, 40]
    with pytest.raises(PolyfedError, match="max_rows must be a whole number of at least 30, found 20"):
        data.load("debtags", path=tmp_path / "debtags.json", max_rows=20)


def test_a_model_reads_a_word_as_one(tmp_path):
    """The mean over rows of the sum over tags of log(1 + exp(z)) - b z, against NumPy."""
    federation = data.load("debtags", path=small_file(tmp_path, [40, 30]))
    problem = pf.Problem(federation, pf.models.linear(bias=False), "tags")
    w = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    x, y = federation.train.of(1)
    z = (x // 255).astype(float) @ w.astype(float)
    expected = np.mean(np.sum(np.log1p(np.exp(z)) - y * z, axis=1))
    init = problem.init("zeros", 0)
    params = dict.fromkeys(init, w) if isinstance(init, dict) else w
    assert problem.value(params, "m1") == pytest.approx(expected, rel=1e-5)


def test_workers_train_on_rows_of_one_maintainer_and_share_its_held_out_rows(tmp_path):
    file = small_file(tmp_path, [5, 60, 50])
    federation = data.load("debtags", path=file, workers=5, rows=10, validation=6, test=20)
    assert federation.clients == ("m1/000", "m1/001", "m1/002", "m2/000", "m2/001")
    assert federation.train.sizes.tolist() == [10] * 5
    assert federation.validation.sizes.tolist() == [6] * 5
    assert federation.test.sizes.tolist() == [20, 20, 20, 20, 20]
    for first, others in ((0, (1, 2)), (3, (4,))):
        for part in ("validation", "test"):
            for other in others:
                np.testing.assert_array_equal(federation.split(part).of(first)[0], federation.split(part).of(other)[0])
    again = data.load("debtags", path=file, workers=5, rows=10, validation=6, test=20, seed=1)
    assert not np.array_equal(again.train.x, federation.train.x)


def test_no_worker_trains_on_a_held_out_row_or_on_anothers(tmp_path):
    """Every package has a word of its own, so that packages can be told apart."""
    rows = [[f"m{k % 2}", [k], [k % 2]] for k in range(100)]
    file = tmp_path / "d.json"
    file.write_text(json.dumps({"words": list(map(str, range(100))), "tags": ["a", "b"], "rows": rows}))
    federation = data.load("debtags", path=file, workers=4, rows=9, validation=7, test=300)
    for first in (0, 2):
        train = [int(np.argmax(row)) for worker in (first, first + 1) for row in federation.train.of(worker)[0]]
        held = [int(np.argmax(row)) for part in PARTS[1:] for row in federation.split(part).of(first)[0]]
        assert len(set(train)) == 18
        assert len(held) == len(set(held)) == 50 - 18  # test goes short of the 300
        assert not set(train) & set(held)
        assert {k % 2 for k in train + held} == {first // 2}


def test_the_most_common_words_and_tags_are_kept_in_their_order(tmp_path):
    rows = [["m0", [0, 3], [2]], ["m0", [3, 2], [2, 0]], ["m0", [3, 2], [0]], ["m0", [1, 2], [2]]] * 10
    file = tmp_path / "d.json"
    file.write_text(json.dumps({"words": WORDS, "tags": TAGS, "rows": rows}))
    federation = data.load("debtags", path=file, words=2, tags=2)
    x, y = federation.train.of(0)
    kinds = Counter(map(tuple, np.concatenate([x // 255, y], axis=1).tolist()))
    assert set(kinds) == {(0, 1, 0, 1), (1, 1, 1, 1), (1, 1, 1, 0), (1, 0, 0, 1)}  # words 2, 3; tags 0, 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"words": 5}, "words must be at most the 4 of the file, found 5"),
        ({"tags": 1}, "tags must be a whole number of at least 2"),
        ({"workers": 1}, "workers must be a whole number of at least 2"),
        ({"workers": 2, "clients": 2}, "clients and workers exclude each other"),
        ({"workers": 2, "rows": 30}, "leave no test rows of the 40 of m0"),
        ({"workers": 2, "validation": 0.1}, "validation must be a whole number"),
        ({"min_rows": 50}, "none of its 2 maintainers has 50 rows"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message):
    with pytest.raises(PolyfedError, match=message):
        data.load("debtags", path=small_file(tmp_path, [40, 30]), **options)


def test_wrong_files_are_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYFED_DATA", str(tmp_path))
    with pytest.raises(PolyfedError, match=r"debtags.json: no such file"):
        data.load("debtags")
    file = tmp_path / "d.json"
    file.write_text("{}")
    with pytest.raises(PolyfedError, match=r"d.json: not a debtags file with rows, words and tags"):
        data.load("debtags", path=file)
    file.write_text(json.dumps({"words": WORDS, "tags": TAGS, "rows": [["m", [0], [0]], ["m", [9], [0]]]}))
    with pytest.raises(PolyfedError, match="row 1 is not"):
        data.load("debtags", path=file)


@pytest.mark.realdata
def test_the_real_file_has_the_known_clients_and_rows(published, monkeypatch):
    folder = published("debtags")
    monkeypatch.setenv("POLYFED_DATA", str(folder))
    rows = json.loads((folder / "debtags" / "debtags.json").read_text())["rows"]
    natural = data.load("debtags", words=100, tags=20)
    sizes = Counter(row[0] for row in rows)
    assert len(natural) == sum(size >= 30 for size in sizes.values()) == 51
    assert sum(len(natural.split(part).y) for part in PARTS) == sum(size for size in sizes.values() if size >= 30)
    dealt = data.load("debtags", words=100, tags=20, workers=100)
    assert len(dealt) == 100
    assert dealt.train.sizes.tolist() == [10] * 100
    assert dealt.test.sizes.tolist() == [300] * 50 + [196] * 50
    common = Counter(word for row in rows for word in set(row[1]) if row[0] == "maintainer-0000").most_common(1)[0]
    assert common[0] == 0  # "the" is the first of the words that are kept
    assert common[1] / sizes["maintainer-0000"] == pytest.approx(np.mean(dealt.test.of(0)[0][:, 0] == 255), abs=0.1)
