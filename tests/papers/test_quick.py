"""Quick versions of the experiments on the published data: they run, write everything, and confirm their claims."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from polyfed import papers

UNPACK = Path(__file__).resolve().parents[3] / "shared" / "data" / "unpack"


@pytest.mark.slow
@pytest.mark.realdata
@pytest.mark.parametrize("name", ["scafflix/fig1", "flix/fig2"])
def test_a_quick_reproduction_confirms_its_claims(name, tmp_path, monkeypatch):
    if not UNPACK.is_file():
        pytest.skip("the published datasets are not beside the repository (no ../shared/data/unpack)")
    subprocess.run([sys.executable, str(UNPACK), str(tmp_path / "data"), "libsvm"], check=True)
    monkeypatch.setenv("POLYFED_DATA", str(tmp_path / "data"))
    ((_, folder, outcome),) = papers.reproduce(name, tmp_path, quick=True)
    assert [claim.text for claim in outcome.claims if not claim.passed] == []
    assert len(outcome.claims) > 0
    assert (folder / "figure.svg").stat().st_size > 5000
    assert all(row["gap"] >= 0 for row in outcome.rows)
