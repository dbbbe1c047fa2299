"""The comparison table against numbers worked out by hand."""

from __future__ import annotations

import csv
import io

import pytest

from polyfed.core.errors import PolyfedError
from polyfed.report import comparison_table, write_table
from polyfed.studies.run_directory import RunRecord
from tests.report.samples import make_record, make_run


def stated(label: str, seed: int = 0, **figures: float | None) -> RunRecord:
    """A run whose summary says exactly these figures."""
    names = ("mean", "size_weighted_mean", "std", "worst10", "best10")
    metric = {name: figures.get(name) for name in names}
    return make_record(
        label,
        [],
        [],
        seed=seed,
        metric="accuracy",
        models={"personal": {"test": {"accuracy": metric}}},
        better_than_alone=figures.get("alone"),
        better_than_global=figures.get("global_"),
        bits_up=figures.get("up", 0),
        bits_down=figures.get("down", 0),
        seconds=figures.get("seconds", 1.0),
    )


TWO_SEEDS = [
    stated("APFL", 0, mean=0.80, size_weighted_mean=0.82, std=0.1, worst10=0.5, best10=0.99, alone=0.75, up=2_000_000),
    stated("APFL", 1, mean=0.90, size_weighted_mean=0.84, std=0.1, worst10=0.6, best10=0.99, alone=0.85, up=2_000_000),
    stated(
        "FedAvg", 0, mean=0.70, size_weighted_mean=0.86, std=0.2, worst10=0.3, best10=0.98, alone=0.40, up=1_500_000
    ),
]


def test_a_row_is_the_mean_over_seeds_with_the_sample_standard_deviation() -> None:
    table = comparison_table(TWO_SEEDS)
    assert table.labels == ("APFL", "FedAvg")
    assert table.seeds == (2, 1)
    mean = table.cells[0][0]
    assert mean.mean == pytest.approx(0.85)
    assert mean.spread == pytest.approx(0.05 * 2**0.5)  # deviations ±0.05, divided by 2 - 1
    assert table.cells[1][0].spread is None
    assert table.headers[:3] == ["Method", "Test accuracy (mean, %)", "Size-weighted"]
    assert table.rows[0] == [
        "APFL", "85.0 ± 7.1", "83.0 ± 1.4", "10.0", "55.0 ± 7.1", "99.0 ± 0.0", "80.0 ± 7.1", "–", "2.00", "0", "1.00",
    ]  # fmt: skip
    assert table.rows[1] == ["FedAvg", "70.0", "86.0", "20.0", "30.0", "98.0", "40.0", "–", "1.50", "0", "1.00"]


def test_csv_holds_the_plain_numbers() -> None:
    rows = list(csv.DictReader(io.StringIO(comparison_table(TWO_SEEDS).to_csv())))
    assert [row["method"] for row in rows] == ["APFL", "FedAvg"]
    assert float(rows[0]["test_accuracy_mean"]) == pytest.approx(0.85)
    assert float(rows[0]["test_accuracy_mean_seed_std"]) == pytest.approx(0.0707106781)
    assert float(rows[1]["bits_up"]) == 1_500_000
    assert rows[1]["test_accuracy_mean_seed_std"] == ""
    assert rows[0]["better_than_global"] == ""


def test_the_best_of_each_quality_column_is_bold() -> None:
    table = comparison_table(TWO_SEEDS)
    best = {column.key: [table.is_best(i, j) for i in range(2)] for j, column in enumerate(table.columns)}
    assert best["test_accuracy_mean"] == [True, False]
    assert best["test_accuracy_size_weighted_mean"] == [False, True]
    assert best["better_than_alone"] == [True, False]
    assert best["bits_up"] == best["seconds"] == best["better_than_global"] == [False, False]
    assert r"\textbf{85.0} $\pm$ 7.1" in table.to_latex()
    assert "**85.0 ± 7.1**" in table.to_markdown()


def test_a_regression_prefers_the_smaller_error() -> None:
    runs = [make_run("A", metric="error", lift=0.1), make_run("B", metric="error", lift=-0.1)]
    table = comparison_table(runs)
    assert table.headers[1] == "Test error (mean)"
    means = [row[0].mean for row in table.cells]
    assert means[0] is not None
    assert means[1] is not None
    assert means[0] < means[1]
    assert [table.is_best(i, 0) for i in range(2)] == [True, False]
    errors = sorted(row["personal_test_error"] for row in runs[0].clients)
    assert table.cells[0][3].mean == pytest.approx(errors[-1])  # worst tenth of six clients: the largest error
    assert table.cells[0][4].mean == pytest.approx(errors[0])


def test_a_diverged_run_is_named_and_never_the_best() -> None:
    table = comparison_table([make_run("Good"), make_run("Wild", lift=0.2, diverged=True), make_run("Fair", lift=0.01)])
    assert table.rows[1][0] == "Wild (diverged)"
    assert not any(table.is_best(1, j) for j in range(len(table.columns)))


def test_a_missing_seed_is_not_averaged_away() -> None:
    runs = [stated("APFL", 0, mean=0.9), stated("APFL", 1, mean=float("nan"))]
    assert comparison_table(runs).rows[0][1] == "–"


def test_a_method_without_a_personal_model_is_judged_by_its_global_one() -> None:
    run = make_run("FedAvg", models=("global", "alone"))
    expected = run.summary["models"]["global"]["test"]["accuracy"]["mean"]
    assert comparison_table([run]).cells[0][0].mean == expected


def test_special_characters_survive_markdown_and_latex() -> None:
    table = comparison_table([stated(r"a_b & 50% #1 {x} \y | <z>", mean=0.5)])
    assert r"a\_b \& 50\% \#1 \{x\} \textbackslash{}y | \textless{}z\textgreater{}" in table.to_latex()
    assert r"a\_b & 50% #1 {x} \\y \| \<z\>" in table.to_markdown()
    latex = table.to_latex()
    assert latex.startswith("\\begin{tabular}{lrrrrrrrrrr}\n\\toprule\n")
    assert latex.endswith("\\bottomrule\n\\end{tabular}\n")


def test_write_table_leaves_three_files(tmp_path) -> None:
    paths = write_table(TWO_SEEDS, tmp_path / "new")
    assert [path.name for path in paths] == ["table.csv", "table.md", "table.tex"]
    assert paths[1].read_text(encoding="utf-8") == comparison_table(TWO_SEEDS).to_markdown()


def test_no_runs_and_mixed_tasks_are_refused() -> None:
    with pytest.raises(PolyfedError, match="at least one run"):
        comparison_table([])
    with pytest.raises(PolyfedError, match=r"'B' measures the error.*'A'"):
        comparison_table([make_run("A"), make_run("B", metric="error")])
