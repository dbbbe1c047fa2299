"""FedBC, Fig. 4, 7 and 9 to 12: losses and accuracies round by round on synthetic data."""

from __future__ import annotations

import matplotlib
from matplotlib.figure import Figure

from polyfed.papers.fedbc.contenders import GLOBAL
from polyfed.papers.fedbc.fresh import FRESH
from polyfed.papers.fedbc.paper import (
    BOTH,
    POOLED,
    RIVALS,
    SYNTHETIC_PAPER,
    UNIFORM,
    accuracy_claim,
    against,
    curve_rows,
    effort,
    leads,
    means_words,
    multiplier_rows,
    rival_words,
)
from polyfed.papers.fedbc.synthetic import DATA, DIFFERENCES, PARTICIPANTS, block_rows, gap, synthetic, work
from polyfed.papers.fedbc.tuned_runs import collect
from polyfed.papers.fedbc.weights import LOSS, loss_claims
from polyfed.papers.shared import claims, held_out, style
from polyfed.papers.shared.claims import Claim, better, every, similar
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.rows import column, distinct, ends, mean_curve, where

CROWD = 5
"""The local epochs of Fig. 7f."""
FRESHLY = (
    "Accuracies are on fresh rows from a participant's own law, which is known: the smallest has about ten test rows."
)
SIMILAR = 0.02
"""Accuracies that differ by less are called similar."""


def judge_extremes(rows: list[Row]) -> list[Claim]:
    gaps = {label: gap(rows, "accuracy", method=label) for label in GLOBAL}
    return [
        better(
            f"The gap between the smallest and the largest participant is smaller with FedBC than with "
            f"{rival_words(rival)}.",
            gaps["FedBC"],
            gaps[rival],
            f"{held_out.against(gaps['FedBC'], gaps[rival], True)}, last half of the rounds",
            claims.POINTS,
            lower=True,
        )
        for rival in (*RIVALS, UNIFORM)
    ]


def draw_extremes(rows: list[Row]) -> Figure:
    palette, panels = style.colours(list(GLOBAL)), []
    for label in GLOBAL:
        lines = []
        for who, line in PARTICIPANTS.items():
            x, y = mean_curve(rows, f"{who}_accuracy", method=label)
            lines.append(style.Curve(f"{who} participant", x, y, palette[label], line))
        panels.append(style.Panel(label, lines, "test accuracy"))
    return style.small_multiples([panels[:3], panels[3:]], x_label="round", log_y=False)


def _extremes(name: str, epochs: int) -> None:
    """Fig. 4 and 9 to 12: the accuracy of the smallest and the largest participant, round by round."""

    @experiment(
        name,
        paper=SYNTHETIC_PAPER,
        title=f"The global model on the smallest and the largest participant's rows, E = {epochs}",
        caption=(
            "Accuracy of the global model on fresh rows of the round's participant with the fewest (dotted) and the "
            "most training rows, a panel for each method; means over seeds and 10 rounds."
        ),
        data=DATA,
        differences=DIFFERENCES + BOTH + " The paper plots one run, unsmoothed. " + FRESHLY,
        judge=judge_extremes,
        draw=draw_extremes,
    )
    def run(quick: bool, progress: ExperimentProgress) -> Measured:
        recorded, settings = collect([synthetic(epochs, quick)], GLOBAL, progress, **effort(quick))
        return Measured(
            block_rows(recorded, ["accuracy"]), work(quick) | {"fresh rows of a participant": FRESH} | settings
        )


def judge_fig7(rows: list[Row]) -> list[Claim]:
    """Losses below all others; the best accuracy with 30 and 70 devices; with 100, as good as SCAFFOLD's."""
    made = []
    for epochs in (E for E in distinct(rows, "E") if E != CROWD):
        made += loss_claims(rows, f"E = {epochs}: ", E=epochs)
    crowds = distinct(where(rows, E=CROWD), "clients")
    for count in crowds:
        facts = {"E": CROWD, "clients": count}
        rivals = list(RIVALS)
        if count >= 100:
            rivals.remove("SCAFFOLD")
            pair = [ends(rows, POOLED, method=label, **facts) for label in ("FedBC", "SCAFFOLD")]
            text = f"{count} devices: FedBC's global model is about as accurate as SCAFFOLD's (within 2 points)."
            words = against(rows, POOLED, "SCAFFOLD", True, **facts)
            made.append(similar(text, pair[0], pair[1], SIMILAR, words, claims.POINTS))
        made += [
            every(
                f"{count} devices: {ours}'s global model is more accurate than {who}.",
                leads(rows, POOLED, rivals, ours=ours, **facts),
                means_words(rows, POOLED, (ours, *rivals), True, **facts),
                claims.POINTS,
            )
            for ours, who in _leaders(count).items()
        ]
        text = f"{count} devices: FedBC's global model is more accurate than that of {rival_words(UNIFORM)}."
        made.append(accuracy_claim(rows, text, UNIFORM, **facts))
    return made


def _leaders(devices: int) -> dict[str, str]:
    """Who is ahead of whom in Fig. 7f, in the paper's words."""
    if devices < 100:
        return {"FedBC": "all of the paper's others"}
    return {"FedBC": "the paper's others without SCAFFOLD", "SCAFFOLD": "the paper's others without FedBC"}


def draw_fig7(rows: list[Row]) -> list[Figure]:
    palette = style.colours(list(GLOBAL))
    losses = [
        style.Panel(
            f"E = {epochs}",
            [style.Curve(n, *mean_curve(rows, LOSS, method=n, E=epochs), palette[n]) for n in GLOBAL],
            "training loss",
        )
        for epochs in distinct(rows, "E")
        if epochs != CROWD
    ]
    counts = distinct(where(rows, E=CROWD), "clients")
    lines = [
        style.Curve(
            n,
            counts,
            [float(ends(rows, POOLED, method=n, E=CROWD, clients=count).mean()) for count in counts],
            palette[n],
            marker="o",
        )
        for n in GLOBAL
    ]
    crowd = style.Panel(f"E = {CROWD}", lines, "global test accuracy", "devices")
    return [style.small_multiples([[*losses, crowd]], x_label="round", log_y=False), _snapshots(rows)]


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
    judge=judge_fig7,
    draw=draw_fig7,
)
def fig7(quick: bool, progress: ExperimentProgress) -> Measured:
    """The loss for other E, and federations of other sizes."""
    tasks = [synthetic(epochs, quick) for epochs in ((1, 10) if quick else (1, 10, 25, 50))]
    crowds = [synthetic(CROWD, quick, clients) for clients in ((30, 70) if quick else (30, 70, 100))]
    recorded, settings = collect([*tasks, *crowds], GLOBAL, progress, **effort(quick))
    rows = curve_rows(recorded, [LOSS, POOLED], every=10)
    rows += multiplier_rows(crowds[0], recorded[crowds[0], "FedBC"])
    counts = ", ".join(str(task.clients) for task in crowds)
    return Measured(rows, work(quick) | {"clients": counts} | settings)


def _snapshots(rows: list[Row]) -> Figure:
    """Fig. 7e: multipliers against training rows after some rounds, one seed."""
    record = [row for row in where(rows, seed=0) if "multiplier" in row]
    rounds = distinct(record, "round")
    colours = style.ramp(rounds)
    with matplotlib.rc_context(style.RC):
        figure = Figure(figsize=(4.6, 3.0), layout="constrained")
        axis = figure.subplots()
        for round in rounds:
            mine = where(record, round=round)
            x, y = column(mine, "rows"), column(mine, "multiplier")
            axis.plot(x, y, "o", color=colours[round], markersize=4, label=f"round {round}")
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
