"""Bedi and others: FedBC. What happens round by round on synthetic data: Fig. 4 and Fig. 7 to 12."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from polyfed.papers.fedbc.runs import GLOBAL, Record, Task, collect, curve, ends
from polyfed.papers.fedbc.synthetic import (
    BOTH,
    DATA,
    DIFFERENCES,
    PAPER,
    POOLED,
    RIVALS,
    SHOWN,
    curve_rows,
    effort,
    final_rows,
    gap,
    smooth,
    synthetic,
    weight_claim,
    weight_lines,
    work,
)
from polyfed.papers.shared import style
from polyfed.papers.shared.experiment import Claim, Outcome, Progress, experiment
from polyfed.papers.shared.held_out import spread


def _extremes(name: str, epochs: int) -> None:
    """Fig. 4 and 9 to 12: the accuracy of the smallest and the largest participant, round by round."""

    @experiment(
        name,
        paper=PAPER,
        title=f"The global model on the smallest and the largest participant's rows, E = {epochs}",
        caption=(
            "Accuracy of the global model on the test rows of the round's participant with the fewest (dotted) and the "
            "most training rows, a panel for each method; means over seeds and 10 rounds."
        ),
        data=DATA,
        differences=DIFFERENCES + BOTH + " The paper plots one run, unsmoothed.",
    )
    def run(quick: bool, progress: Progress) -> Outcome:
        task = synthetic(epochs, quick)
        found, settings = collect([task], GLOBAL, progress, **effort(quick))
        palette = style.colours(list(GLOBAL))
        panels = []
        for label in GLOBAL:
            lines = []
            for who, line in SHOWN.items():
                x, y = curve(found[task, label], f"{who}_accuracy")
                lines.append(style.Curve(f"{who} participant", x, smooth(y), palette[label], line))
            panels.append(style.Panel(label, lines, "test accuracy"))
        gaps = {label: gap(found[task, label], "accuracy") for label in GLOBAL}
        return Outcome(
            rows=curve_rows(found),
            claims=[
                Claim(
                    f"The gap between the smallest and the largest participant is smaller with FedBC than with {rival}"
                    + (" (not in the paper)." if rival == "FedAvg, uniform" else "."),
                    f"{spread(gaps['FedBC'], True)} against {spread(gaps[rival], True)}, last half of the rounds",
                    bool(gaps["FedBC"].mean() < gaps[rival].mean()),
                )
                for rival in (*RIVALS, "FedAvg, uniform")
            ],
            figure=style.small_multiples([panels[:3], panels[3:]], x_label="round", log_y=False),
            settings=work(quick) | settings,
        )


for _name, _epochs in (
    ("fedbc/fig4", 5),
    ("fedbc/fig9", 1),
    ("fedbc/fig10", 10),
    ("fedbc/fig11", 25),
    ("fedbc/fig12", 50),
):
    _extremes(_name, _epochs)


@experiment(
    "fedbc/fig7",
    paper=PAPER,
    title="Training loss by local epochs, multipliers over the rounds, and more devices",
    caption=(
        "Training loss for E = 1, 10, 25 and 50 (Fig. 7a to d); multipliers after some rounds against the clients' "
        "training rows (7e); global accuracy against the number of devices, E = 5 (7f). Means over seeds."
    ),
    data=DATA + " Fig. 7f also has 70 and 100 clients.",
    differences=DIFFERENCES + BOTH,
)
def fig7(quick: bool, progress: Progress) -> Outcome:
    """The loss for other E, and federations of other sizes."""
    tasks = [synthetic(epochs, quick) for epochs in ((1, 10) if quick else (1, 10, 25, 50))]
    crowds = [synthetic(5, quick, clients) for clients in ((30, 70) if quick else (30, 70, 100))]
    found, settings = collect([*tasks, *crowds], GLOBAL, progress, **effort(quick))
    palette = style.colours(list(GLOBAL))
    losses = [
        style.Panel(
            f"E = {task.epochs}",
            [style.Curve(n, *curve(found[task, n], "global_train_loss"), palette[n]) for n in GLOBAL],
            "training loss",
        )
        for task in tasks
    ]
    counts = [dict(task.data)["clients"] for task in crowds]
    crowd = style.Panel(
        "E = 5",
        [
            style.Curve(n, counts, [float(np.mean(ends(found[t, n], POOLED))) for t in crowds], palette[n], marker="o")
            for n in GLOBAL
        ],
        "global test accuracy",
        "devices",
    )
    claims = []
    for task, (rival, note) in product(tasks, (("FedAvg, by size", ""), ("FedAvg, uniform", " (not in the paper)"))):
        mine, theirs = (ends(found[task, n], "global_train_loss") for n in ("FedBC", rival))
        claims.append(
            Claim(
                f"E = {task.epochs}: FedBC's training loss ends below that of {rival}{note}.",
                f"{spread(mine)} against {spread(theirs)}",
                bool(mine.mean() < theirs.mean()),
            )
        )
    for task, count in zip(crowds, counts, strict=True):
        best = max((*RIVALS, "FedAvg, uniform"), key=lambda n: float(np.mean(ends(found[task, n], POOLED))))
        mine, theirs = ends(found[task, "FedBC"], POOLED), ends(found[task, best], POOLED)
        claims.append(
            Claim(
                f"{count} devices: FedBC's global model is more accurate than all others, {best} the best of them.",
                f"{spread(mine, True)} against {spread(theirs, True)}",
                bool(mine.mean() > theirs.mean()),
            )
        )
    return Outcome(
        rows=final_rows(found),
        claims=claims,
        figure=[
            style.small_multiples([[*losses, crowd]], x_label="round", log_y=False),
            _snapshots(found[crowds[0], "FedBC"]),
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


@experiment(
    "fedbc/fig8",
    paper=PAPER,
    title="Weights of the smallest and the largest participant, by local epochs",
    caption=(
        "The weight of a round's smallest (dotted) and largest participant in the average: FedBC's, what data size "
        "would give, and what all have with uniform weights; means over seeds and 10 rounds."
    ),
    data=DATA,
    differences=DIFFERENCES,
)
def fig8(quick: bool, progress: Progress) -> Outcome:
    """Multipliers weigh clients more evenly than data sizes do."""
    tasks = [synthetic(epochs, quick) for epochs in ((1, 10) if quick else (1, 10, 25, 50))]
    found, settings = collect(tasks, {"FedBC": GLOBAL["FedBC"]}, progress, **effort(quick))
    panels = [
        style.Panel(f"E = {task.epochs}", [*weight_lines(found[task, "FedBC"]), _even(task)], "weight")
        for task in tasks
    ]
    return Outcome(
        rows=curve_rows(found),
        claims=[weight_claim(found[task, "FedBC"], task) for task in tasks],
        figure=style.small_multiples([panels], x_label="round", log_y=False),
        settings=work(quick) | settings,
    )


def _even(task: Task) -> style.Curve:
    """What every participant weighs in a uniform average."""
    uniform = style.colours(list(GLOBAL))["FedAvg, uniform"]
    return style.Curve("every participant, uniform", [1, task.rounds], [1 / task.cohort] * 2, uniform, style.BASELINE)
