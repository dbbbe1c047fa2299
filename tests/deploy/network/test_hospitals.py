"""From a raw table to scores at a site, over real processes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomlkit

import polyfed as pf
from polyfed.cli.advise import leave_project
from polyfed.deploy.from_advice import project_from_advice
from polyfed.deploy.network.processes import environment, free_port
from polyfed.deploy.project import add_site
from polyfed.deploy.settings import read_toml, server_settings, site_settings
from polyfed.studies.advice.kept_parts import KeptParts
from polyfed.studies.config import read_config
from polyfed.studies.experiment import Options, compare
from tests.cli.command import polyfed
from tests.compilation import QUICK
from tests.deploy.hospitals import SITES, hospitals

POLYFED = str(Path(sys.executable).parent / "polyfed")


@pytest.fixture
def advice(tmp_path: Path) -> Path:
    """An advice's folder: FedAvg, fine-tuned; west is to stay alone."""
    hospitals().to_csv(tmp_path / "visits.csv", index=False)
    folder = tmp_path / "advice"
    folder.mkdir()
    config = {
        "data": {"source": "csv", "path": str(tmp_path / "visits.csv"), "client": "hospital", "target": "died"},
        "problem": {"model": "mlp", "hidden": [4], "l2": 0.001},
        "run": {"rounds": 3, "dtype": "float64", "finetune_steps": 4, "finetune_lr": 0.05},
        "algorithm": {"lr": 0.1, "local_steps": 3, "batch": 20, "even": True},
        "compare": [
            {"label": "alone", "name": "local"},
            {"label": "tuned", "name": "fedavg", "finetune": True},
        ],
    }
    (folder / "config.toml").write_text(tomlkit.dumps(config))
    sites = [{"client": site, "deploy": "alone" if site == "west" else "personal"} for site in SITES]
    (folder / "advice.json").write_text(json.dumps({"method": "fine-tuned", "sites": sites}))
    return folder


def test_a_project_follows_from_an_advice_and_takes_further_sites(advice, tmp_path) -> None:
    project = tmp_path / "project"
    project_from_advice(advice, project, "127.0.0.1", 8443)
    _, run, _ = server_settings(read_toml(project / "server" / "server.toml"), "server.toml")
    assert run.sites == tuple(SITES)
    assert (run.method.name, run.rounds, run.problem["hidden"], run.problem["loss"]) == ("fedavg", 3, [4], "softmax")
    assert [run.finish.of(site) for site in SITES] == ["personal", "personal", "alone"]
    assert run.finish.finetune is not None
    assert (run.finish.finetune.steps, run.finish.finetune.lr) == (4, 0.05)
    assert run.finish.alone.name == "local"
    assert run.tables.features == ("age", "sbp", "ward", "smoker", "admitted", "lactate")
    settings = site_settings(project / "north")
    assert settings.data["target"] == "died"
    assert Path(settings.data["path"]).name == "data.csv"
    add_site(project, "east")
    federation, _, _ = server_settings(read_toml(project / "server" / "server.toml"), "server.toml")
    assert federation.sites == (*SITES, "east")
    assert site_settings(project / "east").server == "127.0.0.1:8443"
    with pytest.raises(pf.PolyfedError, match="cannot add the site 'east'"):
        add_site(project, "east")
    told = json.loads((advice / "advice.json").read_text())
    (advice / "advice.json").write_text(json.dumps(told | {"method": "alone"}))
    with pytest.raises(pf.PolyfedError, match=r"every site is to use its own model.*: stay alone$"):
        project_from_advice(advice, tmp_path / "other", "127.0.0.1", 8443)
    with pytest.raises(pf.PolyfedError, match=r"no advice.json here"):
        project_from_advice(tmp_path, tmp_path / "other", "127.0.0.1", 8443)


def test_an_advice_leaves_the_project_without_keys_and_the_next_command_makes_them(advice, tmp_path) -> None:
    federation = read_config(advice / "config.toml").federation
    assert isinstance(federation, pf.Federation)
    assert leave_project("fine-tuned", federation, advice, "csv") is None
    assert leave_project("fine-tuned", federation, advice, "csv") is None  # an advice that is resumed writes it anew
    project = advice / "deploy"
    written = {path.relative_to(project) for path in project.rglob("*") if path.is_file()}
    assert written == {Path("README.md"), Path("server/server.toml"), *(Path(site, "site.toml") for site in SITES)}
    project_from_advice(advice, tmp_path / "other", "127.0.0.1", 8443)
    for path in written - {Path("README.md")}:
        assert tomllib.loads((project / path).read_text()) == tomllib.loads((tmp_path / "other" / path).read_text())
    done = polyfed("deploy", "init", str(project), "--host", "fed.example.org", cwd=tmp_path, check=None)
    assert done.returncode == 0, done.stderr
    for site in SITES:
        assert site_settings(project / site).server == "fed.example.org:8443"
        assert (project / site / f"{site}.pem").is_file()
    assert leave_project("fine-tuned", federation, advice, "csv") is None  # one that has keys stays as it is
    assert site_settings(project / "west").server == "fed.example.org:8443"
    with pytest.raises(pf.PolyfedError, match="deploy: has keys, so it may be in use"):
        KeptParts.begin(advice, "other rows", resume=False)
    assert (advice / "advice.json").exists()
    names = pf.Federation.from_arrays({name: (np.zeros((4, 1)), [0, 1, 0, 1]) for name in ("a/b", "c")})
    shutil.rmtree(project)
    for method, source in (("alone", "csv"), ("global", "digits")):
        assert leave_project(method, names, advice, source) is None
    assert not project.exists()


def test_sites_whose_names_no_folder_can_have_are_deployed_under_like_ones(advice, tmp_path) -> None:
    """Their rows are theirs all the same, and so is what they are told to deploy."""
    table = hospitals().replace({"hospital": {"west": "St. Mary's / west"}})
    table.to_csv(tmp_path / "visits.csv", index=False)
    told = json.loads((advice / "advice.json").read_text())
    told["sites"] = [site | {"client": site["client"].replace("west", "St. Mary's / west")} for site in told["sites"]]
    (advice / "advice.json").write_text(json.dumps(told))
    project_from_advice(advice, tmp_path / "project", "127.0.0.1", 8443, with_rows=True)
    _, run, _ = server_settings(read_toml(tmp_path / "project" / "server" / "server.toml"), "server.toml")
    assert set(run.sites) == {"north", "south", "St. Mary-s - west"}
    assert run.finish.of("St. Mary-s - west") == "alone"
    rows = pd.read_csv(tmp_path / "project" / "St. Mary-s - west" / "data.csv")
    assert len(rows) == (table.hospital == "St. Mary's / west").sum()
    assert "| St. Mary's / west | `St. Mary-s - west/` |" in (tmp_path / "project" / "README.md").read_text()


def test_a_folder_with_a_file_per_site_becomes_a_project_too(advice, tmp_path) -> None:
    config = tomlkit.parse((advice / "config.toml").read_text()).unwrap()
    (tmp_path / "files").mkdir()
    for site, rows in hospitals().groupby("hospital"):
        own = rows.drop(columns="hospital")
        if site == "south":
            own.to_parquet(tmp_path / "files" / "south.parquet")
        else:
            own.to_csv(tmp_path / "files" / f"{site}.csv", index=False, sep=";", decimal=",")
    config["data"] = {"source": "folder", "path": str(tmp_path / "files"), "target": "died"}
    (advice / "config.toml").write_text(tomlkit.dumps(config))
    project = tmp_path / "project"
    project_from_advice(advice, project, "127.0.0.1", 8443, with_rows=True)
    rows = {site: site_settings(project / site).site().training_rows for site in SITES}
    simulated = read_config(advice / "config.toml").federation
    assert isinstance(simulated, pf.Federation)
    assert rows == dict(zip(simulated.clients, simulated.train.sizes, strict=True))


def test_a_newcomer_needs_no_key(tmp_path) -> None:
    (tmp_path / "site.toml").write_text(
        '[site]\nname = "east"\n[data]\nsource = "csv"\npath = "rows.csv"\ntarget = "y"\n'
    )
    assert site_settings(tmp_path, connects=False).name == "east"
    with pytest.raises(pf.PolyfedError, match=r"site.server must be a word"):
        site_settings(tmp_path)


@pytest.mark.deploy
def test_three_hospitals_with_raw_tables_score_new_rows_as_the_simulated_models_do(advice, tmp_path) -> None:
    project = tmp_path / "project"
    project_from_advice(advice, project, "127.0.0.1", free_port(), with_rows=True)
    assert "lactate" not in (project / "west" / "data.csv").read_text().splitlines()[0]
    command = [POLYFED, "deploy", "up", str(project)]
    env = environment(project / "flower", XLA_FLAGS=QUICK)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = compare(read_config(advice / "config.toml"), tmp_path / "simulated", Options(say=lambda _: None))
    results = {run.label: pf.load(run.path) for run in runs}
    fresh = hospitals(110).drop(columns="died")
    for site in SITES:
        rows = fresh[fresh.hospital == site].drop(columns="hospital").tail(30)
        path, out = tmp_path / f"{site}.csv", tmp_path / f"{site}-scored.csv"
        rows.to_csv(path, index=False)
        scoring = [POLYFED, "predict", str(project / site), str(path), "-o", str(out)]
        done = subprocess.run(scoring, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        told = results["alone" if site == "west" else "tuned"].predict(site, rows)
        np.testing.assert_allclose(pd.read_csv(out).probability, told.probability, atol=1e-6)
        assert site in (project / site / "models" / "study" / "report.html").read_text()
