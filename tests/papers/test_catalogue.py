"""Every figure and table of the papers is in the catalogue, and its committed page says what the experiment says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polyfed.papers.catalogue import EXPERIMENTS, reproduce_list
from polyfed.papers.shared.folder import EARLIER, WHOLE

PAGES = Path(__file__).resolve().parents[2] / "docs" / "reproductions"
CONVEX = [*(f"flix/fig{n}" for n in (2, 3, *range(8, 16))), "scafflix/fig1"]


def names(paper: str) -> list[str]:
    return [row["name"].partition("/")[2] for row in reproduce_list() if row["name"].startswith(f"{paper}/")]


def test_all_of_the_papers_figures_and_tables_are_there() -> None:
    assert names("apfl") == [
        "fig1",
        "fig2",
        "fig3",
        "fig4",
        "fig5",
        "fig6",
        "starts",
        "table1",
        "table2",
        "table1_pairs",
    ]
    figures = [f"fig{n}" for n in range(1, 14)]
    assert names("fedbc") == figures + [f"table{n}" for n in (1, 2, 3, 6, 7, 8, 9)]
    assert names("flix") == [f"fig{n}" for n in range(1, 16)]
    assert names("plsgd") == ["bounds", "fig2", "fig4", "fig1b", "regimes", "table1"]
    assert names("scafflix") == [f"fig{n}" for n in range(1, 7)]
    assert all(experiment.differences for experiment in EXPERIMENTS.values())


@pytest.mark.parametrize("name", CONVEX)
def test_captions_name_the_stand_ins(name: str) -> None:
    caption = EXPERIMENTS[name].caption
    assert "w6a" in caption
    assert name.startswith("scafflix") or "ijcnn1" in caption


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_a_committed_page_says_what_the_experiment_says(name: str) -> None:
    experiment, folder = EXPERIMENTS[name], PAGES / name
    page = (folder / "README.md").read_text()
    sections = dict(part.split("\n\n", 1) for part in page.rstrip("\n").split("\n\n## ")[1:])
    sections = {heading: text.strip() for heading, text in sections.items()}
    assert page.startswith(f"# {name}: {experiment.title}\n")
    assert sections["Paper"] == experiment.paper
    scope = json.loads((folder / "claims.json").read_text()).get("scope", WHOLE)
    assert sections["What was run"].startswith(f"{experiment.title}. {scope}")
    if EARLIER in sections:  # then the words are those of the runs
        assert sections[EARLIER].startswith("The runs have the settings above. The command now ")
    else:
        assert sections["Data"] == experiment.data
        assert sections["Differences"] == experiment.differences
        assert f"![{experiment.caption}](figure." in sections["Result"]
        assert f"\n\n{experiment.caption}\n\n" in sections["Result"]
    record = json.loads((folder / "claims.json").read_text())
    marks = {"holds": "holds", "does not hold": "**does not hold**", "undecided": "*undecided*"}
    for claim in record["claims"]:
        text, measured, basis = (claim[key].replace("|", "\\|") for key in ("text", "measured", "basis"))
        assert f"| {text} | {measured} | {basis} | {marks[claim['verdict']]} |" in sections["Result"]
    assert sum(record["verdicts"].values()) == len(record["claims"]) > 0
