"""The headline says what the numbers say, good or bad."""

from __future__ import annotations

from typing import Any

from polyfed.report.headline import headline
from polyfed.report.methods import group
from polyfed.studies.run_directory import RunRecord
from tests.report.samples import make_record


def run_of(
    deployed: list[float], alone: list[float] | None, *, label: str = "APFL", shared: float | None = 0.5, **more: Any
) -> RunRecord:
    """A run with one personal, one global and one lonely figure per client."""
    metric = more.pop("metric", "accuracy")
    rows: list[dict[str, Any]] = []
    for i, value in enumerate(deployed):
        row: dict[str, Any] = {"client": f"c{i}", "train_rows": 10.0, f"personal_test_{metric}": value}
        if shared is not None:
            row[f"global_test_{metric}"] = shared
        if alone is not None:
            row[f"alone_test_{metric}"] = alone[i]
        rows.append(row)
    return make_record(label, rows, [], metric=metric, **more)


def sentence(*runs: RunRecord) -> str:
    return headline(group(runs)).sentence


def test_it_counts_who_gains_and_by_how_much() -> None:
    story = headline(group([run_of([0.9, 0.8, 0.7, 0.6], [0.8, 0.7, 0.6, 0.65])]))
    # gains +10, +10, +10, -5: the mean is 6.25
    assert story.sentence == (
        "Training together and personalizing helps 3 of 4 clients; "
        "on average +6.2 points of test accuracy over going alone."
    )
    assert story.details[0] == "1 client is better off alone, by 5.0 points (client c3)."


def test_it_does_not_hide_bad_news() -> None:
    assert sentence(run_of([0.5, 0.6], [0.6, 0.7])) == (
        "Training together and personalizing helps none of the 2 clients; "
        "on average −10.0 points of test accuracy compared with going alone."
    )
    assert sentence(run_of([0.61, 0.61, 0.3], [0.6, 0.6, 0.6])) == (
        "Training together and personalizing helps 2 of 3 clients, but the others lose more: "
        "on average −9.3 points of test accuracy compared with going alone."
    )
    assert "helps only 1 of 3 clients; even so, on average +9.3 points" in sentence(
        run_of([0.9, 0.59, 0.59], [0.6] * 3)
    )
    assert "changes nothing for the 2 clients" in sentence(run_of([0.6, 0.6], [0.6, 0.6]))


def test_one_client_and_one_global_model_are_called_by_their_names() -> None:
    assert sentence(run_of([0.7], [0.6], shared=0.7)) == (
        "Training together helps the only client: +10.0 points of test accuracy over going alone."
    )


def test_a_regression_speaks_of_error() -> None:
    assert sentence(run_of([0.4, 0.5], [0.6, 0.6], metric="error", shared=0.6)) == (
        "Training together and personalizing helps all 2 clients; "
        "on average the test error is 25.0% lower than alone (0.450 instead of 0.600)."
    )
    assert "20.0% higher than alone (0.600 instead of 0.500)" in sentence(run_of([0.6], [0.5], metric="error"))


def test_without_a_figure_for_going_alone_it_compares_with_the_global_model() -> None:
    story = headline(group([run_of([0.6, 0.7], None)]))
    assert story.sentence.startswith("Personalizing helps all 2 clients; on average +15.0 points")
    assert story.details == ("How each client would do alone was not measured.",)
    assert sentence(run_of([0.6, 0.7], None, shared=None)) == (
        "APFL reaches a mean test accuracy of 65.0% over 2 clients."
    )


def test_purely_local_training_is_not_called_training_together() -> None:
    local = run_of([0.6, 0.7], [0.6, 0.7], label="Local", shared=None, algorithm="local")
    assert sentence(local) == "Going alone, the clients reach a mean test accuracy of 65.0% over 2 clients."
    assert headline(group([local, run_of([0.5, 0.5], [0.6, 0.7])])).focus.label == "APFL"


def test_a_diverged_run_is_never_the_headline_of_success() -> None:
    assert sentence(run_of([0.9], [0.5], diverged=True)) == "APFL diverged: its figures are not a result."
    both = [run_of([0.9], [0.5], label="Wild", diverged=True), run_of([0.6], [0.5], label="Calm")]
    assert headline(group(both)).focus.label == "Calm"


def test_the_method_is_chosen_on_validation_rows_where_there_are_any() -> None:
    runs = [run_of([0.9], [0.5], label="A"), run_of([0.6], [0.5], label="B")]
    on_test = headline(group(runs))
    assert on_test.focus.label == "A"
    assert "the same rows that are reported here" in on_test.details[0]
    for run, value in zip(runs, (0.3, 0.4), strict=True):
        run.summary["models"]["personal"]["validation"] = {"accuracy": {"mean": value}}
    on_validation = headline(group(runs))
    assert on_validation.focus.label == "B"
    assert on_validation.details[0].endswith("B has the best mean on the validation rows.")


def test_seeds_are_averaged_client_by_client_before_counting() -> None:
    runs = [run_of([0.9, 0.5], [0.6, 0.6], seed=0), run_of([0.5, 0.5], [0.6, 0.6], seed=1)]
    assert "helps 1 of 2 clients" in sentence(*runs)  # client 0: +30 and -10, so +10; client 1: -10
