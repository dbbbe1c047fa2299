"""The comparison table against numbers worked out by hand."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from polyfed.cli.progress import terminal_table
from polyfed.core.errors import PolyfedError
from polyfed.report import comparison_table, write_table
from polyfed.report.table import Table, difference
from polyfed.studies.run_directory import RunRecord
from tests.report.gallery import GALLERY
from tests.report.samples import make_record, make_run


def stated(label: str, seed: int = 0, **figures: float | None) -> RunRecord:
    """A run whose summary says exactly these figures."""
    names = ("mean", "size_weighted_mean", "std", "worst10", "best10")
    metric = {name: figures.get(name) for name in names}
    verdicts = ["gains"] * int(figures.get("helped") or 0) + ["cannot tell"] * 2 + ["loses"]
    rows = [
        {
            "client": f"c{i}",
            "gain": 0.1,
            "gain_low": 0.0,
            "gain_high": 0.2,
            "verdict": v,
            "gain_p": 0.5 if v == "cannot tell" else 1e-6,
        }
        for i, v in enumerate(verdicts)
    ]
    stored = {"mean": {"estimate": 0.031, "low": 0.012, "high": 0.05}, "basis": "seeds"}
    return make_record(
        label,
        rows if figures.get("helped") else [],
        [],
        seed=seed,
        metric="accuracy",
        models={
            "personal": {"test": {"accuracy": metric}},
            "constant": {"test": {"accuracy": {"mean": figures.get("constant", 0.4)}}},
        },
        gains={"alone": stored} if figures.get("helped") else {},
        bits_up=figures.get("up", 0),
        bits_down=figures.get("down", 0),
        seconds=figures.get("seconds", 1.0),
    )


TWO_SEEDS = [
    stated("APFL", 0, mean=0.80, size_weighted_mean=0.82, std=0.1, worst10=0.5, best10=0.99, helped=3, up=2_000_000),
    stated("APFL", 1, mean=0.90, size_weighted_mean=0.84, std=0.1, worst10=0.6, best10=0.99, helped=3, up=2_000_000),
    stated("FedAvg", 0, mean=0.70, size_weighted_mean=0.86, std=0.2, worst10=0.3, best10=0.98, up=1_500_000),
]


def bold(table: Table, key: str) -> list[bool]:
    column = next(j for j, column in enumerate(table.columns) if column.key.endswith(key))
    return [table.is_best(i, column) for i in range(len(table.lines))]


def seeds(label: str, means: list[float], **more: float) -> list[RunRecord]:
    return [stated(label, seed, mean=mean, **more) for seed, mean in enumerate(means)]


def test_a_row_is_the_mean_over_runs_with_the_sample_standard_deviation() -> None:
    table = comparison_table(TWO_SEEDS)
    assert [line.label for line in table.lines] == ["APFL", "FedAvg", "Constant"]
    assert [len(line.runs) for line in table.lines] == [2, 1, 2]
    mean = table.lines[0].cells[0]
    assert mean.mean == pytest.approx(0.85)
    assert mean.spread == pytest.approx(0.05 * 2**0.5)  # deviations ±0.05, divided by 2 - 1
    assert table.lines[1].cells[0].spread is None
    assert table.headers[:3] == ["Method", "Test accuracy (mean, %)", "Gain over alone (95% interval, points)"]
    assert table.rows[0] == [
        "APFL", "85.0 ± 7.1", "+3.1 (1.2 to 5.0)", "3", "1", "2", "55.0 ± 7.1", "2.00", "1.00", "99.0 ± 0.0",
        "83.0 ± 1.4", "–", "10.0", "0",
    ]  # fmt: skip
    assert table.rows[1][1:7] == ["70.0", "–", "–", "–", "–", "30.0"]
    assert table.rows[2][:3] == ["Constant", "40.0", "–"]


def test_csv_holds_the_plain_numbers() -> None:
    rows = list(csv.DictReader(io.StringIO(comparison_table(TWO_SEEDS).to_csv())))
    assert [row["method"] for row in rows] == ["APFL", "FedAvg", "Constant"]
    assert float(rows[0]["test_accuracy_mean"]) == pytest.approx(0.85)
    assert float(rows[0]["test_accuracy_mean_run_std"]) == pytest.approx(0.0707106781)
    assert [float(rows[0][key]) for key in ("gain", "gain_low", "gain_high")] == [0.031, 0.012, 0.05]
    assert [float(rows[0][key]) for key in ("helped", "harmed", "undecided")] == [3, 1, 2]
    assert float(rows[1]["bits_up"]) == 1_500_000
    assert rows[1]["test_accuracy_mean_run_std"] == rows[1]["gain"] == rows[1]["helped"] == ""
    assert float(rows[2]["test_accuracy_mean"]) == 0.4


def test_bold_are_the_best_and_those_that_paired_runs_cannot_tell_from_it() -> None:
    best, worse = [0.80, 0.84, 0.82, 0.86], [0.70, 0.74, 0.73, 0.75]
    level = [0.79, 0.86, 0.80, 0.85]  # differences -1, +2, -2, -1 points: nothing that four runs could tell
    assert stats.ttest_rel(best, worse).pvalue < 0.05 < stats.ttest_rel(best, level).pvalue
    table = comparison_table([*seeds("A", best), *seeds("B", worse), *seeds("C", level)])
    assert bold(table, "mean") == [True, False, True, False]
    assert r"\textbf{83.0} $\pm$ 2.6" in table.to_latex()
    assert "**83.0 ± 2.6**" in table.to_markdown()
    assert "**" not in comparison_table([*seeds("A", best), *seeds("C", level)]).to_markdown()  # nobody is worse
    assert "**" not in comparison_table([*seeds("A", best[:1]), *seeds("B", worse[:1])]).to_markdown()  # one run each
    assert "**" not in comparison_table([*seeds("A", best), *seeds("B", worse[:3])]).to_markdown()  # other runs


def test_differences_over_splits_are_wider_than_over_independent_runs() -> None:
    values = [0.02, 0.05, 0.01, 0.04, 0.03]
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1))
    for overlap in (0.0, 0.25):
        low, high = stats.t.interval(0.95, 4, mean, error * np.sqrt(1 / 5 + overlap))
        interval = difference(values, overlap)
        assert (interval.low, interval.high) == pytest.approx((low, high))
    assert difference([0.1], 0.0).sign == "undecided"


def test_a_regression_prefers_the_smaller_error() -> None:
    runs = [make_run(n, seed=s, metric="rmse", lift=x) for n, x in (("A", 0.1), ("B", -0.1)) for s in range(3)]
    table = comparison_table(runs)
    assert table.headers[1] == "Test RMSE (mean)"
    assert bold(table, "mean")[:2] == [True, False]
    errors = [sorted(float(row["personal_test_rmse"]) for row in run.clients) for run in runs[:3]]
    worst = next(j for j, column in enumerate(table.columns) if column.key.endswith("worst10"))
    assert table.lines[0].cells[worst].mean == pytest.approx(np.mean([one[-1] for one in errors]))  # of six clients


def test_a_diverged_run_is_named_and_never_the_best() -> None:
    lifts = {"Good": 0.1, "Wild": 0.3, "Bad": -0.1}
    runs = [make_run(n, seed=s, lift=x, diverged=n == "Wild") for s in range(3) for n, x in lifts.items()]
    table = comparison_table(runs)
    assert table.rows[1][0].startswith("Wild (diverged")
    assert bold(table, "mean")[:3] == [True, False, False]


def test_a_method_below_the_constant_predictor_is_named_and_never_the_best() -> None:
    runs = [*seeds("A", [0.7, 0.71], constant=0.75), *seeds("B", [0.8, 0.81], constant=0.75), *seeds("C", [0.9, 0.91])]
    table = comparison_table(runs)
    assert [line.name for line in table.lines] == ["A (worse than constant)", "B", "C", "Constant"]
    assert bold(table, "mean") == [False, False, True, False]
    rows = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert [row["worse_than_constant"] for row in rows] == ["true", "false", "false", "false"]


def test_going_alone_is_a_row_unless_a_method_is_just_that() -> None:
    run = make_run("FedAvg")
    table = comparison_table([run])
    assert [line.label for line in table.lines] == ["FedAvg", "Constant", "Alone"]
    assert table.lines[2].cells[0].mean == run.summary["models"]["alone"]["test"]["accuracy"]["mean"]
    local = make_run("Local", algorithm="local", models=("personal", "alone"))
    assert [line.label for line in comparison_table([run, local]).lines] == ["FedAvg", "Local", "Constant"]


def test_a_missing_run_is_not_averaged_away() -> None:
    runs = [stated("APFL", 0, mean=0.9), stated("APFL", 1, mean=float("nan"))]
    assert comparison_table(runs).rows[0][1] == "–"


def test_a_method_without_a_personal_model_is_judged_by_its_global_one() -> None:
    run = make_run("FedAvg", models=("global", "alone"))
    expected = run.summary["models"]["global"]["test"]["accuracy"]["mean"]
    assert comparison_table([run]).lines[0].cells[0].mean == expected


def test_special_characters_survive_markdown_and_latex() -> None:
    table = comparison_table([stated(r"a_b & 50% #1 {x} \y | <z>", mean=0.5)])
    assert r"a\_b \& 50\% \#1 \{x\} \textbackslash{}y | \textless{}z\textgreater{}" in table.to_latex()
    assert r"a\_b & 50% #1 {x} \\y \| \<z\>" in table.to_markdown()
    latex = table.to_latex()
    assert latex.startswith(f"\\begin{{tabular}}{{l{'r' * len(table.columns)}}}\n\\toprule\n")
    assert latex.endswith("\\bottomrule\n\\end{tabular}\n")


def test_write_table_leaves_three_files(tmp_path) -> None:
    paths = write_table(TWO_SEEDS, tmp_path / "new")
    assert [path.name for path in paths] == ["table.csv", "table.md", "table.tex"]
    assert paths[1].read_text(encoding="utf-8") == comparison_table(TWO_SEEDS).to_markdown()


def test_no_runs_mixed_metrics_and_old_runs_are_refused() -> None:
    with pytest.raises(PolyfedError, match="at least one run"):
        comparison_table([])
    with pytest.raises(PolyfedError, match=r"'B' shows RMSE and run 'A' accuracy"):
        comparison_table([make_run("A"), make_run("B", metric="rmse")])
    old = make_run("A")
    del old.summary["metric"]
    with pytest.raises(PolyfedError, match=r"older version of polyfed.*run it again"):
        comparison_table([old])


@pytest.mark.parametrize("name", GALLERY)
def test_eighty_columns_hold_metric_gain_and_verdicts_of_every_study(name: str) -> None:
    table = comparison_table(GALLERY[name]())
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    console.print(terminal_table(table, 80))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= 80
    head = " ".join(text.splitlines()[:2])
    assert all(word in head for word in ("gain over alone", "helps", "harms", "cannot", "tell"))
    assert "…" not in text
    for i in range(len(table.lines)):
        assert table.text(i, 1) in text
