"""`polyfed compare`, and `polyfed report` on what it leaves."""

from __future__ import annotations

import csv
import json
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.cli.command import COMPARE, metrics, models, polyfed


def test_compare_writes_a_table_in_three_formats(tmp_path: Path) -> None:
    (tmp_path / "three.toml").write_text(COMPARE)
    done = polyfed("compare", "three.toml", cwd=tmp_path)
    folder = tmp_path / "runs" / "three"
    assert "FedAvg & <tuning>" in done.stdout
    with (folder / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["Alone", "fedavg", "FedAvg & <tuning>", "Constant"]
    assert "FedAvg \\& " in (folder / "table.tex").read_text()
    assert (folder / "table.md").read_text().count("\n|") >= 3
    runs = {path.parent.relative_to(folder).as_posix() for path in folder.rglob("summary.json")}
    assert runs == {f"{name}/seed-{seed}" for name in ("alone", "fedavg", "fedavg-tuning") for seed in (0, 1)}
    tuned = json.loads((folder / "fedavg-tuning" / "seed-0" / "summary.json").read_text())
    plain = json.loads((folder / "fedavg" / "seed-0" / "summary.json").read_text())
    alone = json.loads((folder / "alone" / "seed-0" / "summary.json").read_text())
    assert tuned["models"]["personal"] == plain["models"]["finetuned"]
    assert plain["models"]["alone"] == alone["models"]["personal"]
    assert plain["gains"]["alone"]["basis"] == "seeds"
    assert alone["iterations"] == 12 * 4
    local_config = tomllib.loads((folder / "alone" / "seed-0" / "config.toml").read_text())
    assert local_config["run"]["participation"] == 1.0
    report = polyfed("report", "runs/three", "--out", "page.html", cwd=tmp_path)
    assert "page.html" in report.stdout
    assert "FedAvg &amp; &lt;tuning&gt;" in (tmp_path / "page.html").read_text()


@pytest.mark.full
def test_compare_killed_between_two_checkpoints_resumes_both_seeds_to_the_same_bits(tmp_path: Path) -> None:
    two = COMPARE.partition('[[compare]]\nname = "fedavg"\nlabel')[0]
    (tmp_path / "three.toml").write_text(two.replace("finetune_steps = 10", "finetune_steps = 0"))
    often = ["--set", "run.checkpoint_every=4", "-q"]
    polyfed("compare", "three.toml", "--out", "whole", *often, cwd=tmp_path)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    left = sorted((tmp_path / "cut/fedavg/seed-1/checkpoint").glob("round-*"))
    assert [path.name for path in left] == ["round-000000008", "round-000000012"]
    shutil.rmtree(left[-1])
    polyfed("compare", "three.toml", "--out", "cut", "--resume", *often, cwd=tmp_path)
    for seed in (0, 1):
        cut, whole = (tmp_path / out / f"fedavg/seed-{seed}" for out in ("cut", "whole"))
        assert metrics(cut) == metrics(whole)
        assert models(cut) == models(whole)
        assert (cut / "clients.csv").read_bytes() == (whole / "clients.csv").read_bytes()
