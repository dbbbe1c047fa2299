"""Claims follow from the rows that are stored beside the pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polyfed.papers.catalogue import EXPERIMENTS
from polyfed.papers.shared.folder import EARLIER
from polyfed.papers.shared.rows import NoRows, read_rows

PAGES = Path(__file__).resolve().parents[2] / "docs" / "reproductions"
STORED = sorted(name for name in EXPERIMENTS if (PAGES / name / "data.csv").exists())


@pytest.mark.parametrize("name", STORED)
def test_stored_rows_give_the_claims_of_the_page(name: str) -> None:
    """A page of an earlier setting may lack rows of what its experiment has since; such claims are not judged."""
    rows = read_rows(PAGES / name / "data.csv")
    earlier = f"\n## {EARLIER}\n" in (PAGES / name / "README.md").read_text()
    try:
        judged = [claim.record for claim in EXPERIMENTS[name].judge(rows)]
    except NoRows:
        if not earlier:
            raise
        return
    stored = json.loads((PAGES / name / "claims.json").read_text())["claims"]
    assert [claim["text"] for claim in judged] == [claim["text"] for claim in stored]
    assert [claim["verdict"] for claim in judged] == [claim["verdict"] for claim in stored]
    for ours, theirs in zip(judged, stored, strict=True):
        assert ours.get("interval", []) == pytest.approx(theirs.get("interval", []), rel=1e-9)
