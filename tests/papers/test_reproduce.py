"""Reproductions, with a made-up experiment."""

from __future__ import annotations

import csv
import dataclasses
import json

import pytest
from matplotlib.figure import Figure

from polyfed import papers
from polyfed.core.errors import PolyfedError
from polyfed.papers.shared import style
from polyfed.papers.shared.claims import better, exact
from polyfed.papers.shared.experiment import silent
from polyfed.papers.shared.folder import EARLIER
from polyfed.papers.shared.rows import column, where

HEADINGS = ["Paper", "What was run", "Data", "Hardware", "Hyper-parameters", "Result", "Differences"]


RATES = (0.5, 0.25)


def decay(quick: bool, progress: papers.ExperimentProgress) -> papers.Measured:
    """Two curves 2^-t and 4^-t."""
    rounds, rows = 5 if quick else 50, []
    for done, rate in enumerate(RATES):
        progress(f"rate {rate}", done, 2)
        rows += [{"rate": rate, "round": t, "gap": rate**t} for t in range(rounds)]
    rows.append({"rate": 0.0, "extra": "only here"})
    return papers.Measured(rows, {"rates": list(RATES), "rounds": rounds}, ["A note."])


def judge(rows: list[dict]) -> list[papers.Claim]:
    ends = [where(rows, rate=rate)[-1]["gap"] for rate in RATES]
    return [
        exact("The fast one ends lower.", f"{ends[1]:.1e}", ends[1] < ends[0]),
        better("It ends under 1 | 2.", [3.0, 3.1], [1.0, 2.0], "no", lower=True),
        exact("It ends at nothing.", "no", ends[1] == 0),
    ]


def draw(rows: list[dict]) -> Figure:
    curves = [
        style.Curve(f"rate {rate}", column(where(rows, rate=rate), "round"), column(where(rows, rate=rate), "gap"), c)
        for rate, c in style.colours(RATES).items()
    ]
    return style.small_multiples([[style.Panel("toy", curves, "gap")]], x_label="rounds")


@pytest.fixture
def toy(no_experiments):
    facts = {"paper": "A paper", "title": "Decay", "caption": "It decays", "data": "None", "differences": "All of it"}
    for name in ("toy/fig2", "toy/fig10", "other/fig1"):
        papers.experiment(name, **facts, judge=judge, draw=draw, tell=lambda rows: [f"{len(rows)} rows."])(decay)
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
    verdicts = ["holds", "undecided", "does not hold"]
    assert [claim["verdict"] for claim in record["claims"]] == [claim.verdict for claim in outcome.claims] == verdicts
    assert record["verdicts"] == {"holds": 1, "does not hold": 1, "undecided": 1}
    assert record["quick"] is True


def test_every_page_has_the_same_headings_and_shows_claims_with_their_figures(toy, tmp_path):
    papers.reproduce("toy/fig2", tmp_path, quick=True)
    page = (tmp_path / "toy" / "fig2" / "README.md").read_text()
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == HEADINGS
    assert "| The fast one ends lower. | 3.9e-03 | exact | holds |" in page
    assert "| It ends under 1 \\| 2. | no | -1.55 [-7.27, +4.17], 2 seeds | *undecided* |" in page
    assert "| It ends at nothing. | no | exact | **does not hold** |" in page
    assert "![It decays](figure.png)" in page
    assert "11 rows.\n\nA note." in page
    assert "polyfed reproduce toy/fig2 --quick" in page
    assert "| rates | 0.5, 0.25 |" in page


def test_a_second_reproduction_gives_the_same_bytes(toy, tmp_path):
    first, second = (papers.reproduce("toy/fig2", tmp_path / name, quick=True)[0][1] for name in "ab")
    for file in first.iterdir():
        assert file.read_bytes() == (second / file.name).read_bytes(), file.name


def test_several_figures_are_numbered(toy, tmp_path):
    outcome = toy["toy/fig2"].outcome(decay(True, silent))
    outcome.figures *= 2
    written = papers.write(outcome, toy["toy/fig2"], tmp_path, quick=True)
    assert {p.name for p in written if p.suffix == ".svg"} == {"figure.svg", "figure-2.svg"}
    assert "(figure-2.png)" in (tmp_path / "README.md").read_text()


def test_stored_rows_are_judged_and_drawn_again_without_a_run(toy, tmp_path, monkeypatch):
    ((_, folder, first),) = papers.reproduce("toy/fig2", tmp_path, quick=True)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    toy["toy/fig2"] = dataclasses.replace(toy["toy/fig2"], run=lambda quick, progress: pytest.fail("it ran"))
    ((_, _, second),) = papers.redraw("toy/fig2", tmp_path)
    assert second.claims == first.claims
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    text = (folder / "data.csv").read_text().replace("0.0625\n", "0.0625,\n")
    (folder / "data.csv").write_text(text.replace(",0.00390625,", ",0.9,"))
    ((_, _, third),) = papers.redraw("toy/fig2", tmp_path)
    assert third.claims[0].verdict == "does not hold"  # the verdict follows the rows
    with pytest.raises(PolyfedError, match="no stored rows to draw from"):
        papers.redraw("toy/fig10", tmp_path)


def test_sections_that_were_written_by_hand_stay(toy, tmp_path):
    papers.reproduce("toy/fig2", tmp_path, quick=True)
    page = tmp_path / "toy" / "fig2" / "README.md"
    page.write_text(page.read_text() + "\n## Notes\n\nSeen with care.\n\n### More\n\nOf it.\n")
    kept = page.read_text()
    papers.redraw("toy/fig2", tmp_path)
    assert page.read_text() == kept
    papers.reproduce("toy/fig2", tmp_path, quick=True)
    assert page.read_text() == kept


def test_rows_of_an_earlier_setting_are_not_drawn_with_the_new_words_and_a_run_drops_the_remark(toy, tmp_path):
    papers.reproduce("toy/fig2", tmp_path, quick=True)
    page = tmp_path / "toy" / "fig2" / "README.md"
    fresh = page.read_text()
    page.write_text(fresh + f"\n## {EARLIER}\n\nThe runs have the settings above.\n")
    with pytest.raises(PolyfedError, match="stored rows are of an earlier setting; leave out --redraw"):
        papers.redraw("toy/fig2", tmp_path)
    papers.reproduce("toy/fig2", tmp_path, quick=True)
    assert page.read_text() == fresh


def test_a_prefix_runs_a_paper_in_the_order_of_its_figures(toy, tmp_path):
    done = papers.reproduce("toy", tmp_path, quick=True)
    assert [experiment.name for experiment, _, _ in done] == ["toy/fig2", "toy/fig10"]
    assert [row["name"] for row in papers.reproduce_list()] == ["other/fig1", "toy/fig2", "toy/fig10"]


def test_an_unknown_experiment_is_refused_with_the_nearest(toy, tmp_path):
    with pytest.raises(PolyfedError, match="did you mean 'toy/fig2'"):
        papers.get("toy/fig3")
    with pytest.raises(PolyfedError, match="did you mean 'other'"):
        papers.reproduce("othr", tmp_path)
