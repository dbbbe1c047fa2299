"""Bedi and others: FedBC. What its figures and tables have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from matplotlib.figure import Figure

from polyfed.papers.fedbc.contenders import GLOBAL, FedbcTask
from polyfed.papers.fedbc.tuned_runs import BUDGET, SEEDS, Recorded, ends
from polyfed.papers.shared import style
from polyfed.papers.shared.experiment import Row

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
POOLED, VARIANCE = "global_test_pooled", "global_test_variance"


class Effort(TypedDict):
    """How many seeds are run, and how many candidates each method is tuned with."""

    seeds: int
    budget: int


def effort(quick: bool) -> Effort:
    return {"seeds": 2, "budget": 3} if quick else {"seeds": SEEDS, "budget": BUDGET}


def nets_effort(quick: bool) -> Effort:
    """A quick run of nets does less than one of linear models."""
    return {"seeds": 1, "budget": 2} if quick else effort(False)


def rival_words(rival: str) -> str:
    """A rival's label in a claim, with a remark where the paper does not have it."""
    return f"{rival} (not in the paper)" if rival == UNIFORM else rival


def epochs_figure(recorded: Recorded, tasks: Sequence[FedbcTask]) -> Figure:
    """The global model's accuracy and its variance over clients, against the local epochs."""
    epochs = [task.epochs for task in tasks]
    panels = []
    for column, title in ((POOLED, "global test accuracy"), (VARIANCE, "variance over clients")):
        curves = []
        for label, colour in style.colours(list(GLOBAL)).items():
            means = [float(np.mean(ends(recorded[task, label], column))) for task in tasks]
            curves.append(style.Curve(label, epochs, means, colour, marker="o"))
        panels.append(style.Panel(title, curves, title))
    return style.small_multiples([panels], x_label="local epochs E", log_y=False)


def final_rows(recorded: Recorded) -> list[Row]:
    """The last row of every run."""
    return [
        {"task": task.source, **_facts(task), "method": label, "seed": seed, **record.rows[-1]}
        for (task, label), records in recorded.items()
        for seed, record in enumerate(records)
    ]


def curve_rows(recorded: Recorded) -> list[Row]:
    """All rows of every run."""
    return [
        {**_facts(task), "method": label, "seed": seed, **row}
        for (task, label), records in recorded.items()
        for seed, record in enumerate(records)
        for row in record.rows
    ]


def _facts(task: FedbcTask) -> Row:
    return {"E": task.epochs, "clients": task.clients}
