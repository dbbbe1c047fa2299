"""APFL, Fig. 1: global and personal models on MNIST, from clients that are alike to clients with one digit each."""

from __future__ import annotations

from matplotlib.figure import Figure

from polyfed.papers.apfl.linear import WORK, effort, fedavg_entries, linear_setting, measured, scaffold_entries
from polyfed.papers.apfl.methods import (
    ADAPTIVE,
    CLIENTS,
    DIFFERENCES,
    MNIST,
    PAPER,
    RATES,
    RIDGE_NOTE,
    ROUNDS,
    apfl_entries,
)
from polyfed.papers.shared import claims, style
from polyfed.papers.shared.claims import Claim, better
from polyfed.papers.shared.comparison import METRICS, Compared, compare
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.held_out import Options, against, options

IID = "IID"
CLASSES = (8, 6, 4, 2, 1)
"""The digits that a client has, after all ten of them in equal shares (IID)."""
GLOBALS = ("FedAvg, global", "SCAFFOLD, global")


def partition_of(column: str) -> Options:
    """How the images are shared out: "IID", or "2 classes a client"."""
    if column == IID:
        return options(partition="iid")
    return options(partition="classes_per_client", k=int(column.partition(" ")[0]))


def column_of(classes: int) -> str:
    return f"{classes} {'class' if classes == 1 else 'classes'} a client"


def judge(rows: list[Row]) -> list[Claim]:
    """Global models get worse as clients differ more, personal ones do not, and lead where clients differ most."""
    compared = Compared(rows)
    made = [claim for name in GLOBALS for claim in _lead_claims(compared, name)]
    for name in GLOBALS:
        made += [_moves(compared, name, metric, worse=True) for metric in METRICS]
    return made + [_moves(compared, ADAPTIVE, metric, worse=False) for metric in METRICS]


def _lead_claims(compared: Compared, name: str) -> list[Claim]:
    first, last = compared.columns[0], compared.columns[-1]
    lead = {column: compared.ends(column, ADAPTIVE) - compared.ends(column, name) for column in (first, last)}
    made = []
    for column in compared.columns[1:]:
        text = f"{column}: APFL's personal models are more accurate than {name}."
        made.append(compared.beats(column, ADAPTIVE, name, say=text))
    text = f"The lead over {name} is larger with {last} than on {first} data."
    words = f"{lead[first].mean():+.2%} to {lead[last].mean():+.2%}"
    return [*made, better(text, lead[last], lead[first], words, claims.POINTS)]


def _moves(compared: Compared, name: str, metric: str, worse: bool) -> Claim:
    """From clients that are alike to those that differ most, a model gets worse, or better."""
    first, last = compared.columns[0], compared.columns[-1]
    then, now = (compared.ends(column, name, metric) for column in (first, last))
    percent = metric.endswith("accuracy")
    what = f"{METRICS[metric]} is {'lower' if worse == percent else 'higher'} with {last} than on {first} data"
    unit = claims.POINTS if percent else claims.PLAIN
    return better(f"{name}: the {what}.", now, then, against(now, then, percent), unit, lower=worse == percent)


def draw(rows: list[Row]) -> Figure:
    compared = Compared(rows)
    palette = style.colours(compared.labels)
    places = range(len(compared.columns))
    panels = []
    for metric, title in METRICS.items():
        curves = []
        for label in compared.labels:
            means = [compared.mean(column, label, metric) for column in compared.columns]
            line = style.BASELINE if label.endswith("global") else style.METHOD
            curves.append(style.Curve(label, list(places), means, palette[label], line, marker="o"))
        panels.append(style.Panel(title, curves, title))
    figure = style.small_multiples([panels], x_label="classes a client", log_y=False, legend_outside=True)
    for axis in figure.axes:
        axis.set_xticks(list(places), [column.partition(" ")[0] for column in compared.columns])
    return figure


@experiment(
    "apfl/fig1",
    paper=PAPER,
    title="Global models and personal models on MNIST as clients grow apart",
    caption=(
        "Training loss and test accuracy after 100 rounds of logistic regression on MNIST, from IID data to one class "
        "a client, means over 100 clients and over seeds: the personal models of APFL with adaptive alpha, and the "
        "global models of FedAvg and SCAFFOLD (dashed)."
    ),
    data=MNIST,
    differences=DIFFERENCES
    + RIDGE_NOTE
    + " The paper does not give the steps between IID and its most diverse data; here they are 8, 6, 4, 2 and 1 "
    "classes a client. alpha is learned from 0.5. With one class a client, whoever predicts that class is right: the "
    "last column says what a shared model costs there, not that digits were learned.",
    judge=judge,
    draw=draw,
)
def fig1(quick: bool, progress: ExperimentProgress) -> Measured:
    """The more clients differ, the more a model of one's own is worth."""
    names = [IID, *(column_of(classes) for classes in ((2, 1) if quick else CLASSES))]
    rounds = 15 if quick else ROUNDS
    columns = {name: linear_setting("mnist", (*partition_of(name), ("clients", CLIENTS)), rounds) for name in names}
    entries = apfl_entries(RATES, WORK, (), 0.5) | fedavg_entries("global") | scaffold_entries("global")
    return measured(compare(columns, entries, **effort(quick), progress=progress), quick, clients=CLIENTS)
