"""`polyfed tune`."""

from __future__ import annotations

import csv
import json
import signal
import time
import tomllib
from pathlib import Path

import pytest

from tests.cli.command import COMPARE, polyfed, polyfed_process, start_polyfed

TUNE = (
    COMPARE.partition('[[compare]]\nname = "fedavg"\nlabel')[0]
    .replace("seeds = [0, 1]", "seeds = [1]")
    .replace("finetune_steps = 10", "finetune_steps = 0")
    + """
[tune]
budget = 3
rounds = 6

[tune.space.Alone]
lr = [0.01, 0.1, 1.0]

[tune.space.fedavg]
lr = {low = 0.001, high = 0.1, log = true}
"""
)
VISITS = 'source = "csv"\npath = "visits.csv"\nclient = "site"\ntarget = "y"\nvalidation = 0.0'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "three.toml").write_text(TUNE)
    return tmp_path / "three.toml"


def candidates(folder: Path) -> list[dict[str, str]]:
    with (folder / "tuning.csv").open() as file:
        return [{key: value for key, value in row.items() if "seconds" not in key} for row in csv.DictReader(file)]


def test_tune_writes_all_candidates_and_a_config_that_compare_runs(config: Path, tmp_path: Path) -> None:
    done = polyfed("tune", "three.toml", cwd=tmp_path)
    folder = tmp_path / "runs/three-tuning"
    assert "validation loss" in done.stdout
    rows = candidates(folder)
    assert [row["method"] for row in rows] == ["Alone"] * 3 + ["fedavg"] * 3
    assert [row["lr"] for row in rows[3:]] == ["0.001", "0.01", "0.1"]
    best = tomllib.loads((folder / "best.toml").read_text())
    chosen = {entry["label"]: entry["lr"] for entry in best["compare"]}
    assert chosen == {row["method"]: float(row["lr"]) for row in rows if row["best"] == "True"}
    assert best["run"]["rounds"] == 12
    assert "tune" not in best
    polyfed("compare", "runs/three-tuning/best.toml", "-q", "--out", "won", "--set", "run.rounds=6", cwd=tmp_path)
    summary = json.loads((tmp_path / "won/fedavg/seed-1/summary.json").read_text())
    score = min(float(row["validation_loss"]) for row in rows[3:])
    assert summary["models"]["personal"]["validation"]["loss"]["mean"] == pytest.approx(score)
    refused = polyfed("tune", "three.toml", cwd=tmp_path, check=2)
    assert "there is a search already; use --resume, --overwrite or another --out" in " ".join(refused.stderr.split())
    again = polyfed("tune", "three.toml", "--resume", "--json", cwd=tmp_path)
    found = json.loads(again.stdout)
    assert [str(row["best"]) for row in found["candidates"]] == [row["best"] for row in rows]
    journal = (folder / "candidates.jsonl").read_text()
    assert journal.count("\n") == 6  # nothing was run twice
    more = polyfed("tune", "three.toml", "--resume", "--json", "--set", "tune.budget=4", cwd=tmp_path)
    assert len(json.loads(more.stdout)["candidates"]) == 8


@pytest.mark.full
def test_ctrl_c_keeps_what_was_done_and_resume_ends_with_the_same_table(config: Path, tmp_path: Path) -> None:
    long = ["--set", "tune.rounds=3000", "--set", "tune.budget=4"]
    polyfed_process("tune", "three.toml", "-q", "--out", "whole", *long, cwd=tmp_path)
    with start_polyfed("tune", "three.toml", "-q", "--out", "cut", *long, cwd=tmp_path) as process:
        journal = tmp_path / "cut/candidates.jsonl"
        deadline = time.monotonic() + 120
        while not (journal.exists() and journal.read_text().count("\n") >= 2) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        message = process.communicate(timeout=60)[1]
    if process.returncode == 130:  # on a fast machine the search may have ended first
        assert "candidates; --resume goes on from there" in " ".join(message.split())
        assert not (tmp_path / "cut/best.toml").exists()
    kept = journal.read_text().count("\n")
    assert kept >= 2
    polyfed_process("tune", "three.toml", "-q", "--out", "cut", "--resume", *long, cwd=tmp_path)
    assert candidates(tmp_path / "cut") == candidates(tmp_path / "whole")
    assert (tmp_path / "cut/best.toml").read_text() == (tmp_path / "whole/best.toml").read_text()


def test_mistakes_are_one_sentence(config: Path, tmp_path: Path) -> None:
    (tmp_path / "plain.toml").write_text(COMPARE)
    cases = [
        (("plain.toml",), "plain.toml: has no section [tune], which names what to search"),
        (("three.toml", "--set", "data.validation=0.0"), "three.toml: tuning chooses by validation rows"),
        (("three.toml", "--set", "tune.budget=2"), "the grid has 3 candidates, more than tune.budget = 2"),
        (("three.toml", "--set", "tune.repeats=2"), "tune.repeats = 2, but run.seeds has 1; list as many, or none"),
    ]
    for arguments, message in cases:
        refused = polyfed("tune", *arguments, cwd=tmp_path, check=2)
        assert message in " ".join(refused.stderr.split())
        assert not (tmp_path / "runs").exists()
    rows = "\n".join(f"{site},{x},{1 + (x > 4)}" for site in ("east", "west") for x in range(9))
    (tmp_path / "visits.csv").write_text(f"site,x,y\n{rows}\n")
    table = config.read_text().replace('source = "synthetic"\nclients = 6\nsizes = 40\nseed = 3', VISITS)
    (tmp_path / "visits.toml").write_text(table)
    told = polyfed("tune", "visits.toml", cwd=tmp_path, check=2).stderr
    assert "data: labels 1 -> 0, 2 -> 1 (the positive class)" in told  # said before it is refused, too
    lost = ["--set", "tune.space.fedavg.lr=[1e30, 1e31, 1e32]", "--set", "tune.rounds=3"]
    failed = polyfed("tune", "three.toml", *lost, cwd=tmp_path, check=2)
    assert "all 3 candidates of 'fedavg' diverged, so that there is no winner" in " ".join(failed.stderr.split())
    assert "Traceback" not in failed.stderr
    assert not (tmp_path / "runs/three-tuning/best.toml").exists()
