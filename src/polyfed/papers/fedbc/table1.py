"""FedBC, Table 1: global accuracy on synthetic data by local epochs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyfed.papers.fedbc.contenders import GLOBAL, FedbcTask
from polyfed.papers.fedbc.paper import (
    AVERAGES,
    BOTH,
    POOLED,
    RIVALS,
    SYNTHETIC_PAPER,
    UNIFORM,
    VARIANCE,
    effort,
    epochs_figure,
    final_rows,
    rival_words,
)
from polyfed.papers.fedbc.synthetic import DATA, DIFFERENCES, EPOCHS, synthetic, work
from polyfed.papers.fedbc.tuned_runs import Recorded, collect, ends
from polyfed.papers.shared.experiment import Claim, ExperimentProgress, Outcome, experiment
from polyfed.papers.shared.held_out import against, plus_minus


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
)
def table1(quick: bool, progress: ExperimentProgress) -> Outcome:
    """FedBC is better than the size-weighted baselines; the uniform average stands beside it."""
    tasks = [synthetic(epochs, quick) for epochs in ((1, 5) if quick else EPOCHS)]
    recorded, settings = collect(tasks, GLOBAL, progress, **effort(quick))
    return Outcome(
        rows=final_rows(recorded),
        claims=[
            claim for task in tasks for claim in (*_accuracy_claims(recorded, task), *_variance_claims(recorded, task))
        ],
        figure=epochs_figure(recorded, tasks),
        settings=work(quick) | settings,
        notes=[_table(recorded, tasks)],
    )


def _accuracy_claims(recorded: Recorded, task: FedbcTask) -> list[Claim]:
    ours = ends(recorded[task, "FedBC"], POOLED)
    claims = []
    for rival in (*RIVALS, UNIFORM):
        theirs = ends(recorded[task, rival], POOLED)
        who = rival_words(rival)
        claims.append(
            Claim(
                f"E = {task.epochs}: FedBC's global model is more accurate than that of {who}.",
                f"{against(ours, theirs, True)}; seed by seed {plus_minus(ours - theirs, True)}",
                bool(np.mean(ours) > np.mean(theirs)),
            )
        )
    return claims


def _variance_claims(recorded: Recorded, task: FedbcTask) -> list[Claim]:
    ours = ends(recorded[task, "FedBC"], VARIANCE)
    return [
        Claim(
            f"E = {task.epochs}: the accuracy of FedBC's global model varies less over clients than that of {rival}.",
            f"variance {against(ours, ends(recorded[task, rival], VARIANCE))}",
            bool(np.mean(ours) < np.mean(ends(recorded[task, rival], VARIANCE))),
        )
        for rival in AVERAGES
    ]


def _table(recorded: Recorded, tasks: Sequence[FedbcTask]) -> str:
    """Table 1, as the paper prints it."""
    head = "| method | " + " | ".join(f"E = {task.epochs}" for task in tasks) + " |\n| --- |" + " ---: |" * len(tasks)
    lines = [
        f"| {label} | " + " | ".join(plus_minus(ends(recorded[task, label], POOLED), True) for task in tasks) + " |"
        for label in GLOBAL
    ]
    return "\n".join([head, *lines])
