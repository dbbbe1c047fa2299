"""FedBC, Fig. 4, 7 and 9 to 12: losses and accuracies round by round on synthetic data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from polyfed.papers.fedbc.contenders import GLOBAL
from polyfed.papers.fedbc.paper import (
    AVERAGES,
    BOTH,
    POOLED,
    RIVALS,
    SYNTHETIC_PAPER,
    UNIFORM,
    curve_rows,
    effort,
    final_rows,
    rival_words,
)
from polyfed.papers.fedbc.runs import Record
from polyfed.papers.fedbc.synthetic import DATA, DIFFERENCES, PARTICIPANTS, gap, smooth, synthetic, work
from polyfed.papers.fedbc.tuned_runs import collect, curve, ends
from polyfed.papers.shared import style
from polyfed.papers.shared.experiment import Claim, ExperimentProgress, Outcome, experiment
from polyfed.papers.shared.held_out import against


def _extremes(name: str, epochs: int) -> None:
    """Fig. 4 and 9 to 12: the accuracy of the smallest and the largest participant, round by round."""

    @experiment(
        name,
        paper=SYNTHETIC_PAPER,
        title=f"The global model on the smallest and the largest participant's rows, E = {epochs}",
        caption=(
            "Accuracy of the global model on the test rows of the round's participant with the fewest (dotted) and the "
            "most training rows, a panel for each method; means over seeds and 10 rounds."
        ),
        data=DATA,
        differences=DIFFERENCES + BOTH + " The paper plots one run, unsmoothed.",
    )
    def run(quick: bool, progress: ExperimentProgress) -> Outcome:
        task = synthetic(epochs, quick)
        recorded, settings = collect([task], GLOBAL, progress, **effort(quick))
        palette = style.colours(list(GLOBAL))
        panels = []
        for label in GLOBAL:
            lines = []
            for who, line in PARTICIPANTS.items():
                x, y = curve(recorded[task, label], f"{who}_accuracy")
                lines.append(style.Curve(f"{who} participant", x, smooth(y), palette[label], line))
            panels.append(style.Panel(label, lines, "test accuracy"))
        gaps = {label: gap(recorded[task, label], "accuracy") for label in GLOBAL}
        return Outcome(
            rows=curve_rows(recorded),
            claims=[
                Claim(
                    f"The gap between the smallest and the largest participant is smaller with FedBC than with "
                    f"{rival_words(rival)}.",
                    f"{against(gaps['FedBC'], gaps[rival], True)}, last half of the rounds",
                    bool(gaps["FedBC"].mean() < gaps[rival].mean()),
                )
                for rival in (*RIVALS, UNIFORM)
            ],
            figure=style.small_multiples([panels[:3], panels[3:]], x_label="round", log_y=False),
            settings=work(quick) | settings,
        )


@experiment(
    "fedbc/fig7",
    paper=SYNTHETIC_PAPER,
    title="Training loss by local epochs, multipliers over the rounds, and more devices",
    caption=(
        "Training loss for E = 1, 10, 25 and 50 (Fig. 7a to d); multipliers after some rounds against the clients' "
        "training rows (7e); global accuracy against the number of devices, E = 5 (7f). Means over seeds."
    ),
    data=DATA + " Fig. 7f also has 70 and 100 clients.",
    differences=DIFFERENCES + BOTH,
)
def fig7(quick: bool, progress: ExperimentProgress) -> Outcome:
    """The loss for other E, and federations of other sizes."""
    tasks = [synthetic(epochs, quick) for epochs in ((1, 10) if quick else (1, 10, 25, 50))]
    crowds = [synthetic(5, quick, clients) for clients in ((30, 70) if quick else (30, 70, 100))]
    recorded, settings = collect([*tasks, *crowds], GLOBAL, progress, **effort(quick))
    palette = style.colours(list(GLOBAL))
    losses = [
        style.Panel(
            f"E = {task.epochs}",
            [style.Curve(n, *curve(recorded[task, n], "global_train_loss"), palette[n]) for n in GLOBAL],
            "training loss",
        )
        for task in tasks
    ]
    counts = [task.clients or 0 for task in crowds]
    crowd = style.Panel(
        "E = 5",
        [
            style.Curve(
                n, counts, [float(np.mean(ends(recorded[t, n], POOLED))) for t in crowds], palette[n], marker="o"
            )
            for n in GLOBAL
        ],
        "global test accuracy",
        "devices",
    )
    claims = []
    for task, rival in product(tasks, AVERAGES):
        mine, theirs = (ends(recorded[task, n], "global_train_loss") for n in ("FedBC", rival))
        claims.append(
            Claim(
                f"E = {task.epochs}: FedBC's training loss ends below that of {rival_words(rival)}.",
                against(mine, theirs),
                bool(mine.mean() < theirs.mean()),
            )
        )
    for task, count in zip(crowds, counts, strict=True):
        best = max((*RIVALS, UNIFORM), key=lambda n: float(np.mean(ends(recorded[task, n], POOLED))))
        mine, theirs = ends(recorded[task, "FedBC"], POOLED), ends(recorded[task, best], POOLED)
        claims.append(
            Claim(
                f"{count} devices: FedBC's global model is more accurate than all others, of which {best} is the best.",
                against(mine, theirs, True),
                bool(mine.mean() > theirs.mean()),
            )
        )
    return Outcome(
        rows=final_rows(recorded),
        claims=claims,
        figure=[
            style.small_multiples([[*losses, crowd]], x_label="round", log_y=False),
            _snapshots(recorded[crowds[0], "FedBC"]),
        ],
        settings=work(quick) | {"clients": ", ".join(map(str, counts))} | settings,
    )


def _snapshots(records: Sequence[Record]) -> Figure:
    """Fig. 7e: multipliers against training rows after some rounds, one seed."""
    record = records[0]
    colours = style.ramp(list(record.multipliers))
    with matplotlib.rc_context(style.RC):
        figure = Figure(figsize=(4.6, 3.0), layout="constrained")
        axis = figure.subplots()
        for round, values in record.multipliers.items():
            axis.plot(record.sizes, values, "o", color=colours[round], markersize=4, label=f"round {round}")
        axis.set_xlabel("training rows")
        axis.set_ylabel("multiplier")
        axis.legend()
    return figure


for _name, _epochs in (
    ("fedbc/fig4", 5),
    ("fedbc/fig9", 1),
    ("fedbc/fig10", 10),
    ("fedbc/fig11", 25),
    ("fedbc/fig12", 50),
):
    _extremes(_name, _epochs)
