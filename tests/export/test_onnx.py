"""An ONNX file says of new rows what `predict` says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest

import polyfed as pf
from polyfed.core.errors import PolyfedError
from polyfed.export import export_model
from polyfed.problem.prediction import Predictor
from polyfed.problem.problem import precision
from tests.data.tables.test_preparation import raw


def feeds(session: onnxruntime.InferenceSession, rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """A table as the file's inputs: numbers with NaN, words with "" where a cell is missing."""
    given = {}
    for column in session.get_inputs():
        cells: Any = rows[[column.name]]
        numbers = column.type == "tensor(double)"
        given[column.name] = cells.to_numpy(np.float64) if numbers else cells.astype("str").fillna("").to_numpy(object)
    return given


def run(file: Path, given: pd.DataFrame | np.ndarray) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(file)
    values: Any = session.run(None, {"x": given} if isinstance(given, np.ndarray) else feeds(session, given))
    return dict(zip([output.name for output in session.get_outputs()], values, strict=True))


@dataclass(frozen=True)
class Made:
    """A model, and what it takes to score rows with it."""

    predictor: Predictor
    params: Any

    def export(self, file: Path) -> list[Path]:
        return export_model(file, self.predictor, self.params, {"client": "a"})

    def predict(self, rows: Any) -> pd.DataFrame:
        return self.predictor.predict(self.params, rows)


def drawn(data: Any, model: Any, *, dtype: Any = "float32", **options: Any) -> Made:
    """A model with random weights."""
    problem = pf.Problem(data, model, **options)
    with precision(dtype):
        return Made(Predictor.of(problem, dtype), jax.tree.map(np.asarray, problem.init("random", seed=1)))


def same(made: Made, rows: Any, given: Any, file: Path, tolerance: float = 1e-6) -> dict[str, Any]:
    """Check that the file says what `predict` says, and give back what it says."""
    assert made.export(file) == [file]
    expected, got = made.predict(rows), run(file, given)
    assert list(got) == [name for name in expected.columns if not isinstance(rows, pd.DataFrame) or name not in rows]
    for name, values in got.items():
        if expected[name].dtype.kind == "f":
            np.testing.assert_allclose(values, expected[name], atol=tolerance, rtol=tolerance)
        else:
            assert values.tolist() == expected[name].tolist()
    return got


@pytest.mark.filterwarnings("ignore:column .* cannot be read")
@pytest.mark.parametrize(
    ("model", "dtype"),
    [
        (pf.models.linear(), "float32"),
        (pf.models.mlp([8, 4], activation="gelu"), "float32"),
        (pf.models.mlp([5], activation="tanh", bias=False), "float64"),
    ],
    ids=["linear", "mlp", "float64"],
)
def test_a_raw_table_is_scored_as_predict_scores_it(model: Any, dtype: str, tmp_path: Path) -> None:
    df = raw()
    fed = pf.Federation.from_dataframe(df, client="site", target="died", prepare=True)
    made = drawn(fed, model, dtype=dtype)
    rows = df.drop(columns="died")
    got = same(made, rows, rows, tmp_path / "model.onnx", 1e-6 if dtype == "float32" else 1e-12)
    assert set(got["prediction"]) == {"yes", "no"}
    odd: Any = pd.DataFrame(
        {
            "ward": ["unheard of", None, "B", "?"],
            "age": [np.nan, 1e6, -3, 40],
            "sbp": [130.0, np.nan, np.nan, 1],
            "smoker": ["YES", "no", None, "perhaps"],
            "seen": ["2019-02-30", "2031-07-04", None, "2019-03-01T10:00+02:00"],
        }
    )
    same(made, odd, odd, tmp_path / "model.onnx")
    assert len(run(tmp_path / "model.onnx", odd[:0])["prediction"]) == 0


def test_columns_that_were_said_to_be_something_are_read_as_it(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    df = pd.DataFrame(
        {
            "site": ["a", "b"] * 60,
            "code": random.choice([7, 8, 30], 120),
            "dose": random.choice([-9.0, 1.0, 2.0, 5.5], 120),
            "born": random.choice(["03.04.1961", "1.12.1970", "01.01.1900"], 120),
            "ok": random.choice([1.0, 0.0, np.nan], 120),
            "cost": random.normal(size=120) * 100,
        }
    )
    columns = {
        "code": "category",
        "dose": {"missing": [-9], "fill": 0.5},
        "born": {"kind": "date", "missing": ["01.01.1900"]},
        "ok": {"kind": "yes/no", "fill": "yes"},
    }
    fed = pf.Federation.from_dataframe(df, client="site", target="cost", prepare=True, columns=columns)
    made = drawn(fed, pf.models.linear(), loss="squared")
    rows = df.drop(columns="cost")
    got = same(made, rows, rows, tmp_path / "model.onnx", 1e-5)
    assert got["prediction"].std() > 0
    same(made, rows, rows.assign(code=rows.code.astype(float)), tmp_path / "model.onnx", 1e-5)


def test_complete_numbers_keep_their_names(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    df = pd.DataFrame(random.normal(size=(90, 3)), columns=["prediction?", "v1", "c c"])
    df = df.assign(site=["p", "q"] * 45, kind=random.choice(["low", "mid", "high"], 90))
    fed = pf.Federation.from_dataframe(df, client="site", target="kind")
    got = same(drawn(fed, pf.models.mlp([4])), df, df, tmp_path / "model.onnx")
    assert list(got) == ["prediction", "probability_high", "probability_low", "probability_mid"]
    clash = df.rename(columns={"v1": "probability_low"})
    made = drawn(pf.Federation.from_dataframe(clash, client="site", target="kind"), pf.models.linear())
    with pytest.raises(PolyfedError, match="reads a column 'probability_low', the name of what it predicts; rename it"):
        made.export(tmp_path / "clash.onnx")
    assert not (tmp_path / "clash.onnx").exists()


@pytest.mark.parametrize("labels", [[-1, 1], [1, 2], ["a", "b"], [0.5, 1.5]])
def test_the_logistic_loss_gives_the_labels_of_the_data(labels: list, tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 40)[:, None]
    y = np.array(labels)[(x[:, 0] > 0.3).astype(int)]
    fed = pf.Federation.from_arrays([(x, y), (x, y)])
    made = drawn(fed, pf.models.linear(bias=False), loss="logistic")
    same(made, x, x.astype(np.float32), tmp_path / "model.onnx")


CNN = pf.models.cnn(channels=[4, 6], kernel=[3, 2], pool=[2, 1], hidden=[8], padding="same", activation="gelu")
CNNS = {"cnn": CNN, "femnist_cnn": pf.models.femnist_cnn(), "lenet": pf.models.lenet()}


@pytest.mark.parametrize("name", CNNS)
@pytest.mark.parametrize("depth", [(), (3,)], ids=["gray", "colours"])
def test_convolutions_of_bytes_and_of_numbers(name: str, depth: tuple[int, ...], tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    images = random.integers(0, 256, (12, 19, 18, *depth), dtype=np.uint8)
    labels = random.integers(0, 3, 12)
    fed = pf.Federation.from_arrays([(images, labels)] * 2, classes=3)
    same(drawn(fed, CNNS[name]), images, images, tmp_path / "bytes.onnx")
    real = images.astype(np.float32) / 255
    fed = pf.Federation.from_arrays([(real, labels)] * 2, classes=3)
    same(drawn(fed, CNNS[name]), real, real, tmp_path / "numbers.onnx")


def test_several_numbers_are_predicted(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    x = random.normal(size=(40, 2))
    fed = pf.Federation.from_arrays([(x, x @ random.normal(size=(2, 3)))] * 2)
    got = same(drawn(fed, pf.models.linear(), loss="squared"), x, x.astype("f4"), tmp_path / "m.onnx")
    assert list(got) == ["prediction_0", "prediction_1", "prediction_2"]


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    fed = pf.Federation.from_dataframe(raw(), client="site", target="died", prepare=True)
    drawn(fed, pf.models.linear()).export(tmp_path / "model.onnx")
    about = {prop.key: json.loads(prop.value) for prop in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert about == {"labels": ["no", "yes"], "client": "a", "loss": "softmax", "polyfed": pf.__version__}


def test_what_cannot_be_written_is_refused_in_a_sentence(tmp_path: Path) -> None:
    x = np.arange(12.0).reshape(6, 2)
    made = drawn(pf.Federation.from_arrays([(x, np.arange(6) % 2)], classes=2), pf.models.linear())
    with pytest.raises(PolyfedError, match=r"model\.pt: expected a name that ends in \.onnx or, for any"):
        made.export(tmp_path / "model.pt")
    tokens = np.random.default_rng(0).integers(0, 5, (10, 4))
    lstm = drawn(pf.Federation.from_arrays([(tokens, tokens[:, 0])], classes=5), pf.models.lstm(2, 3))
    with pytest.raises(PolyfedError, match=r"does not fit into ONNX; a name that ends in \.jax"):
        lstm.export(tmp_path / "model.onnx")
    images = np.zeros((6, 8, 8)) + np.arange(6)[:, None, None]
    fed = pf.Federation.from_arrays([(images, np.arange(6) % 2)], classes=2)
    with pytest.raises(PolyfedError, match="convolutions in float64 do not fit into ONNX"):
        drawn(fed, pf.models.cnn(channels=[2], hidden=[3]), dtype="float64").export(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
