"""Claims follow from the rows that are stored beside the pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polyfed.papers.catalogue import EXPERIMENTS
from polyfed.papers.shared.rows import read_rows

PAGES = Path(__file__).resolve().parents[2] / "docs" / "reproductions"
STORED = sorted(name for name in EXPERIMENTS if (PAGES / name / "data.csv").exists())


@pytest.mark.parametrize("name", STORED)
def test_stored_rows_give_the_claims_of_the_page(name: str) -> None:
    judged = [claim.record for claim in EXPERIMENTS[name].judge(read_rows(PAGES / name / "data.csv"))]
    stored = json.loads((PAGES / name / "claims.json").read_text())["claims"]
    assert [claim["text"] for claim in judged] == [claim["text"] for claim in stored]
    assert [claim["verdict"] for claim in judged] == [claim["verdict"] for claim in stored]
    for ours, theirs in zip(judged, stored, strict=True):
        assert ours.get("interval", []) == pytest.approx(theirs.get("interval", []), rel=1e-9)
