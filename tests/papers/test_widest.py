"""Pages without stored rows: a claim is decided only where means and deviations decide it, whatever the seeds were."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from polyfed.papers.shared.holm import Summary, certain

PAGES = Path(__file__).resolve().parents[2] / "docs" / "reproductions"
SUMMED = [
    place.parent
    for place in sorted(PAGES.glob("*/*/claims.json"))
    if not (place.parent / "data.csv").exists() and "at the widest" in place.read_text()
]
SEEDS = 5
VALUE = re.compile(r"(\d+\.\d+) ± (\d+\.\d+)%?")
Summed = tuple[float, float]
"""A mean over seeds, and the largest deviation that would be written so."""


def widest(ours: list[Summed], theirs: list[Summed]) -> tuple[float, float, float]:
    """The mean difference over cells and its interval, if seeds were paired in the worst way: the deviation of a
    difference, and of a mean of differences, is at most the sum, and the mean of the sums."""
    difference = np.mean([a - b for (a, _), (b, _) in zip(ours, theirs, strict=True)])
    deviation = np.mean([a + b for (_, a), (_, b) in zip(ours, theirs, strict=True)])
    half = stats.t.ppf(0.975, SEEDS - 1) * deviation / np.sqrt(SEEDS)
    return float(difference), float(difference - half), float(difference + half)


def values(text: str) -> list[Summed]:
    found = VALUE.findall(text)
    return [(float(mean), float(off) + 0.5 / 10 ** len(off.partition(".")[2])) for mean, off in found]


def compared(claim: dict[str, str], page: str) -> list[tuple[list[Summed], list[Summed]]]:
    """What the claim compares: its own numbers, or the cells of two methods of the page's table of accuracies."""
    ending = r"(?: \(not in the paper\))?(?:, in the mean over the cells| in most cells)\.$"
    methods = re.match(rf"(FedBC)'s global model is more accurate than that of (.+?){ending}", claim["text"])
    if methods:
        rows = [next(re.finditer(rf"^\| {re.escape(m)} \|(.*± .*%.*)\|$", page, re.M))[1] for m in methods.group(1, 2)]
        return [(values(rows[0]), values(rows[1]))]
    *ours, theirs = values(claim["measured"])
    return [([one], [theirs]) for one in ours]


@pytest.mark.parametrize("folder", SUMMED, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_what_is_decided_follows_from_means_at_the_widest(folder: Path) -> None:
    page = (folder / "README.md").read_text()
    for claim in json.loads((folder / "claims.json").read_text())["claims"]:
        if claim["verdict"] == "undecided":
            continue
        low, high, margin = claim["interval"][1], claim["interval"][2], 0.0
        within = re.match(r"within (\S+)\?", claim["basis"])
        if within:
            margin = float(within[1])
        assert low > margin if claim["verdict"] == "holds" else high < 0 or low > margin, claim
        if "at least" in claim["text"]:
            level = float(re.findall(r"at least ([\d.]+)%", claim["text"])[0])
            pairs = [([one], [(level, 0.0)]) for one in values(claim["measured"])]
        else:
            pairs = compared(claim, page)
        unit = 1.0 if within else 0.01
        found = min((widest(ours, theirs) for ours, theirs in pairs), key=lambda interval: interval[1])
        assert claim["interval"] == pytest.approx([unit * end for end in found], abs=1e-9), claim


@pytest.mark.parametrize("folder", SUMMED, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_cells_are_counted_for_certain_at_the_widest(folder: Path) -> None:
    page = (folder / "README.md").read_text()
    for claim in json.loads((folder / "claims.json").read_text())["claims"]:
        counted = re.match(r"for certain above in (\d+), below in (\d+) of (\d+) \(Holm\)", claim["basis"])
        if counted is None:
            continue
        ((ours, theirs),) = compared(claim, page)
        pairs = zip(ours, theirs, strict=True)
        signs = certain([Summary(a - b, (x + y) / np.sqrt(SEEDS), SEEDS) for (a, x), (b, y) in pairs])
        above, below, cells = map(int, counted.groups())
        assert [signs.count("above"), signs.count("below"), len(signs)] == [above, below, cells], claim
        assert claim["verdict"] == ("holds" if 2 * above > cells else "undecided")


def test_the_pages_are_those_that_say_so() -> None:
    assert SUMMED
    for folder in SUMMED:
        assert "Values by seed are not stored for this page" in (folder / "README.md").read_text()
