"""Reproductions, with a made-up experiment."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from polyfed import papers
from polyfed.core.errors import PolyfedError
from polyfed.papers.shared import style
from polyfed.papers.shared.experiment import silent

HEADINGS = ["Paper", "What was run", "Data", "Hardware", "Hyper-parameters", "Result", "Differences"]


def decay(quick: bool, progress: papers.ExperimentProgress) -> papers.Outcome:
    """Two curves 2^-t and 4^-t, and a claim about each."""
    rounds = 5 if quick else 50
    curves, rows = [], []
    rates = (0.5, 0.25)
    palette = style.colours(rates)
    for done, rate in enumerate(rates):
        progress(f"rate {rate}", done, 2)
        values = rate ** np.arange(rounds)
        curves.append(style.Curve(f"rate {rate}", np.arange(rounds), values, palette[rate]))
        rows += [{"rate": rate, "round": t, "gap": float(v)} for t, v in enumerate(values)]
    rows.append({"rate": 0.0, "extra": "only here"})
    figure = style.small_multiples([[style.Panel("toy", curves, "gap")]], x_label="rounds")
    claims = [
        papers.Claim("The fast one ends lower.", f"{rates[-1] ** (rounds - 1):.1e}", True),
        papers.Claim("It ends under 1 | 2.", "no", False),
    ]
    return papers.Outcome(rows, claims, figure, settings={"rates": [0.5, 0.25], "rounds": rounds}, notes=["A note."])


@pytest.fixture
def toy(no_experiments):
    facts = {"paper": "A paper", "title": "Decay", "caption": "It decays", "data": "None", "differences": "All of it"}
    for name in ("toy/fig2", "toy/fig10", "other/fig1"):
        papers.experiment(name, **facts)(decay)
    return no_experiments


def test_a_reproduction_writes_figure_data_claims_and_page(toy, tmp_path):
    told = []
    ((experiment, folder, outcome),) = papers.reproduce("toy/fig2", tmp_path, True, lambda *facts: told.append(facts))
    assert (experiment.name, folder) == ("toy/fig2", tmp_path / "toy" / "fig2")
    assert told == [("rate 0.5", 0, 2), ("rate 0.25", 1, 2)]
    assert {p.name for p in folder.iterdir()} == {"figure.svg", "figure.png", "data.csv", "claims.json", "README.md"}
    with (folder / "data.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["rate", "round", "gap", "extra"]
    assert [float(row["gap"]) for row in rows[5:10]] == [0.25**t for t in range(5)]
    record = json.loads((folder / "claims.json").read_text())
    assert [claim["passed"] for claim in record["claims"]] == [True, False]
    assert record["passed"] is outcome.passed is False
    assert record["quick"] is True


def test_every_page_has_the_same_headings_and_shows_claims_with_their_figures(toy, tmp_path):
    papers.reproduce("toy/fig2", tmp_path, quick=True)
    page = (tmp_path / "toy" / "fig2" / "README.md").read_text()
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == HEADINGS
    assert "| The fast one ends lower. | 3.9e-03 | pass |" in page
    assert "| It ends under 1 \\| 2. | no | **fail** |" in page
    assert "![It decays](figure.svg)" in page
    assert "polyfed reproduce toy/fig2 --quick" in page
    assert "| rates | 0.5, 0.25 |" in page


def test_a_second_reproduction_gives_the_same_bytes(toy, tmp_path):
    first, second = (papers.reproduce("toy/fig2", tmp_path / name, quick=True)[0][1] for name in "ab")
    for file in first.iterdir():
        assert file.read_bytes() == (second / file.name).read_bytes(), file.name


def test_several_figures_are_numbered(toy, tmp_path):
    outcome = decay(True, silent)
    outcome.figure = [*outcome.figures, *decay(True, silent).figures]
    written = papers.write(outcome, toy["toy/fig2"], tmp_path, quick=True)
    assert {p.name for p in written if p.suffix == ".svg"} == {"figure.svg", "figure-2.svg"}
    assert "(figure-2.svg)" in (tmp_path / "README.md").read_text()


def test_a_prefix_runs_a_paper_in_the_order_of_its_figures(toy, tmp_path):
    done = papers.reproduce("toy", tmp_path, quick=True)
    assert [experiment.name for experiment, _, _ in done] == ["toy/fig2", "toy/fig10"]
    assert [row["name"] for row in papers.reproduce_list()] == ["other/fig1", "toy/fig2", "toy/fig10"]


def test_an_unknown_experiment_is_refused_with_the_nearest(toy, tmp_path):
    with pytest.raises(PolyfedError, match="did you mean 'toy/fig2'"):
        papers.get("toy/fig3")
    with pytest.raises(PolyfedError, match="did you mean 'other'"):
        papers.reproduce("othr", tmp_path)
