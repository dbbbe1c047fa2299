"""Bedi and others: FedBC. What its figures and tables have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
from matplotlib.figure import Figure

from polyfed.papers.fedbc.contenders import GLOBAL, FedbcTask
from polyfed.papers.fedbc.runs import Record
from polyfed.papers.fedbc.tuned_runs import BUDGET, SEEDS, Recorded
from polyfed.papers.shared import claims, held_out, style
from polyfed.papers.shared.claims import Claim, better
from polyfed.papers.shared.experiment import Row
from polyfed.papers.shared.rows import ends, mean_curve, rounded

_PAPER = (
    "A. S. Bedi, C. Fan, A. Koppel, A. K. Sahu, B. M. Sadler, F. Huang, D. Manocha, *FedBC: Calibrating Global and "
    "Local Models via Federated Learning Beyond Consensus*, Section 5 and Appendix "
)
SYNTHETIC_PAPER, NETS_PAPER = f"{_PAPER}E.", f"{_PAPER}F."
BOTH = " FedAvg is shown with weights by size, as in the paper, and with uniform ones."
UNIFORM = "FedAvg, uniform"
"""A rival that the paper does not have."""
RIVALS = ("FedAvg, by size", "FedProx", "SCAFFOLD", "q-FedAvg")
"""Those of the paper."""
AVERAGES = ("FedAvg, by size", UNIFORM)
"""Both forms of FedAvg; they are always shown together."""
SYNTHETIC_SEEDS = 30
"""A federation is drawn anew for each, and federations are far more unlike than methods."""
POOLED, VARIANCE = "global_test_pooled", "global_test_variance"


class Effort(TypedDict):
    """How many seeds are run, and how many candidates each method is tuned with."""

    seeds: int
    budget: int


def effort(quick: bool) -> Effort:
    """Of linear models on synthetic data."""
    return {"seeds": 2, "budget": 3} if quick else {"seeds": SYNTHETIC_SEEDS, "budget": BUDGET}


def nets_effort(quick: bool) -> Effort:
    return {"seeds": 1, "budget": 2} if quick else {"seeds": SEEDS, "budget": BUDGET}


def rival_words(rival: str) -> str:
    """A rival's label in a claim, with a remark where the paper does not have it."""
    return f"{rival} (not in the paper)" if rival == UNIFORM else rival


def against(rows: list[Row], column: str, rival: str, percent: bool = False, **facts: Any) -> str:
    """FedBC's values and a rival's over seeds, for people."""
    ours, theirs = (ends(rows, column, method=label, **facts) for label in ("FedBC", rival))
    return held_out.against(ours, theirs, percent)


def leads(
    rows: list[Row], column: str, rivals: Sequence[str], sign: int = 1, ours: str = "FedBC", **facts: Any
) -> dict[str, np.ndarray]:
    """By how much FedBC is above each rival (below it, with a sign of -1), by seed."""
    mine = ends(rows, column, method=ours, **facts)
    return {rival: sign * (mine - ends(rows, column, method=rival, **facts)) for rival in rivals}


def accuracy_claim(rows: list[Row], text: str, rival: str, **facts: Any) -> Claim:
    """FedBC's global model is more accurate than a rival's."""
    ours, theirs = (ends(rows, POOLED, method=label, **facts) for label in ("FedBC", rival))
    return better(text, ours, theirs, held_out.against(ours, theirs, True), claims.POINTS)


def variance_claim(rows: list[Row], text: str, rival: str, **facts: Any) -> Claim:
    """The accuracy of FedBC's global model varies less over clients than a rival's."""
    ours, theirs = (ends(rows, VARIANCE, method=label, **facts) for label in ("FedBC", rival))
    return better(text, ours, theirs, f"variance {held_out.against(ours, theirs)}", lower=True)


def means_words(rows: list[Row], column: str, labels: Sequence[str], percent: bool = False, **facts: Any) -> str:
    """The mean and deviation of several methods."""
    values = {label: held_out.plus_minus(ends(rows, column, method=label, **facts), percent) for label in labels}
    return ", ".join(f"{label} {value}" for label, value in values.items())


def epochs_figure(rows: list[Row]) -> Figure:
    """The global model's accuracy and its variance over clients, against the local epochs."""
    panels = []
    for column, title in ((POOLED, "global test accuracy"), (VARIANCE, "variance over clients")):
        curves = []
        for label, colour in style.colours(list(GLOBAL)).items():
            epochs, means = mean_curve(rows, column, "E", method=label)
            curves.append(style.Curve(label, epochs, means, colour, marker="o"))
        panels.append(style.Panel(title, curves, title))
    return style.small_multiples([panels], x_label="local epochs E", log_y=False)


def final_rows(recorded: Recorded) -> list[Row]:
    """The last row of every run, to six digits."""
    return [
        rounded({"task": task.source, **facts_of(task), "method": label, "seed": seed, **record.rows[-1]})
        for (task, label), records in recorded.items()
        for seed, record in enumerate(records)
    ]


def curve_rows(recorded: Recorded, columns: Sequence[str], every: int = 1) -> list[Row]:
    """These columns of every run, round by round (or every so many rounds, and the last), to six digits."""
    return [
        {**facts_of(task), "method": label, "seed": seed, "round": row["round"]}
        | rounded({name: row[name] for name in columns if name in row})
        for (task, label), records in recorded.items()
        for seed, record in enumerate(records)
        for row in record.rows
        if row["round"] % every == 0 or row is record.rows[-1]
    ]


def multiplier_rows(task: FedbcTask, records: Sequence[Record]) -> list[Row]:
    """Every client's training rows and multiplier after some rounds, of every seed."""
    return [
        {**facts_of(task), "method": "FedBC", "seed": seed, "round": round, "client": client}
        | {"rows": int(size), "multiplier": float(f"{value:.6g}")}
        for seed, record in enumerate(records)
        for round, values in record.multipliers.items()
        for client, (size, value) in enumerate(zip(record.sizes, values, strict=True))
    ]


def facts_of(task: FedbcTask) -> Row:
    return {"E": task.epochs, "clients": task.clients}
