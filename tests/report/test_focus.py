"""Whom the headline is about: a sound method, chosen by its validation loss, and called by its name."""

from __future__ import annotations

from polyfed.report.cautions import cautions
from polyfed.report.headline import headline
from polyfed.report.methods import group
from polyfed.report.table import comparison_table
from polyfed.studies.run_directory import RunRecord
from tests.report.test_headline import UP, judged_run


def method(
    label: str, test: float = 0.7, validation: float = 0.7, loss: float | None = None, constant: float | None = None
) -> RunRecord:
    """A method with these figures: AUC on test and validation rows, and the loss on the latter beside a constant's."""
    run = judged_run([UP], label=label, figures={"personal": test})
    for model, auc, value in (("personal", validation, loss), ("constant", 0.5, constant)):
        figures = {"auc": {"mean": auc}} | ({} if value is None else {"loss": {"mean": value}})
        run.summary["models"][model]["validation"] = figures
    return run


def test_the_lowest_validation_loss_chooses_whatever_the_metric_says() -> None:
    story = headline(group([method("A", 0.9, 0.9, loss=0.3), method("B", 0.6, 0.6, loss=0.2), method("C", loss=0.4)]))
    assert story.focus.label == "B"
    assert story.details[0] == "Of the 3 methods that train together, B has the lowest validation loss."


def test_without_a_loss_the_metric_on_validation_rows_chooses_and_then_on_test_rows() -> None:
    story = headline(group([method("A", 0.9, 0.7), method("B", 0.6, 0.8)]))
    assert story.focus.label == "B"
    assert story.details[0].endswith("B has the best mean AUC on the validation rows.")
    on_test = headline(
        group([judged_run([UP], label="A", figures={"personal": 0.9}), judged_run([UP], label="B")]),
    )
    assert on_test.focus.label == "A"
    assert "the same rows that are reported here" in on_test.details[0]


def test_a_loss_above_the_constants_rules_a_method_out_however_well_it_ranks() -> None:
    good, bad = method("Good", loss=0.25, constant=0.263), method("Bad", 0.9, 0.9, loss=1.13, constant=0.263)
    story = headline(group([good, bad]))
    assert story.focus.label == "Good"
    assert [line.name for line in comparison_table([good, bad]).lines[:2]] == ["Good", "Bad (worse than constant)"]
    assert "it has a mean validation loss of 1.130, the constant predictor 0.2630." in cautions(group([good, bad]))
    assert headline(group([bad])).sentence == (
        "Bad does not beat predicting the same for every row of a client: it has a mean validation loss of 1.130, "
        "the constant predictor 0.2630."
    )


def test_without_validation_rows_the_loss_on_test_rows_rules_out() -> None:
    bad, good = judged_run([UP], label="Bad", figures={"personal": 0.9}), judged_run([UP], label="Good")
    for run, loss in ((bad, 1.1), (good, 0.2)):
        run.summary["models"]["personal"]["test"]["log_loss"] = {"mean": loss}
        run.summary["models"]["constant"]["test"]["log_loss"] = {"mean": 0.3}
    assert headline(group([bad, good])).focus.label == "Good"
    for run in (bad, good):  # training aims at another loss than the one that is measured
        run.config["problem"]["class_weight"] = "balanced"
    assert headline(group([bad, good])).focus.label == "Bad"


def test_a_run_that_warned_of_its_training_loss_is_never_in_focus() -> None:
    bad, good = method("Bad", 0.9, 0.9), method("Good")
    good.summary["cautions"] = ["a loss and a constant prediction in a sentence say nothing of the run"]
    bad.summary["worse_than_constant"] = True
    assert headline(group([bad, good])).focus.label == "Good"
    assert comparison_table([bad, good]).lines[0].marks == ("worse than constant",)
    assert headline(group([bad])).sentence.endswith("it has a training loss above that of a constant prediction.")


def test_figures_that_differ_little_are_shown_apart() -> None:
    run = method("Close", loss=0.26404, constant=0.26398)
    assert "loss of 0.26404, the constant predictor 0.26398." in headline(group([run])).sentence


def test_the_only_method_left_is_called_by_its_name() -> None:
    local = judged_run([], label="Local", algorithm="local")
    story = headline(group([local, method("Good", loss=0.2)]))
    assert story.details[0] == "This is about Good, the only method that trains together."
    wild = judged_run([UP], label="Wild", diverged=True)
    bad = method("Bad", loss=1.1, constant=0.3)
    story = headline(group([local, wild, method("Good", loss=0.2), bad]))
    assert story.details[0] == (
        "Of the 3 methods that train together, this is about Good: the others diverged or are worse than a constant "
        "prediction."
    )
    assert not any("is about" in detail for detail in headline(group([method("Good", loss=0.2)])).details)


def test_a_method_without_a_finite_loss_cannot_win_by_having_none() -> None:
    story = headline(group([method("None", 0.9, 0.9), method("A", loss=0.3), method("B", loss=0.2)]))
    assert story.focus.label == "B"
    assert story.details[0].endswith("B has the lowest validation loss; 1 of them has none.")
