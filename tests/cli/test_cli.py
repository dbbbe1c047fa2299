"""The command line through its real entry point: a process of its own for each call."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

CONFIG = """
[data]
source = "synthetic"
clients = 6
sizes = 40
seed = 3

[problem]
l2 = 0.001

[algorithm]
name = "scaffold"
lr = 0.05
local_steps = 4
batch = 8

[run]
rounds = 12
participation = 0.5
eval_every = 4
checkpoint_every = 3
"""
COMPARE = (
    CONFIG.replace('name = "scaffold"\n', "")
    + """
seeds = [0, 1]

[[compare]]
name = "local"
label = "Alone"

[[compare]]
name = "fedavg"

[[compare]]
name = "fedavg"
label = "FedAvg & <tuning>"
finetune = true
"""
)


def polyfed(*arguments: str, cwd: Path, check: int | None = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "polyfed", *arguments]
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert check is None or done.returncode == check, done.stdout + done.stderr
    return done


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(CONFIG)
    return tmp_path / "small.toml"


def metrics(run: Path) -> list[dict]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def models(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "models").iterdir()}


def test_a_run_leaves_all_its_files(config: Path, tmp_path: Path) -> None:
    done = polyfed("run", "small.toml", cwd=tmp_path)
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


def test_a_resolved_config_runs_again_to_the_same_numbers(config: Path, tmp_path: Path) -> None:
    polyfed("run", "small.toml", "-q", "--out", "one", cwd=tmp_path)
    polyfed("run", "one/config.toml", "-q", "--out", "two", cwd=tmp_path)
    assert metrics(tmp_path / "one") == metrics(tmp_path / "two")
    assert models(tmp_path / "one") == models(tmp_path / "two")


def test_an_existing_run_is_not_written_over_by_accident(config: Path, tmp_path: Path) -> None:
    polyfed("run", "small.toml", "-q", cwd=tmp_path)
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
    assert [path.name for path in (tmp_path / "runs/small/models").iterdir()] == ["global.safetensors"]


def test_a_refused_run_leaves_no_folder(config: Path, tmp_path: Path) -> None:
    refused = polyfed("run", "small.toml", "--set", "run.participation=99", cwd=tmp_path, check=2)
    assert "small.toml: participation: found 99 clients a round, expected 1 to 6" in " ".join(refused.stderr.split())
    assert not (tmp_path / "runs").exists()


def test_data_info_needs_no_algorithm(tmp_path: Path) -> None:
    (tmp_path / "data.toml").write_text('[data]\nsource = "digits"\nclients = 3\n')
    assert "3" in polyfed("data", "info", "data.toml", cwd=tmp_path).stdout


def test_json_is_all_that_json_prints_and_quiet_prints_nothing(config: Path, tmp_path: Path) -> None:
    found = json.loads(polyfed("run", "small.toml", "--json", "--set", "run.rounds=2", cwd=tmp_path).stdout)
    assert found["runs"][0]["rounds"] == 2
    quiet = polyfed("run", "small.toml", "--quiet", "--overwrite", cwd=tmp_path)
    assert quiet.stdout == ""


def test_compare_writes_a_table_in_three_formats(tmp_path: Path) -> None:
    (tmp_path / "three.toml").write_text(COMPARE)
    done = polyfed("compare", "three.toml", cwd=tmp_path)
    folder = tmp_path / "runs" / "three"
    assert "FedAvg & <tuning>" in done.stdout
    with (folder / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert "FedAvg \\& " in (folder / "table.tex").read_text()
    assert (folder / "table.md").read_text().count("\n|") >= 3
    runs = {path.parent.relative_to(folder).as_posix() for path in folder.rglob("summary.json")}
    assert runs == {f"{name}/seed-{seed}" for name in ("alone", "fedavg", "fedavg-tuning") for seed in (0, 1)}
    tuned = json.loads((folder / "fedavg-tuning" / "seed-0" / "summary.json").read_text())
    plain = json.loads((folder / "fedavg" / "seed-0" / "summary.json").read_text())
    alone = json.loads((folder / "alone" / "seed-0" / "summary.json").read_text())
    assert tuned["models"]["personal"] == plain["models"]["finetuned"]
    assert plain["models"]["alone"] == alone["models"]["personal"]
    assert plain["better_than_alone"] is not None
    assert alone["iterations"] == 12 * 4
    lonely = tomllib.loads((folder / "alone" / "seed-0" / "config.toml").read_text())
    assert lonely["run"]["participation"] == 1.0
    report = polyfed("report", "runs/three", "--out", "page.html", cwd=tmp_path)
    assert "page.html" in report.stdout
    assert "FedAvg &amp; &lt;tuning&gt;" in (tmp_path / "page.html").read_text()


def test_kill_9_at_any_moment_and_resume_to_the_same_bits(config: Path, tmp_path: Path) -> None:
    long = ["--set", "run.rounds=3000", "--set", "run.eval_every=50", "--set", "run.checkpoint_every=20"]
    polyfed("run", "small.toml", "-q", "--out", "whole", *long, cwd=tmp_path)
    command = [sys.executable, "-m", "polyfed", "run", "small.toml", "-q", "--out", "cut", "--resume", *long]
    killed = 0
    for pause in (0.0, 0.13, 0.4):
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
        begun = newest(tmp_path / "cut")
        deadline = time.monotonic() + 120
        while newest(tmp_path / "cut") == begun and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed == 3
    assert 0 < newest(tmp_path / "cut") < 3000
    assert not (tmp_path / "cut" / "summary.json").exists()
    polyfed("run", "small.toml", "-q", "--out", "cut", "--resume", *long, cwd=tmp_path)
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
    assert models(tmp_path / "cut") == models(tmp_path / "whole")
    cut, whole = ((tmp_path / name / "clients.csv").read_text() for name in ("cut", "whole"))
    assert cut == whole


def newest(run: Path) -> int:
    found = sorted((run / "checkpoint").glob("round-*"))
    return int(found[-1].name.removeprefix("round-")) if found else 0


def test_ctrl_c_writes_a_checkpoint_and_says_how_to_go_on(config: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "polyfed", "run", "small.toml", "--set", "run.rounds=200000"]
    command += ["--set", "run.checkpoint_every=1000000"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    history = tmp_path / "runs/small/metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (history.exists() and history.read_text().count("\n") > 3) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "--resume goes on from there" in errors
    assert "Traceback" not in errors
    assert newest(tmp_path / "runs/small") > 0


def test_a_checkpoint_of_another_config_is_refused(config: Path, tmp_path: Path) -> None:
    polyfed("run", "small.toml", "-q", cwd=tmp_path)
    before = {path: path.read_bytes() for path in (tmp_path / "runs/small").rglob("*") if path.is_file()}
    options = ("--resume", "--set", "run.rounds=20")
    refused = polyfed("run", "small.toml", *options, "--set", "algorithm.lr=0.01", cwd=tmp_path, check=2)
    assert "of another run: algorithm.lr was 0.05, now it is 0.01" in " ".join(refused.stderr.split())
    assert {path: path.read_bytes() for path in (tmp_path / "runs/small").rglob("*") if path.is_file()} == before
    polyfed("run", "small.toml", "-q", *options, cwd=tmp_path)
    assert [row["round"] for row in metrics(tmp_path / "runs/small")] == [0, 4, 8, 12, 16, 20]


def test_own_data_in_a_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["hospital,age,dose,y"]
    for hospital in ("north", "south", "07"):
        for _ in range(30):
            age, dose = rng.normal(size=2)
            lines.append(f"{hospital},{age:.4f},{dose:.4f},{'yes' if age + dose > 0 else 'no'}")
    (tmp_path / "patients.csv").write_text("\n".join(lines))
    data = '[data]\nsource = "csv"\npath = "patients.csv"\nclient = "hospital"\ntarget = "y"\n'
    (tmp_path / "own.toml").write_text(data + '[algorithm]\nname = "fedavg"\n[run]\nrounds = 5\n')
    info = polyfed("data", "info", "own.toml", cwd=tmp_path)
    assert "north" in info.stdout
    polyfed("run", "own.toml", "-q", cwd=tmp_path)
    with (tmp_path / "runs/own/clients.csv").open() as file:
        assert {row["client"] for row in csv.DictReader(file)} == {"north", "south", "07"}
    lines[40] = "south,nan,1.0,yes"
    (tmp_path / "patients.csv").write_text("\n".join(lines))
    refused = polyfed("run", "own.toml", "--overwrite", cwd=tmp_path, check=2)
    assert "age" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_explicit_mixtures_from_a_config(config: Path, tmp_path: Path) -> None:
    text = CONFIG.replace('name = "scaffold"', 'name = "scafflix"\nalpha = 0.3').replace("local_steps = 4\n", "")
    (tmp_path / "mix.toml").write_text(text.replace("lr = 0.05", "p = 0.2").replace("batch = 8", 'batch = "full"'))
    polyfed("run", "mix.toml", "-q", cwd=tmp_path)
    with (tmp_path / "runs/mix/clients.csv").open() as file:
        assert {round(float(row["own_share"]), 6) for row in csv.DictReader(file)} == {0.7}
    assert (tmp_path / "runs/mix/models/personal.safetensors").exists()
    done = polyfed("run", "mix.toml", "--overwrite", "-q", "--set", "algorithm.lr=9.0", cwd=tmp_path, check=None)
    assert "is above" in done.stderr
    assert "Theorem 1 allows" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_reproductions_are_listed_and_misspelt_ones_suggested(tmp_path: Path) -> None:
    assert "scafflix/fig1" in polyfed("reproduce", "--list", cwd=tmp_path).stdout
    assert "did you mean 'flix/fig2'" in polyfed("reproduce", "flix/figg2", cwd=tmp_path, check=2).stderr


def test_a_plan_needs_no_algorithm(tmp_path: Path) -> None:
    text = '[data]\nsource = "quadratics"\nclients = 4\ndim = 3\n[problem]\nbias = false\nl2 = 0.1\n'
    (tmp_path / "plan.toml").write_text(text)
    shown = polyfed("plan", "plan.toml", "--alpha", "0.3", "--target", "1e-5", cwd=tmp_path).stdout
    assert "condition number" in shown
    assert "Scafflix" in shown
    found = json.loads(polyfed("plan", "plan.toml", "--json", cwd=tmp_path).stdout)
    assert found["constants"]["clients"] == 4
    refused = polyfed("plan", "plan.toml", "--alpha", "1.3", cwd=tmp_path, check=2)
    assert "from 0 to 1" in refused.stderr


def test_lists(tmp_path: Path) -> None:
    assert "fedprox" in polyfed("algorithms", cwd=tmp_path).stdout
    assert "server_optimizer" in polyfed("algorithms", "fedavg", cwd=tmp_path).stdout
    assert json.loads(polyfed("algorithms", "--json", cwd=tmp_path).stdout)["fedprox"]["mu"] == 0.1
    assert "digits" in polyfed("data", "list", cwd=tmp_path).stdout
    assert polyfed("--version", cwd=tmp_path).stdout.startswith("polyfed ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["rum", "small.toml"], "unknown command 'rum'; did you mean 'run'?"),
        (["run", "smal.toml"], "smal.toml: no such config file"),
        (
            ["run", "small.toml", "--set", "algorithm.lrr=1"],
            "unknown key algorithm.lrr for scaffold; did you mean 'lr'?",
        ),
        (
            ["run", "small.toml", "--set", "algorithm.name=scafold"],
            "unknown algorithm 'scafold'; did you mean 'scaffold'?",
        ),
        (["algorithms", "fedprx"], "unknown algorithm 'fedprx'; did you mean 'fedprox'?"),
        (["report", "nowhere"], "nowhere: no run directory here or below it"),
        (
            ["run", "small.toml", "--rounds", "3"],
            "polyfed run: unknown option '--rounds'; a key of the config is set by --set run.rounds=...",
        ),
        (
            ["run", "small.toml", "--rouds", "3"],
            "polyfed run: unknown option '--rouds'; a key of the config is set by --set run.rounds=...",
        ),
        (["--versio"], "polyfed: unknown option '--versio'; did you mean '--version'?"),
        (["data", "lst"], "polyfed data: unknown command 'lst'; did you mean 'list'?"),
        (["run", "small.toml", "--ovewrite"], "polyfed run: unknown option '--ovewrite'; did you mean '--overwrite'?"),
        (["bench", "scale", "--jsn"], "polyfed bench scale: unknown option '--jsn'; did you mean '--json'?"),
    ],
)
def test_a_mistake_ends_with_one_sentence_and_code_2(config: Path, tmp_path: Path, arguments, sentence) -> None:
    done = polyfed(*arguments, cwd=tmp_path, check=2)
    assert sentence in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
