"""Scafflix, Fig. 2 and 4: nets on MNIST by writer (in FEMNIST's place) and on Shakespeare by role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
from matplotlib.figure import Figure

from polyfed.core.startup import start
from polyfed.papers.scafflix.convex import PAPER
from polyfed.papers.shared import style, tuned
from polyfed.papers.shared.claims import Claim
from polyfed.papers.shared.comparison import METRICS, Compared, Comparison, compare
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.held_out import Options, options
from polyfed.papers.shared.rows import mean_curve
from polyfed.papers.shared.tuned import Entry, Setting

NETS_PAPER = PAPER.replace("Section 4.1", "Sections 4.2, 4.3 and Appendix D")
P, BATCH, COHORT, SEEDS = 0.2, 20, 10, 5
ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)
GRID = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""C_s, the stepsizes of the paper."""
WRITERS, ROLES = "MNIST by writer", "Shakespeare by role"
SHOWN = {WRITERS: 0.1, ROLES: 0.3}
"""The alpha of Fig. 2 on each dataset."""
ALONE, BY_SIZE, UNIFORM, TUNED = "alone", "FedAvg, by size", "FedAvg, uniform", "FedAvg, fine-tuned"
OTHERS = (BY_SIZE, UNIFORM, TUNED, ALONE)


@dataclass(frozen=True)
class NetTask:
    """A dataset with its net, and how much is run on it."""

    name: str
    setting: Setting
    alphas: tuple[float, ...]
    local: Options
    """how pure local models are trained, but for the stepsize"""
    seeds: int
    budget: int
    """candidates for each method: as many as the setting has rates; 0 where nothing is tuned"""
    scope: str


def _setting(source: str, data: Options, model: str, rounds: int, rates: tuple[float, ...]) -> Setting:
    every = max(rounds // 20, 1)
    return Setting(source, data, model, 0.0, rounds, 10, BATCH, rates, participation=COHORT, every=every)


def paper_size() -> dict[str, NetTask]:
    """What the paper ran, for an accelerator."""
    scope = "The paper's size: its nets, 1,000 rounds, every alpha, and its stepsizes."
    writers = _setting("mnist_by_writer", (), "femnist_cnn", 1000, GRID)
    roles = _setting("shakespeare", options(predict="all"), "lstm", 1000, GRID)
    epochs = {WRITERS: 100, ROLES: 25}
    return {
        name: NetTask(name, setting, ALPHAS, options(plm_epochs=epochs[name], plm_batch=100), SEEDS, len(GRID), scope)
        for name, setting in ((WRITERS, writers), (ROLES, roles))
    }


def small_size() -> dict[str, NetTask]:
    """What two cores can do: handwriting alone."""
    rates = (0.03, 0.1, 0.3)
    setting = _setting("mnist_by_writer", options(clients=50), "mlp32", 100, rates)
    scope = (
        "**Not the paper's size, but one that two cores can do:** 50 writers instead of all, an MLP with one hidden "
        "layer of 32 instead of the CNN, 100 rounds instead of 1,000, alpha = 0.1, 0.5 and 0.9, three stepsizes "
        "instead of six, no Shakespeare. On an accelerator the same command runs the paper's size."
    )
    local = options(plm_epochs=20, plm_batch=BATCH)
    return {WRITERS: NetTask(WRITERS, setting, (0.1, 0.5, 0.9), local, SEEDS, len(rates), scope)}


def quick_size() -> dict[str, NetTask]:
    setting = _setting("mnist_by_writer", options(clients=12), "mlp32", 5, (0.1,))
    return {WRITERS: NetTask(WRITERS, setting, (0.1, 0.5), options(plm_epochs=2, plm_batch=BATCH), 2, 0, "")}


def tasks(quick: bool) -> dict[str, NetTask]:
    """The size that fits the device."""
    start()
    return quick_size() if quick else small_size() if jax.default_backend() == "cpu" else paper_size()


def label_of(method: str, alpha: float) -> str:
    return f"{method}, α = {alpha:g}"


def lonely(task: NetTask) -> dict[str, Entry]:
    """Pure local models: what a mixture with alpha = 0 deploys. Their stepsize is chosen first, for all."""
    rates = task.setting.rates
    given = options(alpha=0.0, lr=1.0, batch=BATCH, plm_lr=rates[-1], **dict(task.local))
    return {ALONE: Entry("flix", given, "personal", options(plm_lr=rates))}


def entries(task: NetTask, plm_lr: float) -> dict[str, Entry]:
    """FLIX and Scafflix at every alpha, and FedAvg. A deployed model's step has the same candidates everywhere.

    With lr = c FedAvg and Scafflix move it by c times a gradient; FLIX does so with lr = c / alpha^2.
    """
    rates, own = task.setting.rates, {"batch": BATCH, "plm_lr": plm_lr, **dict(task.local)}
    made: dict[str, Entry] = {}
    for alpha in task.alphas:
        longer = tuple(rate / alpha**2 for rate in rates)
        flix = options(alpha=alpha, lr=longer[-1], **own)
        made[label_of("FLIX", alpha)] = Entry("flix", flix, "personal", options(lr=longer))
        scafflix = options(alpha=alpha, p=P, lr=rates[-1], **own)
        made[label_of("Scafflix", alpha)] = Entry("scafflix", scafflix, "personal", options(lr=rates))
    work = {"lr": rates[-1], "local_steps": round(1 / P), "batch": BATCH}
    for label, weighting, judged in (
        (BY_SIZE, "size", "global"),
        (UNIFORM, "uniform", "global"),
        (TUNED, "size", "finetuned"),
    ):
        made[label] = Entry("fedavg", options(weighting=weighting, **work), judged, options(lr=rates))
    return made


def run(task: NetTask, progress: ExperimentProgress) -> tuple[list[Row], str]:
    """The rows of all methods, and what tuning chose. Figures of one call share the runs."""
    first = _compared(task, lonely(task), progress)
    plm_lr = dict(next(iter(first.choices.values())).options)["plm_lr"]
    rest = _compared(task, entries(task, plm_lr), progress)
    chosen = tuned.table({**first.choices, **rest.choices}) if task.budget else ""
    return rest.rows + first.rows, chosen


def _compared(task: NetTask, wanted: dict[str, Entry], progress: ExperimentProgress) -> Comparison:
    return compare({task.name: task.setting}, wanted, seeds=task.seeds, budget=task.budget, progress=progress)


def judge(rows: list[Row]) -> list[Claim]:
    """Scafflix ends more accurate than FLIX and FedAvg; other rivals are not in the paper."""
    compared, made = Compared(rows), []
    for column in compared.columns:
        for alpha in alphas_of(compared):
            ours = label_of("Scafflix", alpha)
            rivals = [label_of("FLIX", alpha), *OTHERS]
            for rival in rivals:
                remark = "" if rival.startswith("FLIX") or rival == BY_SIZE else " (not in the paper)"
                text = f"{column}: {ours} is more accurate than {rival}{remark}."
                made.append(compared.beats(column, ours, rival, say=text))
    return made


def alphas_of(compared: Compared) -> list[float]:
    return [float(label.partition("= ")[2]) for label in compared.labels if label.startswith("Scafflix")]


def draw(rows: list[Row]) -> Figure:
    """Training loss and test accuracy over the rounds, a column of panels for each alpha and dataset."""
    compared = Compared(rows)
    palette = style.colours(["FLIX", "Scafflix", *OTHERS])
    panels = []
    for metric, title in METRICS.items():
        line = []
        for column in compared.columns:
            for alpha in alphas_of(compared):
                curves = []
                for name, colour in palette.items():
                    label = name if name in OTHERS else label_of(name, alpha)
                    x, y = mean_curve(rows, metric, column=column, label=label)
                    kind = style.METHOD if name == "Scafflix" else style.BASELINE
                    curves.append(style.Curve(name, x[1:], y[1:], colour, kind))
                line.append(style.Panel(f"{column}, α = {alpha:g}", curves, title))
        panels.append(line)
    return style.small_multiples(panels, x_label="communication rounds", log_y=False, legend_outside=True)


def _shown(rows: list[Row], alphas: Sequence[float]) -> list[Row]:
    """The rows of these alphas, and of the methods that have none."""
    labels = {*OTHERS, *(label_of(name, alpha) for name in ("FLIX", "Scafflix") for alpha in alphas)}
    return [row for row in rows if row["label"] in labels]


def _measured(chosen: Sequence[NetTask], alphas: dict[str, list[float]], progress: ExperimentProgress) -> Measured:
    rows, notes = [], []
    for task in chosen:
        mine, table = run(task, progress)
        rows += _shown(mine, alphas[task.name])
        notes += [table] if table else []
    first = chosen[0]
    settings: dict[str, object] = {"rounds": first.setting.rounds, "clients per round": COHORT, "p": P}
    settings |= {"batch": BATCH, "FedAvg's local steps": round(1 / P), "net": [task.setting.model for task in chosen]}
    settings |= {"pure local models": dict(first.local), "seeds": first.seeds, "candidates": first.budget}
    return Measured(rows, settings, notes, first.scope)


DATA = (
    "MNIST's training images by writer (QMNIST's writer ids), a fifth of each writer's for test, a tenth for "
    "validation; Shakespeare's plays by role. The page says above which of them were run."
)
DIFFERENCES = (
    "Writers of MNIST stand in for those of FEMNIST, and clients are natural, where the paper deals rows out at "
    "random. Accuracy is on test rows after the last round, a mean over all clients; what is chosen, is chosen on "
    "validation rows of the first seed, as many candidates for each method; fine-tuned FedAvg also has its stepsize of "
    "fine-tuning chosen. FLIX's candidates are those of Scafflix over alpha^2, so that a deployed model takes steps of "
    "the same lengths. A round of FLIX is one gradient, as in the paper; a round of Scafflix and FedAvg five steps, "
    "Scafflix's in the mean. Control variates are trusted as far as they explain a gradient "
    "([why](../../../algorithms/control-variates.md)). Pure local models and server start from one net; a seed draws "
    "the rows, the cohorts and the batches, and its pure local models are made once for all methods and alphas."
)
CAPTION = (
    "Training loss and test accuracy of the models that clients deploy, means over clients and seeds: Scafflix "
    "(solid), FLIX, FedAvg averaged by size and uniformly, FedAvg after fine-tuning, and everybody alone."
)


@experiment(
    "scafflix/fig2",
    paper=NETS_PAPER,
    title="Scafflix, FLIX and FedAvg with nets, p = 0.2",
    caption=CAPTION,
    data=DATA,
    differences=DIFFERENCES,
    judge=judge,
    draw=draw,
)
def fig2(quick: bool, progress: ExperimentProgress) -> Measured:
    """The paper's choice of alpha on each dataset."""
    return _measured(list(tasks(quick).values()), {name: [alpha] for name, alpha in SHOWN.items()}, progress)


@experiment(
    "scafflix/fig4",
    paper=NETS_PAPER,
    title="Scafflix, FLIX and FedAvg on handwriting, by alpha",
    caption=CAPTION,
    data=DATA,
    differences=DIFFERENCES,
    judge=judge,
    draw=draw,
)
def fig4(quick: bool, progress: ExperimentProgress) -> Measured:
    """The other alphas."""
    task = tasks(quick)[WRITERS]
    return _measured([task], {WRITERS: [alpha for alpha in task.alphas if alpha != SHOWN[WRITERS]]}, progress)
