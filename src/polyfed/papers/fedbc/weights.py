"""FedBC, Fig. 3 and 8: what participants weigh in the server's average."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyfed.papers.fedbc.contenders import GLOBAL, FedbcTask
from polyfed.papers.fedbc.paper import BOTH, SYNTHETIC_PAPER, UNIFORM, curve_rows, effort, rival_words
from polyfed.papers.fedbc.runs import Record
from polyfed.papers.fedbc.synthetic import BY_DATA, DATA, DIFFERENCES, PARTICIPANTS, gap, smooth, synthetic, work
from polyfed.papers.fedbc.tuned_runs import collect, curve, ends
from polyfed.papers.shared import style
from polyfed.papers.shared.experiment import Claim, ExperimentProgress, Outcome, experiment
from polyfed.papers.shared.held_out import against


@experiment(
    "fedbc/fig3",
    paper=SYNTHETIC_PAPER,
    title="Training loss, and weights in the server's average, at E = 5",
    caption=(
        "Left: training loss over all rows (Fig. 3a). Middle: the weights of the smallest and the largest participant "
        "of a round in the average, FedBC's and by data (Fig. 3b), mean over seeds and 10 rounds. Right: multipliers "
        "against the training rows of the clients at the end (Fig. 3c)."
    ),
    data=DATA,
    differences=DIFFERENCES + BOTH,
)
def fig3(quick: bool, progress: ExperimentProgress) -> Outcome:
    """FedBC gives small clients more weight than their data would."""
    task = synthetic(5, quick)
    recorded, settings = collect([task], GLOBAL, progress, **effort(quick))
    ours = recorded[task, "FedBC"]
    palette = style.colours(list(GLOBAL))
    loss = [style.Curve(n, *curve(recorded[task, n], "global_train_loss"), palette[n]) for n in GLOBAL]
    sizes, multipliers = _last_multipliers(ours)
    order = np.argsort(sizes)
    scatter = [style.Curve("FedBC", sizes[order], multipliers[order], palette["FedBC"], " ", "o")]
    panels = [
        style.Panel("training loss", loss, "training loss"),
        style.Panel("weight in the average", weight_lines(ours), "weight"),
        style.Panel("multipliers at the end", scatter, "multiplier"),
    ]
    mine = {label: ends(recorded[task, label], "global_train_loss") for label in GLOBAL}
    lowest = min((label for label in GLOBAL if label not in ("FedBC", UNIFORM)), key=lambda n: mine[n].mean())
    return Outcome(
        rows=curve_rows(recorded),
        claims=[
            Claim(
                f"FedBC's training loss ends below that of {lowest}, the best of the paper's baselines.",
                against(mine["FedBC"], mine[lowest]),
                bool(mine["FedBC"].mean() < mine[lowest].mean()),
            ),
            Claim(
                f"FedBC's training loss ends below that of {rival_words(UNIFORM)}.",
                against(mine["FedBC"], mine[UNIFORM]),
                bool(mine["FedBC"].mean() < mine[UNIFORM].mean()),
            ),
            weight_claim(ours, task),
        ],
        figure=style.small_multiples([panels], x_label="round (right: training rows)", log_y=False),
        settings=work(quick) | settings,
    )


def _last_multipliers(records: Sequence[Record]) -> tuple[np.ndarray, np.ndarray]:
    """(training rows, multiplier) of every client of every seed, at the latest snapshot."""
    pairs = [(record.sizes, record.multipliers[max(record.multipliers)]) for record in records if record.multipliers]
    return np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])


def weight_lines(records: Sequence[Record]) -> list[style.Curve]:
    lines = []
    ours = style.colours(list(GLOBAL))["FedBC"]
    for kind, colour, words in (("weight", ours, "FedBC"), ("data", BY_DATA, "by data")):
        for who, line in PARTICIPANTS.items():
            x, y = curve(records, f"{who}_{kind}")
            lines.append(style.Curve(f"{who} participant, {words}", x, smooth(y), colour, line))
    return lines


def weight_claim(records: Sequence[Record], task: FedbcTask) -> Claim:
    weights, shares = gap(records, "weight"), gap(records, "data")
    return Claim(
        f"E = {task.epochs}: the weights of a round's smallest and largest participant differ less in FedBC than by "
        "data size.",
        f"by {against(weights, shares)}, last half of the rounds",
        bool(weights.mean() < shares.mean()),
    )


@experiment(
    "fedbc/fig8",
    paper=SYNTHETIC_PAPER,
    title="Weights of the smallest and the largest participant, by local epochs",
    caption=(
        "The weight of a round's smallest (dotted) and largest participant in the average: FedBC's, what data size "
        "would give, and what all have with uniform weights; means over seeds and 10 rounds."
    ),
    data=DATA,
    differences=DIFFERENCES,
)
def fig8(quick: bool, progress: ExperimentProgress) -> Outcome:
    """Multipliers weigh clients more evenly than data sizes do."""
    tasks = [synthetic(epochs, quick) for epochs in ((1, 10) if quick else (1, 10, 25, 50))]
    recorded, settings = collect(tasks, {"FedBC": GLOBAL["FedBC"]}, progress, **effort(quick))
    panels = [
        style.Panel(f"E = {task.epochs}", [*weight_lines(recorded[task, "FedBC"]), _even(task)], "weight")
        for task in tasks
    ]
    return Outcome(
        rows=curve_rows(recorded),
        claims=[weight_claim(recorded[task, "FedBC"], task) for task in tasks],
        figure=style.small_multiples([panels], x_label="round", log_y=False),
        settings=work(quick) | settings,
    )


def _even(task: FedbcTask) -> style.Curve:
    """What every participant weighs in a uniform average."""
    uniform = style.colours(list(GLOBAL))[UNIFORM]
    return style.Curve("every participant, uniform", [1, task.rounds], [1 / task.cohort] * 2, uniform, style.BASELINE)
