"""APFL, Fig. 5: handwriting by writer."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.figure import Figure

from polyfed.papers.apfl.methods import (
    ADAPTIVE,
    BATCH,
    DIFFERENCES,
    PAPER,
    PUBLISHED_LR,
    SEEDS,
    apfl_entries,
    decays,
    shared_entries,
    tuning_notes,
)
from polyfed.papers.shared import style
from polyfed.papers.shared.claims import Claim, similar
from polyfed.papers.shared.comparison import Compared, compare
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.held_out import against, options, plus_minus
from polyfed.papers.shared.rows import where
from polyfed.papers.shared.tuned import Setting

WRITERS = "539 writers"
UNTUNED = f"{WRITERS}, not tuned"
"""The same at the paper's own hyper-parameters."""
MLP_RATES = (0.01, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
"""The stepsizes that are tried; the paper's is 0.1."""
EPOCH = 4
"""The steps of fine-tuning: an epoch of the mean writer, who has 78 training rows."""
STARTS, APFL_RATES = (0.1, 0.5, 0.9), (0.1, 0.3, 1.0, 2.0)
"""APFL has its alpha at the start tuned beside the stepsize, with as many candidates."""
SAME = 0.01
"""Training losses that differ by less are the same."""
RIVAL = "FedAvg, localized"


def judge(rows: list[Row]) -> list[Claim]:
    """More accurate than localized FedAvg, with the same training loss."""
    compared = Compared(where(rows, column=WRITERS))
    ours, theirs = (compared.ends(WRITERS, label, "train_loss") for label in (ADAPTIVE, RIVAL))
    text = f"{ADAPTIVE} has the training loss of {RIVAL} (within {SAME})."
    return [
        similar(text, ours, theirs, SAME, against(ours, theirs)),
        compared.beats(WRITERS, ADAPTIVE, RIVAL),
    ]


def draw(rows: list[Row]) -> Figure:
    tuned = Compared(where(rows, column=WRITERS))
    panels = [style.Panel(str(row[0].y_label), row[0].curves, row[0].y_label) for row in tuned.panels()]
    return style.small_multiples([panels], x_label="communication rounds", log_y=False)


def tell(rows: list[Row]) -> list[str]:
    compared = Compared(rows)
    told = [f"alpha at the end, mean over writers: {plus_minus(compared.share(WRITERS, ADAPTIVE))}."]
    if UNTUNED in compared.columns:
        words = compared.words(UNTUNED, [ADAPTIVE, RIVAL])
        told.append(f"At the paper's own hyper-parameters, not tuned: {words}.")
    return told


@experiment(
    "apfl/fig5",
    paper=PAPER,
    title="APFL and localized FedAvg on handwriting by writer",
    caption=(
        "Training loss and test accuracy over all writers when a tenth of them take part in a round for one epoch: an "
        "MLP with two hidden layers of 200; APFL with learned alpha, and the localized model of FedAvg."
    ),
    data="MNIST by its 539 writers (QMNIST's writer ids): each writer's digits split into training and test rows.",
    differences=DIFFERENCES
    + " 539 writers of MNIST stand in for 1,000 writers of EMNIST's digits. Fine-tuning takes 4 steps, an epoch of the "
    "mean writer. alpha at the start, 0.5 in the paper, is tuned too.",
    judge=judge,
    draw=draw,
    tell=tell,
)
def fig5(quick: bool, progress: ExperimentProgress) -> Measured:
    """Natural clients: handwriting."""
    rounds, seeds, budget = (20, 1, 0) if quick else (250, SEEDS, len(MLP_RATES))
    work = {"local_epochs": 1, "batch": BATCH}
    given = options(clients=60) if quick else ()
    setting = Setting("mnist_by_writer", given, "mlp", 0.0, rounds, EPOCH, BATCH, MLP_RATES, 0.1)
    space = options(lr=decays(APFL_RATES), alpha=STARTS)
    entries = {label: replace(it, space=space) for label, it in apfl_entries((), work, (), 0.5).items()}
    entries |= shared_entries("FedAvg", "fedavg", decays(MLP_RATES), PUBLISHED_LR, work, ["finetuned", "global"])
    comparison = compare({WRITERS: setting}, entries, seeds=seeds, budget=budget, progress=progress)
    rows = comparison.rows
    if budget:
        untuned = compare({UNTUNED: setting}, entries, seeds=seeds, budget=0, progress=progress)
        rows += untuned.rows
    more = {"rounds": rounds, "steps of fine-tuning": EPOCH, "seeds": seeds, "candidates": budget}
    return Measured(
        rows,
        {"participation": 0.1, "epochs": 1, "batch": BATCH, "the paper's alpha at the start": 0.5, **more},
        tuning_notes(comparison, budget, MLP_RATES),
    )
