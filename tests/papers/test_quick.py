"""Quick versions of the experiments on the published data: they run, write everything, and confirm their claims."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

UNPACK = Path(__file__).resolve().parents[3] / "shared" / "data" / "unpack"


@pytest.mark.full
@pytest.mark.realdata
@pytest.mark.parametrize("name", ["scafflix/fig1", "flix/fig2"])
def test_a_quick_reproduction_confirms_its_claims(name, tmp_path):
    """In a process of its own: the tests' flags compile quickly and compute slowly, and here computing takes longer."""
    if not UNPACK.is_file():
        pytest.skip("the published datasets are not beside the repository (no ../shared/data/unpack)")
    subprocess.run([sys.executable, str(UNPACK), str(tmp_path / "data"), "libsvm"], check=True)
    command = [str(Path(sys.executable).parent / "polyfed"), "reproduce", name, "--quick", "--out", str(tmp_path)]
    environment = os.environ | {"POLYFED_DATA": str(tmp_path / "data")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / name / "claims.json").read_text())
    assert [claim["text"] for claim in record["claims"] if claim["verdict"] != "holds"] == []
    assert len(record["claims"]) > 0
    assert (tmp_path / name / "figure.svg").stat().st_size > 5000
    with (tmp_path / name / "data.csv").open(newline="") as file:
        gaps = [float(row["gap"]) for row in csv.DictReader(file) if row["gap"]]
    assert gaps
    assert min(gaps) >= 0
