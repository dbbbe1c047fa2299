"""FedBC, Table 1: global accuracy on synthetic data by local epochs."""

from __future__ import annotations

from polyfed.papers.fedbc.contenders import GLOBAL
from polyfed.papers.fedbc.paper import (
    AVERAGES,
    BOTH,
    POOLED,
    RIVALS,
    SYNTHETIC_PAPER,
    UNIFORM,
    accuracy_claim,
    effort,
    epochs_figure,
    final_rows,
    rival_words,
    variance_claim,
)
from polyfed.papers.fedbc.synthetic import DATA, DIFFERENCES, EPOCHS, synthetic, work
from polyfed.papers.fedbc.tuned_runs import collect
from polyfed.papers.shared.claims import Claim
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.held_out import plus_minus
from polyfed.papers.shared.rows import distinct, ends


def judge(rows: list[Row]) -> list[Claim]:
    """FedBC against every rival and the uniform average, for each E."""
    made = []
    for E in distinct(rows, "E"):
        for rival in (*RIVALS, UNIFORM):
            text = f"E = {E}: FedBC's global model is more accurate than that of {rival_words(rival)}."
            made.append(accuracy_claim(rows, text, rival, E=E))
        for rival in AVERAGES:
            text = f"E = {E}: the accuracy of FedBC's global model varies less over clients than that of {rival}."
            made.append(variance_claim(rows, text, rival, E=E))
    return made


def _table(rows: list[Row]) -> str:
    """Table 1, as the paper prints it."""
    epochs = distinct(rows, "E")
    head = "| method | " + " | ".join(f"E = {E}" for E in epochs) + " |\n| --- |" + " ---: |" * len(epochs)
    lines = [
        f"| {label} | " + " | ".join(plus_minus(ends(rows, POOLED, method=label, E=E), True) for E in epochs) + " |"
        for label in GLOBAL
    ]
    return "\n".join([head, *lines])


@experiment(
    "fedbc/table1",
    paper=SYNTHETIC_PAPER,
    title="Global accuracy on synthetic data, by the number of local epochs",
    caption=(
        "Accuracy of the global model on all test rows (Table 1), and the variance of its accuracy over clients "
        "(Fig. 3d), against the local epochs E; means over seeds."
    ),
    data=DATA,
    differences=DIFFERENCES + BOTH,
    judge=judge,
    draw=epochs_figure,
    tell=lambda rows: [_table(rows)],
)
def table1(quick: bool, progress: ExperimentProgress) -> Measured:
    """FedBC is better than the size-weighted baselines; the uniform average stands beside it."""
    tasks = [synthetic(epochs, quick) for epochs in ((1, 5) if quick else EPOCHS)]
    recorded, settings = collect(tasks, GLOBAL, progress, **effort(quick))
    return Measured(final_rows(recorded), work(quick) | settings)
