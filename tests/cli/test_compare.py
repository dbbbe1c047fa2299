"""`polyfed compare`, and `polyfed report` on what it leaves."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path

from tests.cli.command import COMPARE, polyfed


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
