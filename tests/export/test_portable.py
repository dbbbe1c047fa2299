"""What does not fit into ONNX: the form of `jax.export`, which any model has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import polyfed as pf
from polyfed.data.tables.preparation import Preparation
from tests.data.tables.test_preparation import raw
from tests.export.test_onnx import drawn


def own() -> Any:
    """A model of one's own that asks how many rows it has."""

    def init(key: jax.Array) -> dict[str, jax.Array]:
        return {"w": jax.random.normal(key, (6, 3))}

    def apply(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return x.reshape(len(x), -1) @ params["w"]

    return init, apply


def module() -> Any:
    return pf.models.equinox(lambda key: eqx.nn.MLP(6, 3, width_size=4, depth=1, activation=jnp.tanh, key=key))


def read(file: Path) -> Any:
    return export.deserialize(bytearray(file.read_bytes()))


@pytest.mark.parametrize("model", [own(), module(), pf.models.linear()], ids=["own", "equinox", "linear"])
def test_any_model_of_numbers_for_any_number_of_rows(model: Any, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    fed = pf.Federation.from_arrays([(x, np.arange(30) % 3)] * 2, classes=3)
    made = drawn(fed, model)
    assert made.export(tmp_path / "model.jax") == [tmp_path / "model.jax", tmp_path / "model.jax.json"]
    about = json.loads((tmp_path / "model.jax.json").read_text())
    for rows in (1, 7, 30):
        expected, got = made.predict(x[:rows]), read(tmp_path / "model.jax").call(x[:rows])
        assert set(got) == set(expected)
        assert [about["labels"][i] for i in got["prediction"].tolist()] == expected.prediction.tolist()
        np.testing.assert_allclose(got["probability_2"], expected.probability_2, atol=1e-6)
    assert about["features"] == [6]


def test_sequences_and_images(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    cases: list[tuple[Any, Any]] = [
        (random.integers(0, 5, (12, 4)), pf.models.lstm(2, 3)),
        (random.integers(0, 256, (12, 9, 9), dtype=np.uint8), pf.models.cnn(channels=[2], hidden=[3])),
    ]
    for x, model in cases:
        fed = pf.Federation.from_arrays([(x, np.arange(12) % 5)] * 2, classes=5)
        made = drawn(fed, model)
        made.export(tmp_path / "model.jax")
        whole = x.astype(np.int32) if x.dtype == np.int64 else x
        got, expected = read(tmp_path / "model.jax").call(whole), made.predict(x)
        np.testing.assert_allclose(got["probability_4"], expected.probability_4, atol=1e-6)


def test_of_a_table_the_preparation_stands_beside_it(tmp_path: Path) -> None:
    df = raw()
    fed = pf.Federation.from_dataframe(df, client="site", target="died", prepare=True)
    made = drawn(fed, pf.models.linear(), dtype="float64")
    made.export(tmp_path / "model.jax")
    about = json.loads((tmp_path / "model.jax.json").read_text())
    features = Preparation.from_json(about["preparation"]).apply(df)
    assert len(about["feature_names"]) == features.shape[1]
    with jax.enable_x64(True):
        got = read(tmp_path / "model.jax").call(features)
    np.testing.assert_allclose(got["probability"], made.predict(df).probability, atol=1e-12)
