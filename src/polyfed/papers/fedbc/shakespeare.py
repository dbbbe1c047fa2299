"""FedBC, Table 9: an LSTM on Shakespeare's roles."""

from __future__ import annotations

import numpy as np

from polyfed.papers.fedbc.contenders import COHORT, GLOBAL, FedbcTask
from polyfed.papers.fedbc.paper import AVERAGES, NETS_PAPER, POOLED, epochs_figure, final_rows, nets_effort
from polyfed.papers.fedbc.tuned_runs import collect, ends
from polyfed.papers.shared.experiment import Claim, ExperimentProgress, Outcome, experiment
from polyfed.papers.shared.held_out import against, options

ROUNDS = 40
"""The paper does not say how many."""
LSTM_RATES = (0.3, 1.0, 2.0, 3.0)
"""Stepsizes up to 0.3 teach the LSTM little more than the commonest characters in so few rounds."""


def roles(epochs: int, quick: bool) -> FedbcTask:
    given = options(clients=5 if quick else 138, predict="all")
    rounds = 2 if quick else ROUNDS
    return FedbcTask("shakespeare", given, "lstm", epochs, rounds, rounds, batch=10, rates=LSTM_RATES)


@experiment(
    "fedbc/table9",
    paper=NETS_PAPER,
    title="Next characters of Shakespeare's roles",
    caption=(
        "Accuracy of the global model on all test rows (Table 9, first row) and its variance over clients (second "
        "row), for E = 1 and 5; means over seeds."
    ),
    data=(
        "Shakespeare's plays, 138 speaking roles as clients; a row is 80 characters, and at each of them the next one "
        "is to be predicted; a role's last 20% of rows are for test; 10 clients take part in a round."
    ),
    differences=(
        "As for the images: tuned by validation rows for each E, 40 rounds, plain SGD, FedAvg with both weights. "
        "Batches have 10 rows. Rows follow each other and have 80 targets each, where the published data has a row for "
        "every character, with one target: as many characters to predict for an 80th of the work, but those at the "
        "beginning of a row have less context."
    ),
)
def table9(quick: bool, progress: ExperimentProgress) -> Outcome:
    """A two-layer LSTM."""
    tasks = [roles(epochs, quick) for epochs in ((1,) if quick else (1, 5))]
    recorded, settings = collect(tasks, GLOBAL, progress, **nets_effort(quick))
    claims = []
    for task in tasks:
        for rival in ("SCAFFOLD", *AVERAGES):
            ours, theirs = (ends(recorded[task, n], POOLED) for n in ("FedBC", rival))
            claims.append(
                Claim(
                    f"E = {task.epochs}: FedBC's global model is more accurate than that of {rival}.",
                    against(ours, theirs, True),
                    bool(np.mean(ours) > np.mean(theirs)),
                )
            )
    facts: dict[str, object] = {"clients": tasks[0].clients, "clients per round": COHORT}
    facts |= {"rounds": tasks[0].rounds, "batch": tasks[0].batch}
    return Outcome(
        rows=final_rows(recorded),
        claims=claims,
        figure=epochs_figure(recorded, tasks),
        settings=facts | settings,
    )
