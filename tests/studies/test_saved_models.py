"""Using a model: scores of new rows are those of the simulated model, and what is damaged is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import polyfed as pf
from polyfed.core.errors import PolyfedError
from polyfed.engine.result import Result
from polyfed.studies.config import Config, make_config
from polyfed.studies.experiment import Options, run
from polyfed.studies.predicting import predict_file
from polyfed.studies.saved_models import load
from tests.cli import command
from tests.data.tables.test_preparation import raw
from tests.export.test_onnx import run as run_onnx

Row = dict[str, Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with the raw table, and finished runs of three methods on it."""
    folder = tmp_path_factory.mktemp("models")
    raw().to_csv(folder / "visits.csv", index=False)
    for name in METHODS:
        run(config(folder, name), folder / name, Options(say=lambda _: None))
    return folder


METHODS: dict[str, Row] = {
    "apfl": {"name": "apfl", "lr": 0.1},
    "tuned": {"name": "fedavg", "lr": 0.1, "finetune": True},
    "fedavg": {"name": "fedavg", "lr": 0.1},
}


def config(folder: Path, name: str) -> Config:
    data = {"source": "csv", "path": str(folder / "visits.csv"), "client": "site", "target": "died"}
    settings = {"rounds": 3, "eval_every": 3, "finetune_steps": 4, "alone": False}
    return make_config({"data": data, "algorithm": METHODS[name], "run": settings, "problem": {"l2": 0.01}})


def simulated(folder: Path, name: str) -> Result:
    made = config(folder, name)
    return pf.simulate(made.problem, made.methods[0].algorithm, rounds=3, eval_every=3)


def held_out() -> list[np.ndarray]:
    """Where every client's test rows are in the table; found again through a table that numbers its rows."""
    df = raw()
    numbered = pf.Federation.from_dataframe(
        df.assign(place=np.arange(len(df)))[["site", "place", "died"]], client="site", target="died"
    )
    return [numbered.test.of(i)[0][:, 0].astype(int) for i in range(len(numbered))]


@pytest.mark.parametrize("name", METHODS)
def test_scores_of_raw_rows_are_those_of_the_simulated_model(place: Path, name: str) -> None:
    result, models = simulated(place, name), load(place / name)
    finetune = config(place, name).finetune(result.algorithm) if name == "tuned" else None
    which = "finetuned" if name == "tuned" else "personal"
    df = raw().drop(columns="died")
    for block in result.simulation.scores("test", finetune):
        for i, client in enumerate(block.clients.tolist()):
            rows = df.iloc[held_out()[client]]
            expected = block.scores[which][i]
            saved = models.predict(models.clients[client], rows[rows.columns[::-1]])
            np.testing.assert_allclose(saved.probability, expected, atol=1e-6)
            assert saved.prediction.tolist() == np.where(expected > 0.5, "yes", "no").tolist()
            assert list(saved.columns) == [*df.columns[::-1], "prediction", "probability"]
            if name != "tuned":
                direct = result.predict(models.clients[client], rows)
                np.testing.assert_allclose(direct.probability, expected, atol=1e-6)


def test_clients_deploy_models_of_their_own_where_the_method_says_so(place: Path) -> None:
    rows = raw()[:5].drop(columns="died")
    for name, differ in (("apfl", True), ("tuned", True), ("fedavg", False)):
        models = load(place / name)
        north, shared = models.predict("north", rows).probability, models.predict(None, rows).probability
        assert bool(np.max(np.abs(north - shared)) > 1e-6) is differ


def test_unseen_categories_and_missing_values_are_scored(place: Path) -> None:
    models = load(place / "apfl")
    odd = pd.DataFrame({"age": [np.nan], "sbp": ["high"], "ward": ["unheard of"], "smoker": [None], "seen": ["soon"]})
    with pytest.warns(UserWarning, match="count as missing") as told:
        scored = models.predict("north", odd)
    assert [str(warning.message) for warning in told] == [
        "column 'sbp': 1 of 1 cells cannot be read as a number; they count as missing",
        "column 'seen': 1 of 1 cells cannot be read as a date; they count as missing",
    ]
    assert 0 < scored.probability[0] < 1
    preparation = models.preparation
    assert preparation is not None
    names, features = preparation.feature_names, preparation.apply(odd)[0]
    weights = models.personal("north")
    logits = features @ np.asarray(weights["w"], np.float64) + np.asarray(weights["b"], np.float64)
    assert names[int(np.flatnonzero(features == 1)[0])] == "age missing"
    assert scored.probability[0] == pytest.approx(1 / (1 + np.exp(logits[0] - logits[1])), abs=1e-6)


def test_a_column_that_the_client_had_is_asked_for_by_name(place: Path) -> None:
    models = load(place / "apfl")
    rows = raw().drop(columns=["sbp", "died"])
    assert len(models.predict("west", rows)) == len(rows)
    with pytest.raises(PolyfedError, match="there is no column 'sbp', which site 'north' had in training"):
        models.predict("north", rows)
    with pytest.raises(PolyfedError, match="there is no client 'nort'; did you mean 'north'"):
        models.predict("nort", rows)
    with pytest.raises(PolyfedError, match="a column 'prediction' already"):
        models.predict("west", rows.assign(prediction=1))
    with pytest.raises(PolyfedError, match="give a DataFrame"):
        models.predict("west", np.zeros((2, 3)))


def test_what_is_damaged_or_of_another_version_is_refused_by_name(place: Path, tmp_path: Path) -> None:
    def copy(name: str, change) -> Path:
        import shutil

        made = tmp_path / name
        shutil.copytree(place / "apfl", made)
        change(made / "models")
        return made

    def edit(key: str, value: object):
        def change(models: Path) -> None:
            about = json.loads((models / "model.json").read_text())
            about[key] = value
            (models / "model.json").write_text(json.dumps(about))

        return change

    def flip(models: Path) -> None:
        content = bytearray((models / "personal.safetensors").read_bytes())
        content[-1] ^= 1
        (models / "personal.safetensors").write_bytes(content)

    with pytest.raises(PolyfedError, match=r"model\.json: format 2 of polyfed .*, this version reads 1"):
        load(copy("other", edit("format", 2)))
    with pytest.raises(PolyfedError, match=r"model\.json: damaged"):
        load(copy("edited", edit("labels", ["yes", "no"])))
    with pytest.raises(PolyfedError, match=r"model\.json: cannot be read as a saved model"):
        load(copy("cut", lambda models: (models / "model.json").write_text('{"format": 1')))
    flipped = load(copy("flipped", flip))
    with pytest.raises(PolyfedError, match=r"personal\.safetensors: damaged"):
        flipped.predict("north", raw())
    gone = load(copy("gone", lambda models: (models / "personal.safetensors").unlink()))
    with pytest.raises(PolyfedError, match=r"personal\.safetensors: no such file"):
        gone.predict("north", raw())
    with pytest.raises(PolyfedError, match=r"no models/model\.json"):
        load(copy("without", lambda models: (models / "model.json").unlink()))
    with pytest.raises(PolyfedError, match="a folder of runs, expected one of them"):
        load(place)


def test_the_command_keeps_the_cells_as_they_were_written(place: Path, tmp_path: Path) -> None:
    header = "ward;age;seen;smoker;sbp;bed"
    (tmp_path / "rows.csv").write_text(f"{header}\nA;040,50;2019-03-01 10:00;yes;130,0;007\nQ;;;no;;008\n")
    done = command.polyfed(
        "predict", str(place / "apfl"), "rows.csv", "--client", "north", "-o", "scored.csv", cwd=tmp_path
    )
    assert "2 rows scored: scored.csv" in done.stderr
    lines = (tmp_path / "scored.csv").read_text().splitlines()
    assert lines[0] == f"{header};prediction;probability"
    assert lines[1].startswith("A;040,50;2019-03-01 10:00;yes;130,0;007;")
    rows = pd.DataFrame(
        {"ward": ["A", "Q"], "age": [40.5, None], "seen": ["2019-03-01 10:00", None], "smoker": ["yes", "no"]}
    ).assign(sbp=[130.0, None])
    expected = load(place / "apfl").predict("north", rows)
    np.testing.assert_allclose([float(line.split(";")[-1]) for line in lines[1:]], expected.probability, atol=1e-6)


def test_a_label_that_looks_like_a_formula_is_none_in_scored_files(tmp_path: Path) -> None:
    """Labels may be other sites' words. What stood in a CSV before stays as it was."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"site": ["a", "b"] * 30, "x": rng.normal(size=60)})
    table["y"] = np.where(table.x > 0, "=HYPERLINK(1)", "no")
    table.to_csv(tmp_path / "rows.csv", index=False)
    data = {"source": "csv", "path": str(tmp_path / "rows.csv"), "client": "site", "target": "y"}
    settings = {"rounds": 1, "eval_every": 1, "alone": False}
    made = make_config({"data": data, "algorithm": METHODS["fedavg"], "run": settings})
    run(made, tmp_path / "run", Options(say=lambda _: None))
    fresh = pd.DataFrame({"x": [-3.0, 3.0], "note": ["=own", "-"]})
    fresh.to_csv(tmp_path / "fresh.csv", index=False)
    fresh.to_parquet(tmp_path / "fresh.parquet")
    for name, note in (("fresh.csv", "=own"), ("fresh.parquet", "'=own")):
        scored = predict_file(tmp_path / "run", tmp_path / name, None, shared=True)
        scored.write(tmp_path / "scored.csv")
        written = pd.read_csv(tmp_path / "scored.csv", dtype="str")
        assert scored.as_csv() == (tmp_path / "scored.csv").read_text()
        assert sorted({*written.prediction, *load(tmp_path / "run").predict(None, fresh).prediction}) == [
            "'=HYPERLINK(1)",
            "=HYPERLINK(1)",
            "no",
        ]
        assert written.note[0] == note


def test_a_file_without_rows_has_no_scores_and_a_row_with_too_many_cells_is_refused(
    place: Path, tmp_path: Path
) -> None:
    header = ",".join(raw().columns)
    for text, options in ((header, ["--client", "north"]), (header, [])):
        (tmp_path / "rows.csv").write_text(text + "\n")
        done = command.polyfed("predict", str(place / "apfl"), "rows.csv", *options, cwd=tmp_path)
        assert done.stdout == f"{header},prediction,probability\n"
    (tmp_path / "rows.csv").write_text(f"{header}\n{',' * header.count(',')},3\n")
    done = command.polyfed("predict", str(place / "apfl"), "rows.csv", "--client", "north", cwd=tmp_path, check=2)
    assert "rows.csv: a row has more cells than the first line has names" in done.stderr
    (tmp_path / "rows.csv").write_text("age,sbp,ward,smoker,seen\n40,130,A,yes,01.02.2019\n")
    done = command.polyfed("predict", str(place / "apfl"), "rows.csv", "--client", "north", cwd=tmp_path)
    assert "warning: column 'seen': 1 of 1 cells cannot be read as a date; they count as missing" in done.stderr


def test_without_a_client_each_row_is_scored_by_its_own(place: Path, tmp_path: Path) -> None:
    df = raw()[:9].drop(columns="died")
    df.to_parquet(tmp_path / "rows.parquet")
    command.polyfed("predict", str(place / "apfl"), "rows.parquet", "-o", "scored.parquet", cwd=tmp_path)
    scored, models = pd.read_parquet(tmp_path / "scored.parquet"), load(place / "apfl")
    for row in range(9):
        one = models.predict(df.site[row], df.iloc[[row]])
        assert scored.probability[row] == pytest.approx(one.probability[row], abs=1e-6)
    df.drop(columns="site").to_csv(tmp_path / "rows.csv", index=False)
    done = command.polyfed("predict", str(place / "apfl"), "rows.csv", cwd=tmp_path, check=2)
    assert "rows.csv: there is no client column 'site'; say whose model, with --client or --global" in done.stderr
    both = command.polyfed(
        "predict", str(place / "apfl"), "rows.csv", "--global", "--client", "a", cwd=tmp_path, check=2
    )
    assert "--global and --client" in both.stderr


def test_newcomers_rows_are_prepared_as_the_run_was(place: Path, tmp_path: Path) -> None:
    from polyfed.studies.newcomers.files import read_newcomers

    df = raw()[:60].drop(columns=["site", "note"])
    df.to_csv(tmp_path / "east.csv", index=False)
    newcomer = read_newcomers(tmp_path / "east.csv", place / "apfl")
    preparation = load(place / "apfl").preparation
    assert newcomer.clients == ("east",)
    assert newcomer.preparation == preparation
    assert len(pf.personalize(place / "apfl", newcomer).rows) == 1


def test_several_classes_numbers_and_arrays_are_predicted_too() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 3))
    fed = pf.Federation.from_arrays([(x, random.integers(0, 3, 60)), (x, random.integers(0, 3, 60))])
    result = pf.simulate(pf.Problem(fed, pf.models.linear()), pf.algorithms.FedAvg(lr=0.1), rounds=2, eval_every=2)
    scored = result.predict("client-000", x[:4])
    assert list(scored.columns) == ["prediction", "probability_0", "probability_1", "probability_2"]
    np.testing.assert_allclose(scored.iloc[:, 1:].sum(axis=1), 1)
    logits = x[:4] @ result.personal("client-000")["w"] + result.personal("client-000")["b"]
    assert scored.prediction.tolist() == logits.argmax(axis=1).tolist()
    with pytest.raises(PolyfedError, match=r"the rows have shape \(4, 2\)"):
        result.predict("client-000", x[:4, :2])
    with pytest.raises(PolyfedError, match="features have no names"):
        result.predict("client-000", pd.DataFrame(x))
    table = pd.DataFrame(x, columns=["a", "b", "c"]).assign(site=["p", "q"] * 30, y=x @ [1.0, 2.0, 3.0])
    fed = pf.Federation.from_dataframe(table, client="site", target="y")
    result = pf.simulate(
        pf.Problem(fed, pf.models.linear(), loss="squared"), pf.algorithms.FedAvg(lr=0.1), rounds=2, eval_every=2
    )
    weights = result.personal("p")
    scored = result.predict("p", table[["c", "a", "b"]])
    np.testing.assert_allclose(scored.prediction, x @ weights["w"] + weights["b"], atol=1e-5)
    with pytest.raises(PolyfedError, match="column 'a' is missing or no number in row 1"):
        result.predict("p", pd.DataFrame({"a": [1, None], "b": [1.0, 2], "c": [1, 2]}))
    with pytest.raises(PolyfedError, match="there is no column 'c'"):
        result.predict("p", table[["a", "b"]])


@pytest.mark.parametrize(
    ("labels", "names"), [([0, 1], [0, 1]), ([-1, 1], [-1, 1]), ([1, 2], ["1", "2"]), (["a", "b"], ["a", "b"])]
)
def test_the_logistic_loss_predicts_the_labels_of_the_data(labels: list, names: list) -> None:
    x = np.linspace(-1, 1, 40)[:, None]
    y = np.array(labels)[(x[:, 0] > 0).astype(int)]
    fed = pf.Federation.from_arrays([(x, y), (x, y)])
    problem = pf.Problem(fed, pf.models.linear(bias=False), loss="logistic")
    result = pf.simulate(problem, pf.algorithms.FedAvg(lr=1.0), rounds=20, eval_every=20)
    scored = result.predict("client-000", np.array([[-0.5], [0.5]]))
    assert scored.prediction.tolist() == names
    weight = float(np.asarray(result.personal("client-000")["w"]).ravel()[0])
    np.testing.assert_allclose(scored.probability, 1 / (1 + np.exp(-weight * np.array([-0.5, 0.5]))), atol=1e-6)


def test_an_exported_file_says_what_predict_says(place: Path, tmp_path: Path) -> None:
    rows = raw().drop(columns="died")
    done = command.polyfed("export", str(place / "apfl"), "--client", "north", "north.onnx", cwd=tmp_path)
    assert "written: north.onnx" in done.stderr
    command.polyfed("export", str(place / "apfl"), "shared.onnx", "--global", cwd=tmp_path)
    models, direct = load(place / "apfl"), simulated(place, "apfl")
    for name, client in (("north", "north"), ("shared", None)):
        expected = models.predict(client, rows).probability
        np.testing.assert_allclose(run_onnx(tmp_path / f"{name}.onnx", rows)["probability"], expected, atol=1e-6)
        direct.export(tmp_path / "direct.onnx", client)
        np.testing.assert_allclose(run_onnx(tmp_path / "direct.onnx", rows)["probability"], expected, atol=1e-6)
    command.polyfed("export", str(place / "fedavg"), "--client", "west", "west.jax", cwd=tmp_path)
    assert json.loads((tmp_path / "west.jax.json").read_text())["client"] == "west"
    nobody = command.polyfed("export", str(place / "apfl"), "x.onnx", cwd=tmp_path, check=2)
    assert "which model? --client names one of north, south, west, or --global" in nobody.stderr
    wrong = command.polyfed("export", str(place / "apfl"), "x.onnx", "--client", "nort", cwd=tmp_path, check=2)
    assert "there is no client 'nort'; did you mean 'north'?" in wrong.stderr
    both = command.polyfed("export", str(place / "apfl"), "x.onnx", "--client", "a", "--global", cwd=tmp_path, check=2)
    assert "--global and --client" in both.stderr


def test_a_folder_without_models_is_refused_with_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(PolyfedError, match="no such folder, expected that of a finished run"):
        load(tmp_path / "nowhere")
    (tmp_path / "advice.json").write_text("{}")
    with pytest.raises(PolyfedError, match="an advice without its models; `polyfed advise` writes them with --resume"):
        load(tmp_path)
