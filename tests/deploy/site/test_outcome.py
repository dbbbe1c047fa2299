"""What a site has when a run has ended: models that score rows, a page of its own, and what the server is told."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import polyfed as pf
from polyfed.cli.main import app
from polyfed.deploy.settings import site_rows
from polyfed.engine.finetuned import finetuned_blocks
from polyfed.engine.measure import FineTune
from polyfed.engine.simulation import Simulation
from polyfed.problem.prediction import Predictor
from polyfed.studies.predicting import predict_file
from tests.deploy.expected import simulated_on
from tests.deploy.hospitals import COLUMNS, SITES, hospitals, write_site_tables
from tests.deploy.loopback import Loopback
from tests.export.test_onnx import run as run_onnx

FEDAVG = {"name": "fedavg", "lr": 0.1, "local_steps": 3, "batch": 16}
LOCAL = {"name": "local", "lr": 0.2, "local_steps": 3, "batch": 16}
TUNE = FineTune(4, 0.05, 16)
ROUNDS = 3


@pytest.fixture(scope="module")
def ended(tmp_path_factory) -> Loopback:
    """A run after which north has the fine-tuned model, south the global one, and west its own."""
    folder = tmp_path_factory.mktemp("hospitals")
    files = write_site_tables(hospitals(), folder)
    section: dict[str, Any] = {"source": "csv", "target": "died"}
    sites = {name: site_rows(name, {**section, "path": str(file)}, {}) for name, file in files.items()}
    grid = Loopback(sites, folder / "run", measure=True, metrics=True)
    grid.sites["south"].allow = type(grid.sites["south"].allow)(metrics=False)
    deploy = {
        "sites": {"south": "global", "west": "alone"},
        "finetune_steps": TUNE.steps,
        "finetune_lr": TUNE.lr,
        "finetune_batch": TUNE.batch,
        "alone": {key: value for key, value in LOCAL.items() if key != "name"},
    }
    problem = {"loss": "logistic", "class_weight": "balanced"}
    grid.serve(FEDAVG, {"rounds": ROUNDS}, problem=problem, data={"features": COLUMNS}, deploy=deploy)
    for name in SITES:
        (grid.folder / name / "site.toml").write_text("")
    return grid


@pytest.fixture(scope="module")
def expected() -> dict[str, tuple[Simulation, Any]]:
    """By site: the simulation, and the model that the site deploys."""
    frame = hospitals().fillna({"ward": np.nan})
    whole = pf.Federation.from_dataframe(frame, client="hospital", target="died", prepare=None)
    shared = simulated_on(whole, FEDAVG, ROUNDS, "logistic", "balanced")
    alone = simulated_on(whole, LOCAL, ROUNDS, "logistic", "balanced")
    tuned = list(finetuned_blocks(shared, TUNE))
    north = {key: value[0] for key, value in tuned[0].items()}
    return {"north": (shared, north), "south": (shared, shared.global_params), "west": (alone, alone.personal(2))}


@pytest.mark.parametrize("site", SITES)
def test_a_site_scores_new_rows_as_the_simulated_model_does(ended, expected, tmp_path, site) -> None:
    fresh = hospitals(120)[lambda table: table.hospital == site].drop(columns=["hospital", "died"]).tail(40)
    fresh = fresh.drop(columns="lactate") if site == "west" else fresh
    fresh.iloc[0, fresh.columns.get_loc("ward")] = "never seen"
    fresh.to_csv(tmp_path / "rows.csv", index=False)
    out = tmp_path / "scored.csv"
    done = CliRunner().invoke(app, ["predict", str(ended.folder / site), str(tmp_path / "rows.csv"), "-o", str(out)])
    assert done.exit_code == 0, done.output
    simulation, params = expected[site]
    told = Predictor.of(simulation.problem, "float64").predict(params, fresh, site)
    scored = pd.read_csv(out)
    np.testing.assert_allclose(scored.probability, told.probability, atol=1e-6)
    assert scored.prediction.tolist() == told.prediction.tolist()
    assert set(scored.prediction) <= {"yes", "no"}
    file = tmp_path / f"{site}.onnx"
    done = CliRunner().invoke(app, ["export", str(ended.folder / site), str(file)])
    assert done.exit_code == 0, done.output
    given: Any = fresh if "lactate" in fresh else fresh.assign(lactate=np.nan)
    elsewhere = run_onnx(file, given)
    np.testing.assert_allclose(elsewhere["probability"], told.probability, atol=1e-12)


def test_each_site_ends_with_a_page_of_its_own_and_tells_the_server_only_if_it_may(ended, expected, tmp_path) -> None:
    outcome = json.loads((ended.folder / "north" / "models" / "study" / "outcome.json").read_text())
    found = {model["model"]: model for model in outcome["models"]}
    assert set(found) == {"personal", "global", "alone", "constant"}
    assert found["constant"]["value"] == 0.5
    shared, north = expected["north"]
    rows = shared.problem.federation.test
    own = slice(0, int(rows.offsets[1]))
    scores = Predictor.of(shared.problem, "float64").outputs(north, rows.x[own])
    positive = scores[shared.problem.targets(0, "test") > 0][:, None]
    negative = scores[shared.problem.targets(0, "test") <= 0][None, :]
    auc = np.mean((positive > negative) + 0.5 * (positive == negative))
    assert found["personal"]["value"] == pytest.approx(auc, abs=1e-12)
    gain = found["personal"]["value"] - found["alone"]["value"]
    assert found["personal"]["gain"] == pytest.approx(gain, abs=1e-12)
    assert found["personal"]["gain_low"] < gain < found["personal"]["gain_high"]
    for name in SITES:
        page = (ended.folder / name / "models" / "study" / "report.html").read_text()
        assert name in page
        assert not any(other in page for other in SITES if other != name)
    told = json.loads((ended.run_folder / "outcomes.json").read_text())
    assert set(told) == {"north", "west"}
    page = (ended.run_folder / "report.html").read_text()
    assert "west deploys the alone model" in page
    assert "south" not in page
    out = tmp_path / "page.html"
    for place in (ended.folder / "server", ended.run_folder):
        done = CliRunner().invoke(app, ["report", str(place), "-o", str(out)])
        assert done.exit_code == 0, done.output
        assert "west deploys the alone model" in out.read_text()


def test_a_damaged_model_and_a_site_without_one_are_refused_by_name(ended, tmp_path) -> None:
    rows = tmp_path / "rows.csv"
    hospitals().drop(columns="died").to_csv(rows, index=False)
    (tmp_path / "site.toml").write_text("")
    with pytest.raises(pf.PolyfedError, match="no run has ended at this site yet"):
        predict_file(tmp_path, rows, None)
    weights = ended.folder / "south" / "models" / "study" / "global.safetensors"
    before = weights.read_bytes()
    weights.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    try:
        with pytest.raises(pf.PolyfedError, match=r"global.safetensors: damaged"):
            predict_file(ended.folder / "south", rows, None)
    finally:
        weights.write_bytes(before)
