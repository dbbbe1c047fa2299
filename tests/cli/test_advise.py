"""`polyfed advise`, from a table to files and a page."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from polyfed.studies.config import read_config
from tests.cli.command import polyfed


@pytest.fixture
def table(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    x = random.normal(size=(180, 3))
    frame = pd.DataFrame(x, columns=["dose", "age", "stay"])
    frame["died"] = np.where(x[:, 0] + random.normal(size=180) > 0, "yes", "no")
    frame["hospital"] = np.repeat(["<b>north</b>", "south", "west"], 60)
    frame.to_csv(tmp_path / "visits.csv", index=False)
    return tmp_path / "visits.csv"


def test_a_table_becomes_advice_files_and_a_page(table: Path, tmp_path: Path) -> None:
    call = ["advise", str(table), "--client", "hospital", "--target", "died", "--minutes", "0.001"]
    place = tmp_path / "out"
    done = polyfed(*call, "--out", str(place), cwd=tmp_path, check=None)
    assert done.returncode == 0, done.stderr
    assert "Not tried for want of time" in done.stdout
    assert f"next: polyfed compare {place / 'config.toml'}" in done.stdout.replace("\n", " ").replace("  ", " ")
    told = json.loads((place / "advice.json").read_text())
    assert [site["client"] for site in told["sites"]] == ["<b>north</b>", "south", "west"]
    assert told["metric"] == "auc"
    with (place / "sites.csv").open() as file:
        assert [row["rows"] for row in csv.DictReader(file)] == ["60", "60", "60"]
    config = tomllib.loads((place / "config.toml").read_text())
    assert config["data"]["client"] == "hospital"
    assert [method.label for method in read_config(place / "config.toml").methods] == ["alone"]
    page = (place / "report.html").read_text()
    assert "<b>north</b>" not in page
    assert "&lt;b&gt;north&lt;/b&gt;" in page
    assert "<script" not in page
    assert f"<code>polyfed compare {place / 'config.toml'}</code>" in page
    rows = pd.read_csv(table).drop(columns="died")
    rows.to_csv(tmp_path / "new.csv", index=False)
    scored = polyfed("predict", str(place), "new.csv", "--out", "scored.csv", cwd=tmp_path, check=None)
    assert scored.returncode == 0, scored.stderr
    assert np.mean(pd.read_csv(tmp_path / "scored.csv")["prediction"] == pd.read_csv(table)["died"]) > 0.6

    again = polyfed(*call, "--out", str(place), cwd=tmp_path, check=None)
    assert again.returncode == 2
    assert "there is advice already" in again.stderr.replace("\n", " ")
    resumed = polyfed(*call, "--out", str(place), "--resume", "--json", cwd=tmp_path, check=None)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["sites"] == told["sites"]
    other = polyfed(*call, "--out", str(place), "--resume", "--seed", "4", cwd=tmp_path, check=None)
    assert other.returncode == 2
    assert "other rows, another seed or other settings" in other.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--client", "hospitl"], "hospitl"),
        (["--client", "hospital", "--target", "dead"], "dead"),
        ([], "say which column is the client, with --client"),
        (["--client", "hospital", "--minutes", "-1"], "minutes must be a number above 0"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(table: Path, tmp_path: Path, change, words) -> None:
    call = ["advise", str(table), "--out", str(tmp_path / "out"), *change]
    done = polyfed(*call, *([] if "--target" in change else ["--target", "died"]), cwd=tmp_path, check=None)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out" / "advice.json").exists()


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    done = polyfed("advise", str(tmp_path / "no.csv"), "--client", "a", "--target", "b", cwd=tmp_path, check=None)
    assert done.returncode == 2
    assert "there is no such file or folder" in done.stderr.replace("\n", " ")
