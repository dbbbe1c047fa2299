"""`polyfed personalize`."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import polyfed as pf
from tests.cli.command import CONFIG, polyfed

LATE = CONFIG.replace("seed = 3", "seed = 4").replace("clients = 6", "clients = 2")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished APFL run and a config of two newcomers."""
    folder = tmp_path_factory.mktemp("late")
    (folder / "run.toml").write_text(CONFIG.replace("scaffold", "apfl"))
    (folder / "late.toml").write_text(LATE)
    polyfed("run", "run.toml", "-q", "--out", "done", cwd=folder)
    return folder


def test_newcomers_get_a_table_a_csv_and_a_model_each(place: Path) -> None:
    done = polyfed("personalize", "done", "late.toml", cwd=place)
    assert "global accuracy" in done.stdout
    with (place / "done/newcomers/newcomers.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["client"] for row in rows] == ["client-000", "client-001"]
    data = pf.data.load("synthetic", clients=2, sizes=40, seed=4)
    assert isinstance(data, pf.Federation)
    expected = pf.personalize(place / "done", data)
    for row, found in zip(rows, expected.rows, strict=True):
        assert float(row["personal_test_accuracy"]) == pytest.approx(found["personal_accuracy"])
        model = load_file(place / "done/newcomers" / row["model"])
        np.testing.assert_allclose(model["w"], expected.personal(row["client"])["w"], atol=1e-6)  # compiled otherwise


def test_one_of_them_with_more_steps_as_json(place: Path) -> None:
    arguments = ["done", "late.toml", "--client", "client-001", "--steps", "50", "--out", "more", "--json"]
    found = json.loads(polyfed("personalize", *arguments, cwd=place).stdout)
    assert [row["client"] for row in found["newcomers"]] == ["client-001"]
    assert found["metric"] == "accuracy"
    assert (place / "more/models/client-001.safetensors").is_file()


def test_a_table_without_a_client_column_is_one_newcomer(place: Path) -> None:
    data = pf.data.load("synthetic", clients=2, sizes=40, seed=4).train
    lines = [",".join([*(f"f{i}" for i in range(60)), "label"])]
    lines += [",".join(map(str, [*x, int(y)])) for x, y in zip(data.x, data.y, strict=True)]
    (place / "ward.csv").write_text("\n".join(lines))
    found = polyfed("personalize", "done", "ward.csv", "--target", "label", "--out", "ward", "--json", cwd=place)
    assert json.loads(found.stdout)["newcomers"][0]["client"] == "ward"


def test_every_mistake_is_one_sentence(place: Path) -> None:
    (place / "wide.toml").write_text(LATE.replace("sizes = 40", "sizes = 40\nfeatures = 7"))
    (place / "runs/two/a").mkdir(parents=True, exist_ok=True)
    for name in ("a", "b"):
        shutil.copytree(place / "done", place / "runs/two" / name, dirs_exist_ok=True)
    shutil.copytree(place / "done", place / "half")
    (place / "half/summary.json").unlink()
    shutil.copytree(place / "done", place / "bare")
    shutil.rmtree(place / "bare/server")
    cases = [
        (("done", "late.toml", "--out", "late.toml"), "late.toml: a file, expected a folder to write to"),
        (("nowhere", "late.toml"), "nowhere: no such run directory"),
        (("half", "late.toml"), "half: not a finished run, summary.json is missing"),
        (("bare", "late.toml"), "bare: the server's state is missing; runs keep it in server/"),
        (("runs/two", "late.toml"), "runs/two: a folder of runs, expected one of them, such as runs/two/a"),
        (("done", "late.json"), "late.json: no such file"),
        (("done", "run.toml", "--client", "nobody"), "there is no client 'nobody'"),
        (("done", "wide.toml"), "the newcomers' rows have shape (7,), expected (60,) as in the run"),
        (("done", "late.toml", "--steps", "0"), "steps must be a whole number, at least 1, found 0"),
    ]
    for arguments, message in cases:
        refused = polyfed("personalize", *arguments, cwd=place, check=2)
        assert message in " ".join(refused.stderr.split())
        assert "Traceback" not in refused.stderr
