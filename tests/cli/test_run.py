"""`polyfed run`: its files, stops and resumptions, and what it refuses."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.cli.command import CONFIG, metrics, models, newest_checkpoint, polyfed, polyfed_process, start_polyfed


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the small config, which tests copy."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "small.toml").write_text(CONFIG)
    polyfed("run", "small.toml", "-q", cwd=folder)
    return folder / "runs" / "small"


@pytest.fixture
def earlier(finished: Path, tmp_path: Path) -> Path:
    """The run that the small config left in this test's folder."""
    return shutil.copytree(finished, tmp_path / "runs" / "small")


def test_a_run_leaves_all_its_files(config: Path, tmp_path: Path) -> None:
    more = ("--set", "run.alone=true", "--set", "run.finetune_steps=10")
    done = polyfed("run", "small.toml", *more, cwd=tmp_path)
    run = tmp_path / "runs" / "small"
    assert "scaffold" in done.stdout
    assert str(Path("runs/small/report.html")) in done.stdout
    assert [row["round"] for row in metrics(run)] == [0, 4, 8, 12]
    resolved = tomllib.loads((run / "config.toml").read_text())
    assert resolved["algorithm"]["option"] == "II"
    assert resolved["problem"]["loss"] == "softmax"
    assert resolved["run"]["finetune_steps"] == 10
    summary = json.loads((run / "summary.json").read_text())
    assert summary["bits_up"] == 12 * 3 * 2 * 610 * 32
    assert summary["rounds"] == 12
    with (run / "clients.csv").open() as file:
        clients = list(csv.DictReader(file))
    assert len(clients) == 6
    for model in ("global", "personal", "alone", "finetuned"):
        for split in ("train", "validation", "test"):
            assert all(0 <= float(row[f"{model}_{split}_accuracy"]) <= 1 for row in clients)
    assert load_file(run / "models" / "global.safetensors")["w"].shape == (60, 10)
    assert not (run / "models" / "personal.safetensors").exists()
    assert "<html" in (run / "report.html").read_text()[:200]


def test_a_resolved_config_runs_again_to_the_same_numbers(earlier: Path, tmp_path: Path) -> None:
    polyfed("run", "runs/small/config.toml", "-q", "--out", "two", cwd=tmp_path)
    assert metrics(earlier) == metrics(tmp_path / "two")
    assert models(earlier) == models(tmp_path / "two")


def test_an_existing_run_is_not_written_over_by_accident(config: Path, earlier: Path, tmp_path: Path) -> None:
    before = (tmp_path / "runs/small/summary.json").read_text()
    refused = polyfed("run", "small.toml", cwd=tmp_path, check=2)
    assert "there is a run already; use --resume, --overwrite or another --out" in refused.stderr
    assert (tmp_path / "runs/small/summary.json").read_text() == before
    polyfed("run", "small.toml", "-q", "--overwrite", "--set", "run.seed=5", cwd=tmp_path)
    assert json.loads((tmp_path / "runs/small/summary.json").read_text())["seed"] == 5


def test_overwriting_leaves_nothing_of_the_old_run(config: Path, tmp_path: Path) -> None:
    polyfed("run", "small.toml", "-q", "--set", "algorithm.name=local", "--set", "run.rounds=2", cwd=tmp_path)
    assert (tmp_path / "runs/small/models/personal.safetensors").exists()
    polyfed("run", "small.toml", "-q", "--overwrite", "--set", "run.rounds=2", cwd=tmp_path)
    left = {path.name for path in (tmp_path / "runs/small/models").iterdir()}
    assert left == {"global.safetensors", "model.json"}


def test_a_refused_run_leaves_no_folder(config: Path, tmp_path: Path) -> None:
    refused = polyfed("run", "small.toml", "--set", "run.participation=99", cwd=tmp_path, check=2)
    assert "small.toml: participation: found 99 clients a round, expected 1 to 6" in " ".join(refused.stderr.split())
    assert not (tmp_path / "runs").exists()


def test_json_is_all_that_json_prints_and_quiet_prints_nothing(config: Path, tmp_path: Path) -> None:
    printed = json.loads(polyfed("run", "small.toml", "--json", "--set", "run.rounds=2", cwd=tmp_path).stdout)
    assert printed["runs"][0]["rounds"] == 2
    quiet = polyfed("run", "small.toml", "--quiet", "--overwrite", cwd=tmp_path)
    assert quiet.stdout == ""


@pytest.mark.full
def test_kill_9_at_any_moment_and_resume_to_the_same_bits(config: Path, tmp_path: Path) -> None:
    long = ["--set", "run.rounds=3000", "--set", "run.eval_every=50", "--set", "run.checkpoint_every=20"]
    polyfed_process("run", "small.toml", "-q", "--out", "whole", *long, cwd=tmp_path)
    cut_run = ("run", "small.toml", "-q", "--out", "cut", "--resume", *long)
    killed = 0
    for pause in (0.0, 0.13, 0.4):
        with start_polyfed(*cut_run, cwd=tmp_path) as process:
            begun = newest_checkpoint(tmp_path / "cut")
            deadline = time.monotonic() + 120
            while newest_checkpoint(tmp_path / "cut") == begun and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(pause)
            process.send_signal(signal.SIGKILL)
        killed += process.returncode == -signal.SIGKILL
    assert killed == 3
    assert 0 < newest_checkpoint(tmp_path / "cut") < 3000
    assert not (tmp_path / "cut" / "summary.json").exists()
    polyfed_process(*cut_run, cwd=tmp_path)
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
    assert models(tmp_path / "cut") == models(tmp_path / "whole")
    assert (tmp_path / "cut/clients.csv").read_text() == (tmp_path / "whole/clients.csv").read_text()


def test_ctrl_c_writes_a_checkpoint_and_says_how_to_go_on(config: Path, tmp_path: Path) -> None:
    endless = ("--set", "run.rounds=200000", "--set", "run.checkpoint_every=1000000")
    with start_polyfed("run", "small.toml", *endless, cwd=tmp_path) as process:
        history = tmp_path / "runs/small/metrics.jsonl"
        deadline = time.monotonic() + 120
        while not (history.exists() and history.read_text().count("\n") > 3) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "--resume goes on from there" in errors
    assert "Traceback" not in errors
    assert newest_checkpoint(tmp_path / "runs/small") > 0


def test_a_checkpoint_of_another_config_is_refused(config: Path, earlier: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in earlier.rglob("*") if path.is_file()}
    options = ("--resume", "--set", "run.rounds=20")
    refused = polyfed("run", "small.toml", *options, "--set", "algorithm.lr=0.01", cwd=tmp_path, check=2)
    assert "of another run: algorithm.lr was 0.05, now it is 0.01" in " ".join(refused.stderr.split())
    assert {path: path.read_bytes() for path in earlier.rglob("*") if path.is_file()} == before
    polyfed("run", "small.toml", "-q", *options, cwd=tmp_path)
    assert [row["round"] for row in metrics(tmp_path / "runs/small")] == [0, 4, 8, 12, 16, 20]


QUICK = '[algorithm]\nname = "fedavg"\n[run]\nrounds = 5\neval_every = 5\nalone = false\nfinetune_steps = 0\n'


def test_own_data_in_a_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["hospital,age,dose,y"]
    for hospital in ("north", "south", "07"):
        for _ in range(30):
            age, dose = rng.normal(size=2)
            lines.append(f"{hospital},{age:.4f},{dose:.4f},{'yes' if age + dose > 0 else 'no'}")
    (tmp_path / "patients.csv").write_text("\n".join(lines))
    data = '[data]\nsource = "csv"\npath = "patients.csv"\nclient = "hospital"\ntarget = "y"\n'
    (tmp_path / "own.toml").write_text(data + QUICK)
    info = polyfed("data", "info", "own.toml", cwd=tmp_path)
    assert "north" in info.stdout
    polyfed("run", "own.toml", "-q", cwd=tmp_path)
    with (tmp_path / "runs/own/clients.csv").open() as file:
        assert {row["client"] for row in csv.DictReader(file)} == {"north", "south", "07"}
    lines[40] = "south,nan,1.0,yes"
    (tmp_path / "patients.csv").write_text("\n".join(lines))
    refused = polyfed("run", "own.toml", "--overwrite", "--set", "data.prepare=false", cwd=tmp_path, check=2)
    assert "age" in refused.stderr
    assert "Traceback" not in refused.stderr
    changes = ("--set", "data.columns.dose.kind=category", "--set", "data.columns.dose.missing=[-9]")
    polyfed("data", "info", "own.toml", *changes, cwd=tmp_path)
    polyfed("run", "own.toml", "-q", "--overwrite", "--set", "data.columns.age.fill=0", cwd=tmp_path)
    kept = tomllib.loads((tmp_path / "runs/own/config.toml").read_text())["data"]["columns"]
    assert kept == {"age": {"fill": 0}}


@pytest.mark.full
def test_explicit_mixtures_from_a_config(config: Path, tmp_path: Path) -> None:
    small = CONFIG.replace("sizes = 40", "sizes = 40\nfeatures = 8\nclasses = 3").replace("l2 = 0.001", "l2 = 0.01")
    text = small.replace('name = "scaffold"', 'name = "scafflix"\nalpha = 0.3').replace("local_steps = 4\n", "")
    (tmp_path / "mix.toml").write_text(text.replace("lr = 0.05", "p = 0.2").replace("batch = 8", 'batch = "full"'))
    polyfed("run", "mix.toml", "-q", cwd=tmp_path)
    with (tmp_path / "runs/mix/clients.csv").open() as file:
        assert {round(float(row["own_share"]), 6) for row in csv.DictReader(file)} == {0.7}
    assert (tmp_path / "runs/mix/models/personal.safetensors").exists()
    done = polyfed("run", "mix.toml", "--overwrite", "-q", "--set", "algorithm.lr=9.0", cwd=tmp_path, check=None)
    assert "is above" in done.stderr
    assert "Theorem 1 allows" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
