"""The headline says what the numbers say, good or bad, and no more than they can tell."""

from __future__ import annotations

from typing import Any

import pytest

from polyfed.report.headline import headline
from polyfed.report.methods import group
from polyfed.studies.run_directory import RunRecord
from tests.report.samples import make_record

Judged = tuple[str, float]
"""A verdict, and the gain that it is about; its interval reaches 0.02 to either side."""
UP, DOWN, OPEN = ("gains", 0.05), ("loses", -0.03), ("cannot tell", 0.01)


def judged_run(
    alone: list[Judged],
    *,
    mean: tuple[float, float, float] | None = (0.031, 0.012, 0.05),
    over_global: list[Judged] | None = None,
    label: str = "APFL",
    metric: str = "auc",
    figures: dict[str, float] | None = None,
    constant: tuple[float, float, float] = (0.2, 0.1, 0.3),
    **more: Any,
) -> RunRecord:
    """A run that was judged so. `figures`: the mean test metric of its models."""
    rows: list[dict[str, Any]] = [
        {"client": f"c{i}", "train_rows": 10.0} for i in range(max(len(alone), len(over_global or [])))
    ]
    for prefix, judged in (("", alone), ("global_", over_global or [])):
        for row, (verdict, gain) in zip(rows, judged, strict=bool(judged)):
            row |= {f"{prefix}gain": gain, f"{prefix}gain_low": gain - 0.02, f"{prefix}gain_high": gain + 0.02}
            row |= {f"{prefix}verdict": verdict, f"{prefix}gain_p": 0.5 if verdict == "cannot tell" else 1e-6}
            row |= {} if prefix else {"detectable": 0.05}
    stored = None if mean is None else dict(zip(("estimate", "low", "high"), mean, strict=True))
    gains = {
        "alone": {"mean": stored, "basis": "splits"} if alone else None,
        "global": {"mean": stored, "basis": "splits"} if over_global else None,
        "constant": {"mean": dict(zip(("estimate", "low", "high"), constant, strict=True))},
    }
    means = {"personal": 0.78, "constant": 0.5} | (figures or {})
    if metric == "rmse" and not figures:
        means = {"personal": 0.5, "constant": 0.78}
    models = {model: {"test": {metric: {"mean": value}}} for model, value in means.items()}
    return make_record(label, rows, [], metric=metric, **{"models": models, "gains": gains} | more)


def sentence(*runs: RunRecord) -> str:
    return headline(group(runs)).sentence


TAIL = " On average AUC rises by 0.031 (95% interval 0.012 to 0.050) over going alone."


@pytest.mark.parametrize(
    ("verdicts", "start"),
    [
        ([UP] * 5 + [DOWN] + [OPEN] * 10, "helps 5 of 16 clients for certain, harms 1; for 10 the rows cannot tell."),
        ([UP] * 5 + [OPEN] * 3, "helps 5 of 8 clients for certain and harms none; for 3 the rows cannot tell."),
        ([DOWN] * 2 + [OPEN] * 3, "harms 2 of 5 clients for certain and helps none; for 3 the rows cannot tell."),
        ([UP, DOWN], "helps 1 of 2 clients for certain, harms 1."),
        ([UP] * 4, "helps all 4 clients for certain."),
        ([DOWN] * 4, "harms all 4 clients for certain."),
    ],
)
def test_it_counts_what_is_certain(verdicts: list[Judged], start: str) -> None:
    assert sentence(judged_run(verdicts)) == f"Training together {start}{TAIL}"


def test_personalizing_is_named_where_clients_deploy_something_of_their_own() -> None:
    story = headline(group([judged_run([UP, OPEN, OPEN], over_global=[UP, UP, DOWN])]))
    assert story.sentence.startswith("Training together and personalizing helps 1 of 3 clients for certain")
    assert "Against the one global model, personalizing helps 2 of 3 clients for certain and harms 1." in story.details


def test_where_no_row_can_tell_it_says_what_could_have_been_seen() -> None:
    assert sentence(judged_run([OPEN] * 8, mean=(0.013, -0.02, 0.046))) == (
        "These rows cannot tell whether training together helps any of the 8 clients: nothing below 0.050 AUC could "
        "have been seen at the median client. On average AUC rises by 0.013 compared with going alone, which may be "
        "chance (95% interval of the gain −0.020 to 0.046)."
    )


def test_the_average_speaks_the_metrics_own_language() -> None:
    assert sentence(judged_run([DOWN] * 2, mean=(-0.04, -0.06, -0.02), metric="accuracy")).endswith(
        "On average accuracy falls by 4.0 points (95% interval 2.0 to 6.0) compared with going alone."
    )
    assert sentence(judged_run([UP] * 2, metric="rmse")).endswith(
        "On average RMSE falls by 0.031 (95% interval 0.012 to 0.050) compared with going alone."
    )
    assert sentence(judged_run([DOWN] * 2, mean=(-0.04, -0.06, -0.02), metric="rmse")).endswith(
        "On average RMSE rises by 0.040 (95% interval 0.020 to 0.060) compared with going alone."
    )
    assert "may be chance (no interval)" in sentence(judged_run([UP, OPEN], mean=(0.04, float("nan"), float("nan"))))


def test_one_client_is_called_the_only_one() -> None:
    assert sentence(judged_run([UP], mean=None)) == (
        "Training together helps the only client for certain. "
        "Its AUC rises by 0.050 (95% interval 0.030 to 0.070) over going alone."
    )
    assert sentence(judged_run([OPEN], mean=None)) == (
        "These rows cannot tell whether training together helps the only client: nothing below 0.050 AUC could have "
        "been seen. Its AUC rises by 0.010 compared with going alone, which may be chance "
        "(95% interval of the gain −0.010 to 0.030)."
    )


@pytest.mark.parametrize(("metric", "moves"), [("auc", "AUC falls"), ("rmse", "RMSE rises")])
def test_an_interval_that_holds_both_signs_is_that_of_the_gain_as_in_the_tables(metric: str, moves: str) -> None:
    run = judged_run([OPEN] * 2, mean=(-0.02, -0.28, 0.24), metric=metric)
    assert f"On average {moves} by 0.020 compared with going alone, which may be chance " in sentence(run)
    assert "(95% interval of the gain −0.28 to 0.24)" in sentence(run)


def test_without_a_figure_for_going_alone_it_compares_with_the_global_model() -> None:
    story = headline(group([judged_run([], over_global=[UP, OPEN])]))
    assert story.sentence == (
        "Personalizing helps 1 of 2 clients for certain and harms none; for 1 the rows cannot tell. "
        "On average AUC rises by 0.031 (95% interval 0.012 to 0.050) over the global model."
    )
    assert "How each client would do alone was not measured." in story.details
    assert sentence(judged_run([])) == "APFL reaches a mean test AUC of 0.7800 over 0 clients."


def test_purely_local_training_is_not_called_training_together() -> None:
    local = judged_run([], label="Local", algorithm="local")
    assert sentence(local).startswith("Going alone, the clients reach a mean test AUC of 0.7800")
    assert headline(group([local, judged_run([DOWN])])).focus.label == "APFL"


def test_what_diverged_leaks_or_is_below_the_constant_predictor_is_never_recommended() -> None:
    assert sentence(judged_run([UP], diverged=True)) == "APFL diverged: its figures are not a result."
    calm = judged_run([UP], label="Calm", figures={"personal": 0.6})
    wild = judged_run([UP], label="Wild", figures={"personal": 0.9}, diverged=True)
    leak = judged_run([UP], label="Leak", figures={"personal": 0.9}, adapted_on_test=True)
    poor = judged_run([UP], label="Poor", figures={"personal": 0.9, "constant": 0.95})
    for other in (wild, leak, poor):
        assert headline(group([other, calm])).focus.label == "Calm"
        assert headline(group([calm, other])).focus.label == "Calm"
    assert sentence(leak).startswith("Test labels leak, so this is no result. Training together helps the only client")


def test_a_share_is_told_in_points_also_beside_the_constant_predictor() -> None:
    unsure = headline(group([judged_run([UP] * 3, metric="accuracy", constant=(0.134, -0.01, 0.278))]))
    assert any("accuracy is better by +13.4 points (95% interval −1.0 to 27.8)" in word for word in unsure.details)


def test_a_small_gain_is_told_with_two_digits() -> None:
    assert "AUC rises by 0.037 compared with" in sentence(judged_run([UP, OPEN], mean=(0.037, -0.9, 0.96)))
    assert "AUC falls by 0.0024 compared with" in sentence(judged_run([UP, OPEN], mean=(-0.0024, -0.7, 0.7)))
    points = sentence(judged_run([UP, OPEN], mean=(0.00037, -0.05, 0.05), metric="accuracy"))
    assert "accuracy rises by 0.037 points compared with" in points


def test_clients_without_an_interval_could_have_shown_nothing() -> None:
    run = judged_run([OPEN] * 5, mean=(0.013, -0.02, 0.046))
    for row in run.clients[:2]:
        row |= {"gain_low": "", "gain_high": "", "detectable": ""}
    assert "nothing below 0.050 AUC could have been seen at the median client" in sentence(run)
    run.clients[2] |= {"gain_low": "", "gain_high": "", "detectable": ""}
    assert "any of the 5 clients: at most clients no difference could have been seen. On average" in sentence(run)
    one = judged_run([OPEN], mean=None)
    one.clients[0] |= {"gain_low": "", "gain_high": "", "detectable": ""}
    assert "helps the only client: no difference could have been seen." in sentence(one)


def test_no_difference_is_spoken_of_that_cannot_be() -> None:
    run = judged_run([OPEN] * 2, mean=(0.5, -1.5, 2.5), metric="accuracy", constant=(0.5, -1.5, 2.5))
    for row in run.clients:
        row["detectable"] = 1.125
    story = headline(group([run]))
    assert "helps any of the 2 clients: no difference could have been seen at any of them." in story.sentence
    assert (
        "by 50.0 points compared with going alone, which may be chance (95% interval of the gain −100.0 to 100.0)"
        in (story.sentence)
    )
    assert any("better by +50.0 points (95% interval −100.0 to 100.0)" in detail for detail in story.details)
    error = judged_run([OPEN] * 2, mean=(0.5, -1.5, 2.5), metric="rmse")
    assert "(95% interval of the gain −1.5 to 2.5)" in sentence(error)
    error.clients[0]["detectable"] = error.clients[1]["detectable"] = 3.0
    assert "nothing below 3.0 RMSE could have been seen" in sentence(error)


def test_the_mean_says_how_many_clients_it_is_over() -> None:
    run = judged_run([UP, OPEN, OPEN])
    run.summary["gains"]["alone"]["mean_clients"] = 3
    assert "On average AUC rises" in sentence(run)
    run.summary["gains"]["alone"]["mean_clients"] = 2
    assert "On average over 2 of 3 clients AUC rises" in sentence(run)
    few = judged_run([], undefined={"auc": ["c1", "c2"]}, over_global=[("", 0.0)] * 5)
    few.summary["gains"]["global"] = None
    assert sentence(few) == "APFL reaches a mean test AUC of 0.7800 over 3 of 5 clients."


def test_where_all_are_below_the_constant_predictor_it_says_so() -> None:
    poor = {"personal": 0.48, "constant": 0.5}
    runs = [judged_run([UP] * 3, label=label, figures=poor) for label in ("A", "B")]
    assert sentence(*runs) == (
        "None of the methods beats predicting the same for every row of a client; A, the best of them, has a mean "
        "test AUC of 0.4800, the constant predictor 0.5000."
    )
    assert sentence(runs[0]).startswith("A does not beat predicting the same for every row of a client: it has a mean")


def test_a_method_that_may_be_no_better_than_constant_has_it_said() -> None:
    unsure = headline(group([judged_run([UP] * 3, constant=(0.02, -0.01, 0.05))]))
    assert any("cannot be told from predicting the same" in detail for detail in unsure.details)
    assert not any("predicting" in detail for detail in headline(group([judged_run([UP] * 3)])).details)


def test_runs_that_were_judged_apart_count_only_what_all_agree_on() -> None:
    first = judged_run([UP, UP, DOWN], mean=(0.02, 0.01, 0.03), seed=0)
    second = judged_run([UP, OPEN, DOWN], mean=(0.04, 0.0, 0.06), seed=1)
    method = group([first, second])[0]
    gains = method.gains
    assert gains is not None
    assert [client.verdict for client in gains.clients] == ["gains", "cannot tell", "loses"]
    assert gains.clients[1].gain == pytest.approx(0.03)
    assert gains.mean is not None
    assert (gains.mean.estimate, gains.mean.low, gains.mean.high) == pytest.approx((0.03, -0.01, 0.05))
    story = headline([method])
    assert any("judged 2 times apart" in detail for detail in story.details)
    together = judged_run([UP, UP, DOWN], mean=(0.02, 0.01, 0.03), seed=1)
    assert not any("apart" in detail for detail in headline(group([first, together])).details)


def test_a_sample_and_privacy_are_said() -> None:
    spent = {"epsilon": 3.0, "delta": 0.01, "neighbours": "add or remove one client"}
    story = headline(group([judged_run([UP] * 2, clients=100, evaluated_clients=2, privacy=spent)]))
    assert "Measured on a sample, 2 of 100 clients, which each run's seed drew." in story.details
    assert any("epsilon = 3.00 at delta = 0.01" in detail for detail in story.details)
