"""The page as text: complete, safe and the same every time."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from polyfed.report import comparison_table, write_report
from polyfed.report.cautions import cautions
from polyfed.report.methods import group
from polyfed.report.page import render
from polyfed.studies.run_directory import RunRecord
from tests.report.gallery import GALLERY
from tests.report.samples import make_run, moving


def data_of(page: str) -> dict[str, Any]:
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    return json.loads(data[1])


def without_plotly(page: str) -> str:
    return re.sub(r"<script>/\*\*.*?</script>", "", page, count=1, flags=re.DOTALL)


def test_the_same_runs_give_the_same_bytes(tmp_path) -> None:
    runs = [make_run("FedAvg"), make_run("APFL", own_share=True)]
    first = write_report(runs, tmp_path / "sub" / "a.html", title="Twice")
    second = write_report(runs, tmp_path / "b.html", title="Twice")
    assert first == tmp_path / "sub" / "a.html"
    assert first.read_bytes() == second.read_bytes()


def test_names_from_the_data_never_become_markup() -> None:
    evil = "</script><script>alert(1)</script>"
    run = make_run(evil, clients=[evil, "<img src=x onerror=alert(2)>"], excluded={evil: 3})
    run.config["data"]["name"] = evil
    page = render([run], title=f"{evil} $title")
    assert "<script>alert(1)" not in page
    assert "<img" not in without_plotly(page)
    assert page.count("<script") - page.count("<\\/script") >= 3
    assert data_of(page)["clients"][0] == evil


def test_nothing_outside_the_file_is_named_by_our_part_of_it() -> None:
    own = without_plotly(render([make_run()], title="Offline"))
    assert len(own) < 200_000
    assert "http://" not in own
    assert "https://" not in own
    assert "default-src 'none'" in own


def test_curves_are_means_over_seeds_with_their_range() -> None:
    runs = [make_run(seed=seed) for seed in (0, 1, 2)]
    method = data_of(render(runs, title="Seeds"))["methods"][0]
    values = [run.history[4]["personal_test_accuracy"] for run in runs]
    curve = method["curves"]["deployed_test_accuracy"]
    assert abs(curve["mean"][4] - sum(values) / 3) < 1e-6
    assert abs(curve["low"][4] - min(values)) < 1e-6
    assert abs(curve["high"][4] - max(values)) < 1e-6
    assert method["axes"]["bits_up"][4] == 4 * 640_000
    third = [run.clients[2] for run in runs]
    gains = [float(row["personal_test_accuracy"]) - float(row["alone_test_accuracy"]) for row in third]
    assert abs(method["gains"][2] - sum(gains) / 3) < 1e-6


def test_a_seed_that_stopped_early_ends_the_curve() -> None:
    short = make_run(seed=1)
    runs = [make_run(seed=0), RunRecord(short.path, short.config, short.history[:4], short.clients, short.summary)]
    assert data_of(render(runs, title="Short"))["methods"][0]["axes"]["round"] == [0, 1, 2, 3]


def test_numbers_that_are_not_finite_become_gaps() -> None:
    run = make_run(own_share=True)
    run.history[3]["personal_test_accuracy"] = float("nan")
    run.history[4]["objective"] = None
    run.history[5]["objective"] = float("inf")
    run.clients[0] |= {"gain": "", "gain_low": "", "gain_high": "", "verdict": ""}
    run.clients[1] |= {"gain_low": float("-inf"), "personal_test_accuracy": float("nan")}
    method = data_of(render([run], title="Gaps"))["methods"][0]
    assert method["curves"]["deployed_test_accuracy"]["mean"][3] is None
    assert method["curves"]["objective"]["mean"][4:6] == [None, None]
    assert method["gains"][0] is None
    assert method["verdicts"][0] is None
    assert method["low"][:2] == [None, None]
    assert method["high"][1] is not None
    assert method["values"]["deployed"][1] is None


def test_long_runs_are_thinned_and_keep_both_ends() -> None:
    rounds = data_of(render([make_run(rounds=5000, clients=2)], title="Long"))["methods"][0]["axes"]["round"]
    assert len(rounds) == 1000
    assert (rounds[0], rounds[-1]) == (0, 5000)


def test_a_client_known_by_a_number_keeps_its_name() -> None:
    run = make_run(clients=2)
    run.clients[0]["client"] = 3.0
    assert data_of(render([run], title="Numbers"))["clients"] == ["3", "Site 2"]


def test_warnings_name_runs_that_diverged_and_clients_left_out() -> None:
    page = render([make_run(diverged=True, excluded={"Site 2": 4})], title="Trouble")
    assert "<strong>FedAvg diverged.</strong>" in page
    assert "Site 2 (4×)" in page


def cautions_of(*runs: RunRecord) -> str:
    return cautions(group(runs))


def test_cautions_stand_high_on_the_page_and_name_the_method_where_not_all_have_them() -> None:
    runs = [make_run("A", cautions=["few rows", "one class."]), make_run("B", cautions=["few rows"])]
    told = cautions_of(*runs)
    assert told.count("few rows.") == 1
    assert "<li>A: one class.</li>" in told
    page = render(runs, title="Careful")
    assert page.index("few rows.") < page.index('id="client-table"') < page.index('id="table"')
    many = cautions_of(make_run(cautions=[f"caution {i}" for i in range(9)]))
    assert many.index("caution 5.") < many.index("<summary>3 more</summary>") < many.index("caution 6.")
    assert cautions_of(make_run()) == ""


def test_a_method_below_the_constant_predictor_and_clients_without_the_metric_are_named() -> None:
    told = cautions_of(make_run("Bad", lift=-0.4), make_run("Good", undefined={"accuracy": ["Site 1", "<b>"]}))
    assert "<strong>Bad is worse than the constant predictor</strong>" in told
    assert "Good is worse" not in told
    both = cautions_of(*(make_run(label, lift=-0.4) for label in ("Bad", "Worse", "Worst")))
    assert "<strong>Bad, Worse and Worst are worse than the constant predictor</strong>" in both
    assert both.count("the constant predictor</strong>") == 1
    assert both.count("has a mean") == 3
    assert "2 of 6 clients have no test accuracy</strong> and count in no mean: Site 1, &lt;b&gt;." in told


def test_cautions_that_differ_by_their_numbers_from_run_to_run_are_one() -> None:
    rate = "fedavg with lr = 30 ends with a training loss of {}, above the 0.{}63 of a constant prediction"
    runs = [make_run(seed=seed, cautions=["few rows", rate.format(1.13 + seed, 2 + seed)]) for seed in range(4)]
    told = cautions_of(*runs, make_run("APFL", cautions=["few rows"]))
    assert told.count("ends with a training loss") == 1
    assert "a training loss of 1.13, above the 0.263 of a constant prediction (4 of 4 runs)." in told
    assert "<li>few rows.</li>" in told
    two = [make_run(seed=seed, cautions=["client 1 has 3 rows", "client 2 has 4 rows"][: 2 - seed]) for seed in (0, 1)]
    assert "<li>client 1 has 3 rows.</li><li>client 2 has 4 rows (1 of 2 runs).</li>" in cautions_of(*two)


def test_words_about_means_say_how_many_clients_they_are_over() -> None:
    run = make_run(clients=5, metric="auc", undefined={"auc": ["Site 1", "Site 4", "Site 5"]})
    run.summary["figure"] = "AUC on test rows, over all 5 clients"
    page = without_plotly(render([run], title="Few"))
    assert "AUC on test rows, over 2 of 5 clients" in page
    assert "3 of 5 clients have no test AUC</strong> and count in no mean: Site 1, Site 4, Site 5." in page
    assert ", over 2 of 5 clients</p>" in page  # beside the mean
    runs = [make_run(seed=0, metric="auc", undefined={"auc": ["Site 2"]}), make_run(seed=1, metric="auc")]
    page = render(runs, title="Some")
    assert "1 of 6 clients has no test AUC in some runs</strong>" in page
    assert "over 5 to 6 of 6 clients" in page


def test_a_mean_gain_over_some_clients_says_so_beside_it() -> None:
    run = make_run(clients=5, metric="auc")
    assert "mean over 5" not in render([run], title="All")
    assert "mean gain over" not in render([run], title="All")
    run.summary["gains"]["alone"]["mean_clients"] = 3
    page = render([run], title="Few")
    assert ", mean over 3 of 5 clients</p>" in page
    assert page.count("<small>mean gain over 3 of 5 clients</small>") == 1  # not beside bits and time
    assert "On average over 3 of 5 clients AUC" in page
    assert comparison_table([run]).rows[0][0] == "FedAvg (mean gain over 3 of 5 clients)"


def test_how_the_data_was_read_is_said_once() -> None:
    read = ["labels 1 -> 0, 2 -> 1 (the positive class)", "column <id> is left out"]
    page = without_plotly(render([make_run("A", notes=read), make_run("B", notes=read[:1])], title="Read"))
    assert page.count("labels 1 -&gt; 0, 2 -&gt; 1 (the positive class)</li>") == 1
    assert "<li>column &lt;id&gt; is left out</li>" in page
    assert "How the data was read" not in render([make_run()], title="Plain")


def test_runs_on_several_splits_are_told_apart() -> None:
    runs = [make_run(seed=seed, split=seed) for seed in range(2)]
    for run in runs:
        run.summary["splits"] = 2
    assert re.findall(r"<small>(split \d · seed \d)", render(runs, title="Splits")) == [
        "split 0 · seed 0",
        "split 1 · seed 1",
    ]
    assert "<small>split" not in render([make_run()], title="One")


def test_methods_with_other_seeds_are_said_to_differ_by_them() -> None:
    assert "same seeds and splits" in cautions_of(make_run("A"), make_run("B", seed=1))
    assert "same seeds and splits" not in cautions_of(make_run("A", seed=1), make_run("B", seed=1))


def test_cards_and_tables_say_the_same_number() -> None:
    runs = GALLERY["airlines"]()
    page = render(runs, title="Airlines")
    focus = [run for run in runs if run.label == "APFL"]
    stored = focus[0].summary["gains"]["alone"]
    counts = {"gains": stored["helped"], "loses": stored["harmed"]}
    assert sum(row["verdict"] == "gains" for row in focus[0].clients) > counts["gains"]  # each by itself
    assert f"helps {counts['gains']} of 16 clients for certain" in page
    assert f"<dt>Gain for certain</dt><dd>{counts['gains']} of 16</dd>" in page
    assert f"<dt>Lose for certain</dt><dd>{counts['loses']} of 16</dd>" in page
    row = re.search(r'<tr data-method="1">.*?APFL.*?</tr>', page, re.DOTALL)
    assert row is not None
    assert f"<td>{counts['gains']}</td><td>{counts['loses']}</td>" in row[0]


def test_own_shares_are_means_over_seeds_with_deciles_and_some_clients() -> None:
    runs = [moving(make_run("APFL", seed=seed, clients=40, own_share=True), start=0.1 + 0.4 * seed) for seed in (0, 1)]
    data = data_of(render(runs, title="shares"))
    shares = data["methods"][0]["shares"]
    assert shares["rounds"] == list(range(11))
    assert [column[0] for column in shares["band"]] == [0.3, 0.3, 0.3]
    pairs = zip(runs[0].clients, runs[1].clients, strict=True)
    ends = [(float(a["own_share"]) + float(b["own_share"])) / 2 for a, b in pairs]
    for column, share in zip(shares["band"], (0.1, 0.5, 0.9), strict=True):
        assert column[-1] == pytest.approx(np.quantile(ends, share), rel=1e-5)
    drawn = {data["clients"][client]: values[-1] for client, values in shares["lines"]}
    assert len(drawn) == 8
    assert min(drawn.values()) == pytest.approx(min(ends), rel=1e-5)
    assert max(drawn.values()) == pytest.approx(max(ends), rel=1e-5)
    mixed = data_of(render([runs[0], make_run("APFL", seed=1, clients=40, own_share=True)], title="one seed is still"))
    assert mixed["methods"][0]["shares"] is None


def test_a_page_is_light_enough_for_an_e_mail() -> None:
    assert len(render([make_run("FedAvg"), make_run("APFL", own_share=True)], title="Light").encode()) < 1_500_000
