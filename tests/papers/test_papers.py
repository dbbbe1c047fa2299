"""The frame around the papers' experiments, with a made-up experiment in it."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from polyfed import papers
from polyfed.core.errors import PolyfedError
from polyfed.papers.shared import experiment as base
from polyfed.papers.shared import style

HEADINGS = ["Paper", "What was run", "Data", "Hardware", "Hyper-parameters", "Result", "Differences"]


def decay(quick: bool, progress: papers.Progress) -> papers.Outcome:
    """Two curves 2^-t and 4^-t, and a claim about each."""
    rounds = 5 if quick else 50
    curves, rows = [], []
    palette = style.colours([0.5, 0.25])
    for done, rate in enumerate((0.5, 0.25)):
        progress(f"rate {rate}", done, 2)
        values = rate ** np.arange(rounds)
        curves.append(style.Curve(f"rate {rate}", np.arange(rounds), values, palette[rate]))
        rows += [{"rate": rate, "round": t, "gap": float(v)} for t, v in enumerate(values)]
    rows.append({"rate": 0.0, "extra": "only here"})
    figure = style.small_multiples([[style.Panel("toy", curves, "gap")]], x_label="rounds")
    claims = [
        papers.Claim("The fast one ends lower.", f"{values[-1]:.1e}", True),
        papers.Claim("It ends under 1 | 2.", "no", False),
    ]
    return papers.Outcome(rows, claims, figure, settings={"rates": [0.5, 0.25], "rounds": rounds}, notes=["A note."])


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setattr(base, "REGISTRY", {})
    facts = {"paper": "A paper", "title": "Decay", "caption": "It decays", "data": "None", "differences": "All of it"}
    papers.experiment("toy/fig2", **facts)(decay)
    papers.experiment("toy/fig10", **facts)(decay)
    papers.experiment("other/fig1", **facts)(decay)
    for module in (base, papers.reproduce.__globals__):
        replace = monkeypatch.setitem if isinstance(module, dict) else monkeypatch.setattr
        replace(module, "load_all", lambda: base.REGISTRY)
    return base.REGISTRY


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
    outcome = decay(True, base.silent)
    outcome.figure = [*outcome.figures, *decay(True, base.silent).figures]
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


def test_rounding_errors_are_not_drawn_and_long_curves_are_thinned():
    values = np.array([1.0, 1e-20, 0.0, -1.0, 1e-3])
    long = np.arange(1.0, 5001.0)
    curves = [style.Curve(str(i), np.arange(5), values, "#000000") for i in range(2)]
    curves.append(style.Curve("long", np.arange(5000), long, "#000000"))
    figure = style.small_multiples([[style.Panel("a", curves), style.Panel("b", curves)]], x_label="t")
    drawn = figure.axes[0].lines
    np.testing.assert_array_equal(np.asarray(drawn[0].get_ydata()), [1, np.nan, np.nan, np.nan, 1e-3])
    thinned = np.asarray(drawn[2].get_ydata())
    assert len(thinned) <= style.POINTS
    assert (thinned[0], thinned[-1]) == (1.0, 5000.0)
    assert figure.axes[0].get_legend() is not None
    assert figure.axes[1].get_legend() is None
    six = [style.Curve(str(i), [0, 1], [1, 2], "#000000") for i in range(6)]
    assert len(style.small_multiples([[style.Panel("a", six)]], x_label="t").legends) == 1


def test_no_two_lines_of_a_figure_look_alike_even_where_there_are_more_than_colours() -> None:
    few = {str(i): "one family" for i in range(len(style.COLOURS))}
    assert [line for _, line in style.looks(few).values()] == [style.METHOD] * len(few)
    many = {f"{family} {i}": family for family in "abcd" for i in range(3)}
    found = style.looks(many)
    assert len(set(found.values())) == len(many)
    assert found["a 0"][0] == found["a 2"][0] != found["b 0"][0]
