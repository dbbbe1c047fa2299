"""The table of fairness, and what the page is told for its charts."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from polyfed.report import comparison_table, fairness_table, write_fairness
from polyfed.report.data import page_data
from polyfed.report.headline import headline
from polyfed.report.methods import group
from polyfed.report.page import render
from polyfed.report.sections import fairness_table as html_of
from tests.report.samples import fair, make_run


def two() -> list:
    runs = [fair(make_run("FedBC", seed=seed), weights=[0.3, 0.3, 0.1, 0.1, 0.1, 0.1]) for seed in (0, 1)]
    return [fair(make_run("FedAvg", models=("global",))), *runs]


def test_a_row_for_the_deployed_and_one_for_the_global_model_where_they_differ() -> None:
    runs = two()
    table = fairness_table(runs)
    assert table is not None
    assert [line.label for line in table.lines] == ["FedAvg", "FedBC, personal model", "FedBC, global model"]
    rows = list(csv.DictReader(io.StringIO(table.to_csv())))
    values = [np.array([row["global_test_accuracy"] for row in run.clients]) for run in runs[1:]]
    assert float(rows[2]["test_accuracy_variance"]) == pytest.approx(np.mean([np.var(v) for v in values]))
    sizes = np.array([row["train_rows"] for row in runs[1].clients])
    smallest = np.mean([v[np.argmin(sizes)] for v in values])
    assert float(rows[2]["test_accuracy_smallest"]) == pytest.approx(smallest)
    assert float(rows[2]["smallest_weight"]) == [0.3, 0.3, 0.1, 0.1, 0.1, 0.1][int(np.argmin(sizes))]
    assert float(rows[0]["largest_weight"]) == pytest.approx(1 / 6)
    assert float(rows[0]["largest_data"]) == pytest.approx(sizes.max() / sizes.sum())
    assert rows[0]["test_accuracy_jain_run_std"] == ""
    assert table.rows[0][1] == f"{1e4 * np.var([row['global_test_accuracy'] for row in runs[0].clients]):.1f}"


def test_runs_without_such_figures_have_no_table(tmp_path) -> None:
    assert fairness_table([make_run()]) is None
    assert write_fairness([make_run()], tmp_path) == []
    assert html_of(group([make_run()])) == ""
    assert [path.name for path in write_fairness(two(), tmp_path)] == ["fairness.csv", "fairness.md", "fairness.tex"]


def test_the_page_has_the_weights_and_keeps_these_curves_out_of_the_general_ones() -> None:
    methods = group(two())
    data = page_data(methods, methods[0])
    assert data["methods"][1]["weights"] == [0.3, 0.3, 0.1, 0.1, 0.1, 0.1]
    assert "global_test_accuracy_smallest" in data["methods"][1]["curves"]
    assert "deployed_test_accuracy_largest" in data["methods"][0]["curves"]
    assert not any(option["key"].endswith(("smallest", "largest", "variance")) for option in data["options"])
    assert html_of(methods).count("<tr data-method") == 3


def test_a_run_that_was_adapted_on_test_rows_is_marked_wherever_it_shows() -> None:
    runs = [make_run("FedAvg"), fair(make_run("Per-FedBC", adapted_on_test=True))]
    page = render(runs, title="leak")
    assert "Per-FedBC: test labels leak.</strong> What it deploys" in page
    assert page.count("test labels leak</em>") == 2  # in the comparison and beside the cost
    assert [line.name for line in comparison_table(runs).lines[:2]] == ["FedAvg", "Per-FedBC (test labels leak)"]
    table = fairness_table(runs)
    assert table is not None
    assert [line.name for line in table.lines] == [
        "Per-FedBC, personal model (test labels leak)",
        "Per-FedBC, global model",
    ]
    assert "labels leak" not in render(runs[:1], title="none")
    runs[0].config["run"]["adapt_on_test"] = True
    assert "FedAvg: test labels leak.</strong> Its fine-tuned model" in render(runs[:1], title="fine-tuned")
    del runs[0].summary["models"]["finetuned"]
    assert "labels leak" not in render(runs[:1], title="nothing is fine-tuned")


def test_what_leaks_is_never_the_best_nor_what_the_headline_is_about() -> None:
    lifts = {"FedAvg": 0.05, "Ditto": -0.1, "Per-FedBC": 0.5}
    ahead = [make_run(label, seed=seed, lift=lift) for label, lift in lifts.items() for seed in range(3)]
    runs = ahead[:6] + [make_run("Per-FedBC", seed=seed, lift=0.5, adapted_on_test=True) for seed in range(3)]
    mean = 0
    assert [comparison_table(ahead).is_best(row, mean) for row in range(3)] == [False, False, True]
    assert [comparison_table(runs).is_best(row, mean) for row in range(3)] == [True, False, False]
    assert headline(group(runs)).focus.label == "FedAvg"
    assert "leak" not in headline(group(runs)).sentence
    told = "Of the 2 methods that train together and are sound, FedAvg has the lowest validation loss."
    assert headline(group(runs)).details[0].startswith(told)
    assert headline(group(runs[6:])).sentence.startswith("Test labels leak, so this is no result. Training together")
