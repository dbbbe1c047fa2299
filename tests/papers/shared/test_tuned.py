"""Tuning: winners by validation rows, and how they are told."""

from __future__ import annotations

import pytest

from polyfed.core.schedules import Decay
from polyfed.papers.shared import comparison, tuned
from polyfed.papers.shared.comparison import Compared, Comparison
from polyfed.papers.shared.experiment import silent
from polyfed.papers.shared.held_out import options
from polyfed.papers.shared.tuned import Choice, Entry, Setting

SMALL = Setting("synthetic", options(clients=4, sizes=40), "linear", 1e-3, 4, 3, 10, (0.01, 0.1), every=4)


@pytest.fixture(scope="module")
def tuned_pair() -> Comparison:
    """FedAvg's two models on four clients: at the paper's stepsize, and at a good one."""
    lr = Decay(0.001, 0.99)
    given, space = options(lr=lr, local_steps=3, batch=10), options(lr=(lr, Decay(0.1, 0.99)))
    entries = {
        "global": Entry("fedavg", given, "global", space),
        "localized": Entry("fedavg", given, "finetuned", space),
    }
    return comparison.compare({"": SMALL}, entries, seeds=2, budget=2, progress=silent)


@pytest.mark.full
def test_methods_run_at_their_winners_on_validation_rows(tuned_pair: Comparison) -> None:
    for label in ("global", "localized"):
        choice = tuned_pair.choices["", label]
        assert dict(choice.options)["lr"] == Decay(0.1, 0.99)
        assert choice.score is not None
        assert choice.published_score is not None
        assert choice.score >= choice.published_score
        assert choice.words.startswith("lr 0.1 * 0.99^round")
    localized = tuned_pair.choices["", "localized"]
    assert localized.finetune is not None
    assert localized.finetune.lr in SMALL.rates
    # the score is the validation accuracy of the run with the first seed, whose test rows chose nothing
    first = Compared(tuned_pair.rows).ends("", "localized", "validation_accuracy")[0]
    assert localized.score == pytest.approx(first, abs=1e-6)
    assert tuned.table(tuned_pair.choices).count("\n") == 3


def test_without_a_budget_a_method_is_as_published() -> None:
    entry = Entry("fedavg", options(lr=Decay(0.2, 0.99)), "finetuned", options(lr=(0.1, 0.2)))
    assert tuned.choose(SMALL, {"x": entry}, 0, silent) == {"x": Choice(entry, entry.options, SMALL.finetune(0.2))}


def test_a_winner_at_the_end_of_what_was_tried_is_pointed_out() -> None:
    entry = Entry("fedavg", (), "global", options(lr=tuple(Decay(rate, 0.99) for rate in (0.01, 0.1, 0.3, 1.0))))
    words = [Choice(entry, options(lr=Decay(rate, 0.99))).words for rate in (0.01, 0.1, 1.0)]
    assert ["tried" in text for text in words] == [True, False, True]
    assert "largest" in words[2]
    short = Entry("fedavg", (), "global", options(lr=(0.1, 0.2, 0.3), batch=(20,)))
    words = [Choice(short, options(lr=rate, batch=20)).words for rate in (0.1, 0.2, 0.3)]
    ends = [" (the smallest tried)", "", " (the largest tried)"]
    assert words == [f"batch 20, lr {lr}{end}" for lr, end in zip((0.1, 0.2, 0.3), ends, strict=True)]


def test_what_the_papers_values_reach_is_told_where_they_are_known() -> None:
    ours = Entry("fedavg", options(lr=0.3), "global", options(lr=(0.1, 0.2, 0.3)), published=False)
    theirs = Entry("fedavg", options(lr=0.3), "global", options(lr=(0.1, 0.2, 0.3)))
    unknown = Choice(ours, options(lr=0.2), None, 0.5)
    known = Choice(theirs, options(lr=0.2), None, 0.5, 0.25)
    alone = tuned.table({("data", "ours"): unknown}).splitlines()
    assert alone[0].endswith("| validation accuracy |")
    assert alone[2:] == ["| data | ours | lr 0.2 | 50.00% |"]
    both = tuned.table({("data", "ours"): unknown, ("data", "theirs"): known}).splitlines()
    assert both[0].endswith("| at the paper's values |")
    assert both[2:] == ["| data | ours | lr 0.2 | 50.00% |  |", "| data | theirs | lr 0.2 | 50.00% | 25.00% |"]
    assert not tuned._published({"lr": 0.3}, ours)
    assert tuned._published({"lr": 0.3}, theirs)
