"""FedBC, Fig. 3 and 8: what participants weigh in the server's average."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from polyfed.papers.fedbc.contenders import COHORT, GLOBAL
from polyfed.papers.fedbc.paper import (
    BOTH,
    RIVALS,
    SYNTHETIC_PAPER,
    UNIFORM,
    against,
    curve_rows,
    effort,
    leads,
    means_words,
    multiplier_rows,
    rival_words,
)
from polyfed.papers.fedbc.synthetic import BY_DATA, DATA, DIFFERENCES, PARTICIPANTS, block_rows, gap, synthetic, work
from polyfed.papers.fedbc.tuned_runs import collect
from polyfed.papers.shared import held_out, style
from polyfed.papers.shared.claims import Claim, better, every
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.rows import column, distinct, ends, mean_curve, where

LOSS = "global_train_loss"
WEIGHTS = ("weight", "data")
"""A participant's share in the server's average, and in the rows."""


def loss_claims(rows: list[Row], start: str = "", **facts: Any) -> list[Claim]:
    """FedBC's training loss ends below that of all others (Fig. 3a and 7a to d), and of the uniform average."""
    return [
        every(
            f"{start}FedBC's training loss ends below that of each of the paper's baselines.",
            leads(rows, LOSS, RIVALS, -1, **facts),
            means_words(rows, LOSS, ("FedBC", *RIVALS), **facts),
        ),
        better(
            f"{start}FedBC's training loss ends below that of {rival_words(UNIFORM)}.",
            ends(rows, LOSS, method="FedBC", **facts),
            ends(rows, LOSS, method=UNIFORM, **facts),
            against(rows, LOSS, UNIFORM, **facts),
            lower=True,
        ),
    ]


def weight_claim(rows: list[Row], epochs: int) -> Claim:
    weights, shares = (gap(rows, kind, method="FedBC", E=epochs, client=None) for kind in ("weight", "data"))
    return better(
        f"E = {epochs}: the weights of a round's smallest and largest participant differ less in FedBC than by "
        "data size.",
        weights,
        shares,
        f"by {held_out.against(weights, shares)}, last half of the rounds",
        lower=True,
    )


def weight_lines(rows: list[Row], **facts: Any) -> list[style.Curve]:
    lines = []
    ours = style.colours(list(GLOBAL))["FedBC"]
    for kind, colour, words in (("weight", ours, "FedBC"), ("data", BY_DATA, "by data")):
        for who, line in PARTICIPANTS.items():
            x, y = mean_curve(rows, f"{who}_{kind}", method="FedBC", **facts)
            lines.append(style.Curve(f"{who} participant, {words}", x, y, colour, line))
    return lines


def judge_fig3(rows: list[Row]) -> list[Claim]:
    return [*loss_claims(rows), weight_claim(rows, 5)]


def draw_fig3(rows: list[Row]) -> Figure:
    palette = style.colours(list(GLOBAL))
    loss = [style.Curve(n, *mean_curve(rows, LOSS, method=n), palette[n]) for n in GLOBAL]
    multipliers = [row for row in rows if "multiplier" in row]
    latest = where(multipliers, round=max(row["round"] for row in multipliers))
    latest.sort(key=lambda row: row["rows"])
    scatter = [style.Curve("FedBC", column(latest, "rows"), column(latest, "multiplier"), palette["FedBC"], " ", "o")]
    panels = [
        style.Panel("training loss", loss, "training loss"),
        style.Panel("weight in the average", weight_lines(rows), "weight"),
        style.Panel("multipliers at the end", scatter, "multiplier"),
    ]
    return style.small_multiples([panels], x_label="round (right: training rows)", log_y=False)


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
    judge=judge_fig3,
    draw=draw_fig3,
)
def fig3(quick: bool, progress: ExperimentProgress) -> Measured:
    """FedBC gives small clients more weight than their data would."""
    task = synthetic(5, quick)
    recorded, settings = collect([task], GLOBAL, progress, **effort(quick))
    ours = {(task, "FedBC"): recorded[task, "FedBC"]}
    rows = curve_rows(recorded, [LOSS], every=10) + block_rows(ours, WEIGHTS)
    rows += multiplier_rows(task, recorded[task, "FedBC"])
    return Measured(rows, work(quick) | settings)


def judge_fig8(rows: list[Row]) -> list[Claim]:
    return [weight_claim(rows, epochs) for epochs in distinct(rows, "E")]


def draw_fig8(rows: list[Row]) -> Figure:
    last = max(row["round"] for row in rows)
    panels = [
        style.Panel(f"E = {epochs}", [*weight_lines(rows, E=epochs), _even(last)], "weight")
        for epochs in distinct(rows, "E")
    ]
    return style.small_multiples([panels], x_label="round", log_y=False)


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
    judge=judge_fig8,
    draw=draw_fig8,
)
def fig8(quick: bool, progress: ExperimentProgress) -> Measured:
    """Multipliers weigh clients more evenly than data sizes do."""
    tasks = [synthetic(epochs, quick) for epochs in ((1, 10) if quick else (1, 10, 25, 50))]
    recorded, settings = collect(tasks, {"FedBC": GLOBAL["FedBC"]}, progress, **effort(quick))
    return Measured(block_rows(recorded, WEIGHTS), work(quick) | settings)


def _even(last: int) -> style.Curve:
    """What every participant weighs in a uniform average."""
    uniform = style.colours(list(GLOBAL))[UNIFORM]
    return style.Curve("every participant, uniform", [1, last], [1 / COHORT] * 2, uniform, style.BASELINE)
