"""APFL, Tables 1 and 2: networks on CIFAR-10 and MNIST, beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from polyfed.core.schedules import Decay
from polyfed.papers.apfl.methods import (
    ADAPTIVE,
    BATCH,
    CLIENTS,
    DIFFERENCES,
    MNIST,
    PAPER,
    PARTITIONS,
    PUBLISHED_LR,
    SEEDS,
    STEPS,
    apfl_entries,
    decays,
    shared_entries,
    tuning_notes,
)
from polyfed.papers.shared import claims, style
from polyfed.papers.shared.claims import Claim, every
from polyfed.papers.shared.comparison import Compared, compare
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.held_out import options, plus_minus
from polyfed.papers.shared.rows import where
from polyfed.papers.shared.tuned import Entry, Setting

CIFAR, DIGITS, UNTUNED = "CIFAR-10", "MNIST", "MNIST, not tuned"
"""The data of the two tables, and Table 2 at the paper's own hyper-parameters."""
LOCALIZED = "FedAvg, localized"
CNN_RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
TABLE2_RATES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7)
"""The stepsizes that are tried; the paper's is 0.1."""
CHOSEN_RATE, LOCALIZED_RATE = 0.05, 0.01
"""What tuning chose for Table 1: for APFL and FedAvg, and for fine-tuning FedAvg's global model."""
CIFAR_LR = Decay(0.05, 0.95)
"""SCAFFOLD's in Table 1."""
Published = Mapping[str, tuple[float, float]]
"""By label: training loss, validation accuracy in percent."""
TABLE1: Published = {
    "APFL, α = 0.25": (0.154, 89.33),
    "APFL, α = 0.5": (0.113, 88.74),
    "APFL, α = 0.75": (0.103, 89.04),
    ADAPTIVE: (0.101, 88.87),
    "FedAvg, global": (1.789, 32.51),
    "FedAvg, localized": (0.369, 83.16),
    "SCAFFOLD, global": (1.70, 37.16),
    "SCAFFOLD, localized": (0.593, 85.25),
}
TABLE2: Published = {
    "APFL, α = 0.25": (0.011, 98.07),
    "APFL, α = 0.5": (0.004, 98.04),
    "APFL, α = 0.75": (0.002, 97.86),
    ADAPTIVE: (0.004, 98.10),
    "FedAvg, global": (0.240, 93.81),
    "FedAvg, localized": (0.041, 97.75),
    "perFedAvg": (0.039, 97.83),
    "pFedMe": (0.182, 95.92),
}
"""As published."""


def judge_table1(rows: list[Row]) -> list[Claim]:
    """Every APFL is more accurate than each rival, and the best about as accurate as the paper's."""
    compared = Compared(rows)
    ours = [label for label in compared.labels if label.startswith("APFL")]
    made = []
    for rival in (label for label in compared.labels if label not in ours):
        differences = {label: compared.ends(CIFAR, label) - compared.ends(CIFAR, rival) for label in ours}
        words = compared.words(CIFAR, [*ours, rival])
        made.append(every(f"Every APFL is more accurate than {rival}.", differences, words, claims.POINTS))
    return [*made, _reaches(compared, CIFAR, compared.best(CIFAR, "APFL"), 0.85)]


def judge_pairs(rows: list[Row]) -> list[Claim]:
    compared = Compared(rows)
    best = compared.best(CIFAR, "APFL")
    made = [compared.beats(CIFAR, best, rival) for rival in compared.labels if rival.startswith("FedAvg")]
    return [*made, _reaches(compared, CIFAR, ADAPTIVE, 0.85)]


def judge_table2(rows: list[Row]) -> list[Claim]:
    """The order of the table: APFL's best alpha by validation rows, perFedAvg, localized FedAvg, pFedMe, FedAvg."""
    compared = Compared(_tuned(rows))
    order = [compared.best(DIGITS, "APFL"), "perFedAvg", LOCALIZED, "pFedMe", "FedAvg, global"]
    made = [compared.beats(DIGITS, first, second) for first, second in pairwise(order)]
    return [*made, _reaches(compared, DIGITS, ADAPTIVE, 0.975)]


def _tuned(rows: list[Row]) -> list[Row]:
    return where(rows, column=DIGITS)


def _tell_table2(rows: list[Row]) -> list[str]:
    untuned = [{**row, "column": DIGITS} for row in where(rows, column=UNTUNED)]
    told = [_table(Compared(_tuned(rows)), DIGITS, TABLE2)]
    if untuned:
        words = "The same at the paper's own hyper-parameters, not tuned:"
        told += [words, _table(Compared(untuned), DIGITS, TABLE2)]
    return told


def _reaches(compared: Compared, column: str, label: str, level: float) -> Claim:
    """The claim of an accuracy, on validation rows as in the paper and on test rows."""
    values = {split: compared.ends(column, label, f"{split}_accuracy") for split in ("validation", "test")}
    return every(
        f"{label} is at least {level:.1%} accurate, on validation rows and on test rows.",
        {f"{split} rows": accuracies - level for split, accuracies in values.items()},
        ", ".join(f"{plus_minus(accuracies, True)} on {split} rows" for split, accuracies in values.items()),
        claims.POINTS,
    )


@experiment(
    "apfl/table1",
    paper=PAPER,
    title="APFL, FedAvg and SCAFFOLD on CIFAR-10 with 2 classes a client and a CNN",
    caption=(
        "Test accuracy after 100 rounds, mean and standard deviation over seeds (dots and bars), beside the validation "
        "accuracies that the paper prints (crosses); two convolutions and two fully connected layers, tau = 10."
    ),
    data=(
        "CIFAR-10, 50,000 training images shared out over 100 clients with 2 classes each, a tenth of each client's "
        "rows held out for validation; the published test images are shared out in the same proportions."
    ),
    differences=DIFFERENCES
    + " The paper counts the network's layers; their sizes are those of its authors' code (FedTorch). That code also "
    "makes the task easier than the paper says: it standardizes the images, flips and crops them at random, and deals "
    "the rows out in the order of their labels, so that there are five pairs of classes only (airplane and dog, "
    "automobile and frog, bird and horse, cat and ship, deer and truck), each with 20 clients. Here images are bytes "
    "divided by 255, as they are, and the pairs are drawn at random, hard ones such as cat and dog among them. On the "
    "authors' five pairs (apfl/table1_pairs) adaptive APFL has 88.2%, so that the pairs are most of the difference.",
    judge=judge_table1,
    draw=lambda rows: _dots(Compared(rows), CIFAR, TABLE1),
    tell=lambda rows: [_table(Compared(rows), CIFAR, TABLE1)],
)
def table1(quick: bool, progress: ExperimentProgress) -> Measured:
    """Personal models are better than localized ones, and these than global ones."""
    rounds, seeds, budget, first_clients = (3, 1, 0, 3) if quick else (100, SEEDS, len(CNN_RATES), None)
    data = (*PARTITIONS["2 classes a client"], ("clients", CLIENTS))
    setting = Setting(
        "cifar10", data, "cifar_cnn", 0.0, rounds, STEPS, BATCH, CNN_RATES, every=rounds, first_clients=first_clients
    )
    work, both = {"local_steps": STEPS, "batch": BATCH}, ("global", "finetuned")
    slow = (CIFAR_LR, *decays(CNN_RATES[:-1]))
    entries = apfl_entries(CNN_RATES, work, start=0.5)
    entries |= shared_entries("FedAvg", "fedavg", decays(CNN_RATES), PUBLISHED_LR, work, both)
    entries |= shared_entries("SCAFFOLD", "scaffold", slow, CIFAR_LR, work, both)
    comparison = compare({CIFAR: setting}, entries, seeds=seeds, budget=budget, progress=progress)
    settings: dict[str, object] = {"clients": first_clients or CLIENTS, "tau": STEPS, "batch": BATCH, "rounds": rounds}
    settings |= {"seeds": seeds, "candidates": budget}
    return Measured(comparison.rows, settings, tuning_notes(comparison, budget, CNN_RATES))


@experiment(
    "apfl/table1_pairs",
    paper=PAPER,
    title="APFL and FedAvg on CIFAR-10 with the five pairs of classes of the authors' code",
    caption=(
        "Table 1 on the pairs airplane and dog, automobile and frog, bird and horse, cat and ship, deer and truck, 20 "
        "of 100 clients each: test accuracy after 100 rounds, mean and standard deviation over seeds (dots and bars), "
        "beside the validation accuracies that the paper prints (crosses)."
    ),
    data=(
        "CIFAR-10, 50,000 training images in the order of their labels, in 200 blocks, of which client i has the i-th "
        "and the (100 + i)-th; a tenth of each client's rows held out for validation; the published test images are "
        "shared out in the same proportions."
    ),
    differences=(
        "The hyper-parameters are those that tuning chose for Table 1 on pairs that are drawn at random, not the "
        "paper's; nothing was tuned here. Accuracy is over all clients. The authors' code also standardizes the images "
        "and flips and crops them at random; here they are bytes divided by 255. SCAFFOLD and alpha = 0.75, for which "
        "tuning chose another stepsize, are left out. This experiment was added after Table 1 on random pairs had "
        "missed 85%, to see whether the pairs are the reason."
    ),
    judge=judge_pairs,
    draw=lambda rows: _dots(Compared(rows), CIFAR, TABLE1),
    tell=lambda rows: [_table(Compared(rows), CIFAR, TABLE1)],
)
def table1_pairs(quick: bool, progress: ExperimentProgress) -> Measured:
    """How much of Table 1's accuracy comes from which classes a client has."""
    rounds, seeds, first_clients = (5, 1, 5) if quick else (100, SEEDS, None)
    data = options(partition="shards", k=2, deal="in turn", clients=CLIENTS)
    setting = Setting(
        "cifar10",
        data,
        "cifar_cnn",
        0.0,
        rounds,
        STEPS,
        BATCH,
        rates=(),
        every=rounds,
        first_clients=first_clients,
        untuned_rate=LOCALIZED_RATE,
    )
    work, lr = {"local_steps": STEPS, "batch": BATCH}, Decay(CHOSEN_RATE, 0.99)
    entries = {
        label: replace(entry, options=options(**{**dict(entry.options), "lr": lr}), space=())
        for label, entry in apfl_entries((), work, fixed=(0.25, 0.5), start=0.5).items()
    }
    entries |= shared_entries("FedAvg", "fedavg", (), lr, work, ("global", "finetuned"))
    comparison = compare({CIFAR: setting}, entries, seeds=seeds, budget=0, progress=progress)
    settings: dict[str, object] = {
        "clients": first_clients or CLIENTS,
        "tau": STEPS,
        "batch": BATCH,
        "rounds": rounds,
        "seeds": seeds,
        "stepsize": f"{CHOSEN_RATE} * 0.99^round",
        "stepsize of fine-tuning": LOCALIZED_RATE,
    }
    return Measured(comparison.rows, settings)


@experiment(
    "apfl/table2",
    paper=PAPER,
    title="Personalization methods on MNIST with 2 classes a client and an MLP",
    caption=(
        "Test accuracy after 100 rounds, mean and standard deviation over seeds (dots and bars), beside the validation "
        "accuracies that the paper prints (crosses); an MLP with two hidden layers of 200, tau = 20."
    ),
    data=MNIST,
    differences=DIFFERENCES
    + " perFedAvg is its Hessian-free form and adapts on training rows, by one step or by tau as tuning prefers; the "
    "paper does not say in how many steps its models are adapted. Its inner stepsize is the paper's.",
    judge=judge_table2,
    draw=lambda rows: _dots(Compared(_tuned(rows)), DIGITS, TABLE2),
    tell=_tell_table2,
)
def table2(quick: bool, progress: ExperimentProgress) -> Measured:
    """APFL, then perFedAvg, localized FedAvg, pFedMe and the global model."""
    rounds, seeds, steps, budget, first_clients = (10, 1, 5, 0, 20) if quick else (100, SEEDS, 20, 12, None)
    data = (*PARTITIONS["2 classes a client"], ("clients", CLIENTS))
    setting = Setting(
        "mnist", data, "mlp", 0.0, rounds, steps, BATCH, TABLE2_RATES, every=rounds, first_clients=first_clients
    )
    entries = table2_entries({"local_steps": steps, "batch": BATCH}, steps)
    comparison = compare({DIGITS: setting}, entries, seeds=seeds, budget=budget, progress=progress)
    rows = comparison.rows
    if budget:
        untuned = compare({DIGITS: setting}, entries, seeds=seeds, budget=0, progress=progress)
        rows += [{**row, "column": UNTUNED} for row in untuned.rows]
    settings: dict[str, object] = {"clients": first_clients or CLIENTS, "tau": steps, "batch": BATCH, "rounds": rounds}
    settings |= {"seeds": seeds, "candidates": budget}
    return Measured(rows, settings, tuning_notes(comparison, budget, TABLE2_RATES))


def table2_entries(work: dict[str, int], steps: int) -> dict[str, Entry]:
    """Table 2's methods, with a dozen candidates each."""
    lrs = decays(TABLE2_RATES)
    entries = apfl_entries(TABLE2_RATES, work, start=0.5)
    entries |= shared_entries("FedAvg", "fedavg", lrs, PUBLISHED_LR, work, ("global", "finetuned"))
    entries["perFedAvg"] = Entry(
        "perfedavg",
        options(inner_lr=0.01, lr=0.001, adapt_steps=1, **work),
        "personal",
        options(lr=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3), adapt_steps=(1, steps)),
    )
    entries["pFedMe"] = Entry(
        "pfedme",
        options(penalty=15.0, inner_lr=0.01, inner_steps=5, lr=0.01, **work),
        "personal",
        options(penalty=(5.0, 15.0), inner_lr=(0.01, 0.03, 0.1), lr=(0.01, 0.06)),
    )
    return entries


def _table(compared: Compared, column: str, published: Published) -> str:
    """Ours beside the paper's, with the difference of the validation accuracies."""
    lines = [
        "| method | training loss | test accuracy | validation accuracy | published: training loss "
        "| validation accuracy | difference |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for label in compared.labels:
        loss, accuracy = published[label]
        validation = compared.ends(column, label, "validation_accuracy")
        cells = [
            label,
            plus_minus(compared.ends(column, label, "train_loss")),
            plus_minus(compared.ends(column, label), True),
            plus_minus(validation, True),
            f"{loss:g}",
            f"{accuracy:.2f}%",
            f"{100 * np.mean(validation) - accuracy:+.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _dots(compared: Compared, column: str, published: Published) -> Figure:
    """A line per method: ours with its deviation, the paper's beside it."""
    with matplotlib.rc_context(style.RC):
        figure = Figure(figsize=(7.2, 3.2), layout="constrained")
        axis = figure.subplots()
        for place, label in enumerate(compared.labels):
            values = 100 * compared.ends(column, label)
            error = np.std(values, ddof=1) if len(values) > 1 else 0.0
            axis.errorbar(values.mean(), place, xerr=error, fmt="o", color=style.COLOURS[0], label=_once(place, "here"))
            axis.plot(published[label][1], place, "x", color=style.COLOURS[1], label=_once(place, "paper"))
        axis.set_yticks(range(len(compared.labels)), compared.labels)
        axis.invert_yaxis()
        axis.set_xlabel("accuracy (%)")
        figure.legend(loc="outside right center")
    return figure


def _once(place: int, label: str) -> str:
    return label if place == 0 else "_"
