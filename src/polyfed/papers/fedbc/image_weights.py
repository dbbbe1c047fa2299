"""FedBC, Fig. 13: what a round's smallest and largest participant weigh in the average, with nets on images."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.figure import Figure

from polyfed.papers.fedbc.contenders import GLOBAL, FedbcTask
from polyfed.papers.fedbc.images import CLASSES, IMAGES, images
from polyfed.papers.fedbc.paper import NETS_PAPER, Effort
from polyfed.papers.fedbc.synthetic import block_rows, gap
from polyfed.papers.fedbc.tuned_runs import SEEDS, collect
from polyfed.papers.fedbc.weights import WEIGHTS, weight_lines
from polyfed.papers.shared import held_out, style
from polyfed.papers.shared.claims import Claim, better
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.held_out import options
from polyfed.papers.shared.rows import distinct, where

EXPONENT, EPOCHS, ROUNDS, EVERY, BUDGET = 1.2, 5, 20, 10, 4


def task_of(C: int, quick: bool) -> FedbcTask:
    task = replace(images("mnist", C, EXPONENT, EPOCHS, quick), every=1, momentum=None)
    if quick:
        return replace(task, rounds=4)
    return replace(task, rounds=ROUNDS, data=options(**dict(task.data) | {"every": EVERY}))


def judge(rows: list[Row]) -> list[Claim]:
    made = []
    for C in distinct(rows, "C"):
        weights, shares = (gap(rows, kind, C=C) for kind in ("weight", "data"))
        text = f"C = {C}: the weights of a round's smallest and largest participant differ less in FedBC than by "
        words = f"by {held_out.against(weights, shares)}, last half of the rounds"
        made.append(better(f"{text}data size.", weights, shares, words, lower=True))
    return made


def draw(rows: list[Row]) -> Figure:
    panels = [style.Panel(f"C = {C}", weight_lines(where(rows, C=C)), "weight") for C in distinct(rows, "C")]
    return style.small_multiples([panels], x_label="round", log_y=False, legend_outside=True)


@experiment(
    "fedbc/fig13",
    paper=NETS_PAPER,
    title="Weights of the smallest and the largest participant, nets on MNIST, by classes a client",
    caption=(
        "The weight of a round's smallest (dotted) and largest participant in the average, FedBC's and what data size "
        "would give, for C = 1, 2 and 3 classes a client; means over seeds and 10 rounds."
    ),
    data=IMAGES.format(name="MNIST").replace("all images", f"one image in {EVERY}"),
    differences=(
        f"MNIST and a net 784-128-10 in the place of CIFAR-10 and a CNN, with one image in {EVERY}, and {ROUNDS} "
        "rounds, so that two processor cores suffice; the paper gives no number of rounds. FedBC is tuned by "
        f"validation rows at C = 2, with {BUDGET} candidates. Batches have 50 rows. Local steps are plain SGD (the "
        "published code has momentum 0.5), and multipliers move only in rounds that their clients take part in."
    ),
    judge=judge,
    draw=draw,
)
def fig13(quick: bool, progress: ExperimentProgress) -> Measured:
    """Multipliers weigh clients more evenly than data sizes do, whatever their classes."""
    tasks = {C: task_of(C, quick) for C in (CLASSES[:2] if quick else CLASSES)}
    given: Effort = {"seeds": 1, "budget": 2} if quick else {"seeds": SEEDS, "budget": BUDGET}
    fedbc = {"FedBC": GLOBAL["FedBC"]}
    recorded, settings = collect(list(tasks.values()), fedbc, progress, tuned_on=tasks[2], **given)
    rows = [
        {"C": C, **row}
        for C, task in tasks.items()
        for row in block_rows({key: found for key, found in recorded.items() if key[0] == task}, WEIGHTS)
    ]
    task = tasks[2]
    facts = {"exponent": EXPONENT, "clients": 20, "clients per round": task.cohort, "batch": task.batch}
    return Measured(rows, facts | {"rounds": task.rounds, "image of every": EVERY} | settings)
