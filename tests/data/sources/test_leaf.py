"""LEAF's json files, written here as LEAF writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyfed.data as data
from polyfed.core.errors import PolyfedError
from polyfed.data.sources.characters import text_of

PARTS = ("train", "validation", "test")
RNG = np.random.default_rng(1)


def leaf(users: dict[str, tuple[list, list]]) -> dict[str, Any]:
    return {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }


def write(folder: Path, part: str, content: Any, name: str = "all_data_0_niid.json") -> Path:
    (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / part / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder / part / name


def images(rows: int, labels: list[int] | None = None) -> tuple[np.ndarray, tuple[list, list]]:
    pixels = RNG.integers(0, 256, (rows, 784))
    y = RNG.integers(0, 62, rows).tolist() if labels is None else labels
    return pixels, ((pixels / 255).tolist(), y)


@pytest.fixture
def femnist(tmp_path):
    """Three writers over two training files and a test file; what was written, by (part, writer)."""
    truth = {}
    for part, files in (("train", (("f1", "f2"), ("f3",))), ("test", (("f3", "f1", "f2"),))):
        for number, writers in enumerate(files):
            made = {writer: images(12 if part == "train" else 4) for writer in writers}
            truth |= {(part, writer): pair for writer, pair in made.items()}
            write(tmp_path, part, leaf({w: own for w, (_, own) in made.items()}), f"data_{number}.json")
    return tmp_path, truth


def test_femnist_is_bytes_by_writer_with_the_published_test_rows(femnist):
    folder, truth = femnist
    federation = data.load("femnist", path=folder, validation=0.25)
    assert federation.clients == ("f1", "f2", "f3")
    assert (federation.train.x.dtype, federation.feature_shape, federation.classes) == (np.uint8, (28, 28), 62)
    assert federation.label_names is not None
    assert [federation.label_names[i] for i in (0, 10, 36)] == ["0", "A", "a"]
    for client, writer in enumerate(federation.clients):
        pixels, (_, y) = truth["test", writer]
        np.testing.assert_array_equal(federation.test.of(client)[0].reshape(-1, 784), pixels)
        np.testing.assert_array_equal(federation.test.of(client)[1], y)
        own = np.concatenate([federation.split(part).of(client)[0] for part in ("train", "validation")])
        expected = truth["train", writer][0]
        np.testing.assert_array_equal(np.sort(own.reshape(-1, 784)[:, :4], axis=0), np.sort(expected[:, :4], axis=0))
    assert federation.validation.sizes.tolist() == [3, 3, 3]


def test_a_share_splits_every_writer_anew(femnist):
    federation = data.load("femnist", path=femnist[0], validation=0, test=0.5)
    assert federation.train.sizes.tolist() == federation.test.sizes.tolist() == [8, 8, 8]


def test_digits_alone_are_ten_classes_and_writers_without_them_are_left_out(tmp_path):
    _, one = images(6, [0, 40, 9, 5, 61, 3])
    _, letters = images(3, [10, 11, 12])
    _, held = images(2, [4, 33])
    write(tmp_path, "train", leaf({"a": one, "b": letters}))
    write(tmp_path, "test", leaf({"a": held, "b": letters}))
    federation = data.load("femnist", path=tmp_path, digits=True, validation=0)
    assert (federation.clients, federation.classes) == (("a",), 10)
    assert federation.train.y.tolist() == [0, 9, 5, 3]
    assert federation.test.y.tolist() == [4]


def test_pixels_that_are_no_255ths_stay_numbers(tmp_path):
    exact, (x, y) = images(3)
    write(tmp_path, "train", leaf({"a": (x, y), "b": ((RNG.random((3, 784)) * 0.999).tolist(), y)}))
    federation = data.load("femnist", path=tmp_path, test=0, validation=0)
    assert federation.train.x.dtype == np.float32
    np.testing.assert_allclose(federation.train.of(0)[0].reshape(-1, 784), exact / 255, atol=1e-7)
    rounded = [[round(v, 6) for v in row] for row in x]  # few digits are still the same bytes
    write(tmp_path, "train", leaf({"a": (rounded, y)}))
    federation = data.load("femnist", path=tmp_path, test=0, validation=0)
    np.testing.assert_array_equal(federation.train.x.reshape(-1, 784), exact)


TEXT = "O, that this too too solid flesh would melt,\nThaw and resolve itself into a dew! " * 3


def sequences(first: int, rows: int) -> tuple[list[str], list[str]]:
    return [TEXT[i : i + 80] for i in range(first, first + rows)], [TEXT[i + 80] for i in range(first, first + rows)]


def test_shakespeare_rows_become_token_ids(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYFED_DATA", str(tmp_path))
    folder = tmp_path / "shakespeare_leaf"
    write(folder, "train", leaf({"HAMLET": sequences(0, 20), "GHOST": sequences(3, 5)}))
    write(folder, "test", leaf({"HAMLET": sequences(20, 4), "GHOST": sequences(8, 2)}))
    federation = data.load("shakespeare_leaf", validation=0)
    assert [text_of(row) for row in federation.test.of(0)[0]] == sequences(20, 4)[0]
    assert text_of(federation.test.of(0)[1]) == "".join(sequences(20, 4)[1])
    assert (federation.classes, federation.feature_shape, federation.train.x.dtype) == (80, (80,), np.int32)
    last = data.load("shakespeare_leaf", validation=0, test=0.25)
    assert text_of(last.test.of(0)[1]) == TEXT[98:104]  # the last quarter of its 24 rows, in order
    assert data.load("shakespeare_leaf", min_rows=10).clients == ("HAMLET",)
    odd = (["#" + TEXT[1:80]], ["~"])
    write(folder, "train", leaf({"HAMLET": sequences(0, 20), "GHOST": odd}))
    assert data.load("shakespeare_leaf").source["note"] == "2 characters outside the alphabet read as spaces"


def broken(**changes: Any) -> Any:
    return {**leaf({"a": images(3)[1], "b": images(2)[1]}), **changes}


def with_user(**changes: Any) -> Any:
    content = leaf({"a": images(3)[1]})
    content["user_data"]["a"] |= changes
    return content


REFUSED = {
    "no json": ("{", "data.json: not valid json"),
    "a list": ("[]", "data.json: there is no 'users'"),
    "no user_data": (broken(user_data=None), "there is no 'user_data'"),
    "a missing user": (broken(users=["a", "c"]), "user_data has 'b', which is not one of its users"),
    "a user without data": (broken(users=["a", "b", "c"], num_samples=[3, 2, 1]), "user 'c' is not in user_data"),
    "too few counts": (broken(num_samples=[3]), "has 2 users and 1 num_samples"),
    "a wrong count": (broken(num_samples=[3, 4]), "user 'b' has 2 x, num_samples says 4"),
    "unequal lengths": (with_user(y=[1, 2]), "user 'a' has 2 y, num_samples says 3"),
    "no labels": (with_user(y=None), "user 'a' has no list 'y'"),
    "short images": (with_user(x=[[0.0] * 783] * 3), r"user 'a' has images of shape \(783,\), expected 784"),
    "ragged images": (with_user(x=[[0.0] * 784, [0.0], [0.0]]), "user 'a' has images of different lengths"),
    "bright pixels": (with_user(x=[[2.0] * 784] * 3), r"user 'a' has pixels outside \[0, 1\]"),
    "a large label": (with_user(y=[0, 1, 62]), "user 'a' has labels other than whole numbers from 0 to 61"),
    "a broken label": (with_user(y=[0, 1, 1.5]), "user 'a' has labels other than whole numbers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_json_is_refused_by_file_and_user(tmp_path, case):
    content, message = REFUSED[case]
    write(tmp_path, "train", content, "data.json")
    with pytest.raises(PolyfedError, match=rf"data\.json: .*{message}" if ": " not in message else message):
        data.load("femnist", path=tmp_path, test=0)


def test_wrong_texts_and_folders_are_refused(tmp_path):
    write(tmp_path, "train", leaf({"a": (["short"], ["x"])}))
    with pytest.raises(PolyfedError, match=r"user 'a', row 0 \(counted from 0\) has 5 characters and 1 after them"):
        data.load("shakespeare_leaf", path=tmp_path, test=0)
    write(tmp_path, "train", leaf({"a": ([1], ["x"])}))
    with pytest.raises(PolyfedError, match="user 'a' has x or y that are not text"):
        data.load("shakespeare_leaf", path=tmp_path, test=0)
    write(tmp_path, "train", leaf({"a": sequences(0, 3)}))
    with pytest.raises(PolyfedError, match=r"has no test/ folder, expected one, or a share such as test = 0.2"):
        data.load("shakespeare_leaf", path=tmp_path)
    write(tmp_path, "test", leaf({"b": sequences(0, 3)}))
    with pytest.raises(PolyfedError, match=r"user 'a' has rows in only one of train/ and test/.*-t sample"):
        data.load("shakespeare_leaf", path=tmp_path)
    with pytest.raises(PolyfedError, match="nothing: no such file or folder"):
        data.load("femnist", path=tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(PolyfedError, match=r"train: no json files there, expected those that LEAF's preprocess.sh"):
        data.load("femnist", path=tmp_path / "empty")
