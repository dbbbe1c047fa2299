"""Scafflix, Fig. 2, 4 and 5: nets on MNIST by writer (in FEMNIST's place) and on Shakespeare by role."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from polyfed.papers.scafflix.convex import PAPER
from polyfed.papers.shared import style, tuned
from polyfed.papers.shared.claims import Claim
from polyfed.papers.shared.comparison import METRICS, Compared, Comparison, compare
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.held_out import options
from polyfed.papers.shared.net_tasks import BATCH, COHORT, ROLES, WRITERS, NetTask, P, label_of, scope_of, tasks
from polyfed.papers.shared.rows import mean_curve
from polyfed.papers.shared.tuned import Entry

NETS_PAPER = PAPER.replace("Section 4.1", "Sections 4.2, 4.3 and Appendix D")
SHOWN = {WRITERS: 0.1, ROLES: 0.3}
"""The alpha of Fig. 2 on each dataset."""
ALONE, BY_SIZE, UNIFORM, TUNED = "alone", "FedAvg, by size", "FedAvg, uniform", "FedAvg, fine-tuned"
OTHERS = (BY_SIZE, UNIFORM, TUNED, ALONE)


def lonely(task: NetTask) -> dict[str, Entry]:
    """Pure local models: what a mixture with alpha = 0 deploys. Their stepsize is chosen first, for all."""
    rates = task.setting.rates
    given = options(alpha=0.0, lr=1.0, batch=BATCH, plm_lr=rates[-1], **dict(task.local))
    return {ALONE: Entry("flix", given, "personal", options(plm_lr=rates), published=False)}


def entries(task: NetTask, plm_lr: float, alphas: Sequence[float]) -> dict[str, Entry]:
    """FLIX and Scafflix at these alphas, and FedAvg. A deployed model's step has the same candidates everywhere.

    With lr = c FedAvg and Scafflix move it by c times a gradient; FLIX does so with lr = c / alpha^2.
    """
    rates, own = task.setting.rates, {"batch": BATCH, "plm_lr": plm_lr, **dict(task.local)}
    made: dict[str, Entry] = {}
    for alpha in alphas:
        longer = tuple(rate / alpha**2 for rate in rates)
        flix = options(alpha=alpha, lr=longer[-1], **own)
        made[label_of("FLIX", alpha)] = Entry("flix", flix, "personal", options(lr=longer), published=False)
        scafflix = options(alpha=alpha, p=P, lr=rates[-1], **own)
        made[label_of("Scafflix", alpha)] = Entry("scafflix", scafflix, "personal", options(lr=rates), published=False)
    work = {"lr": rates[-1], "local_steps": round(1 / P), "batch": BATCH}
    for label, weighting, judged in (
        (BY_SIZE, "size", "global"),
        (UNIFORM, "uniform", "global"),
        (TUNED, "size", "finetuned"),
    ):
        made[label] = Entry("fedavg", options(weighting=weighting, **work), judged, options(lr=rates), published=False)
    return made


def run(task: NetTask, alphas: Sequence[float], progress: ExperimentProgress) -> tuple[list[Row], str]:
    """The rows of all methods at these alphas, and what tuning chose. Figures of one call share the runs."""
    first = compared(task, lonely(task), progress)
    rest = compared(task, entries(task, chosen_plm_lr(first), alphas), progress)
    chosen = tuned.table({**first.choices, **rest.choices}) if task.budget else ""
    return rest.rows + first.rows, chosen


def chosen_plm_lr(alone: Comparison) -> float:
    """The stepsize that pure local models are trained with."""
    return dict(next(iter(alone.choices.values())).options)["plm_lr"]


def compared(task: NetTask, wanted: dict[str, Entry], progress: ExperimentProgress) -> Comparison:
    return compare({task.name: task.setting}, wanted, seeds=task.seeds, budget=task.budget, progress=progress)


def judge(rows: list[Row]) -> list[Claim]:
    """Scafflix ends more accurate than FLIX and FedAvg; other rivals are not in the paper."""
    compared, made = Compared(rows), []
    for column in compared.columns:
        for alpha in alphas_of(compared, column):
            ours = label_of("Scafflix", alpha)
            rivals = [label_of("FLIX", alpha), *OTHERS]
            for rival in rivals:
                remark = "" if rival.startswith("FLIX") or rival == BY_SIZE else " (not in the paper)"
                text = f"{column}: {ours} is more accurate than {rival}{remark}."
                made.append(compared.beats(column, ours, rival, say=text))
    return made


def alphas_of(compared: Compared, column: str) -> list[float]:
    labels = dict.fromkeys(row["label"] for row in compared.rows if row["column"] == column)
    return [float(label.partition("= ")[2]) for label in labels if label.startswith("Scafflix")]


def draw(rows: list[Row]) -> Figure:
    """Training loss and test accuracy over the rounds, a column of panels for each alpha and dataset."""
    compared = Compared(rows)
    palette = style.colours(["FLIX", "Scafflix", *OTHERS])
    panels = []
    for metric, title in METRICS.items():
        line = []
        for column in compared.columns:
            for alpha in alphas_of(compared, column):
                curves = []
                for name, colour in palette.items():
                    label = name if name in OTHERS else label_of(name, alpha)
                    x, y = mean_curve(rows, metric, column=column, label=label)
                    kind = style.METHOD if name == "Scafflix" else style.BASELINE
                    curves.append(style.Curve(name, x[1:], y[1:], colour, kind))
                line.append(style.Panel(f"{column}, α = {alpha:g}", curves, title))
        panels.append(line)
    return style.small_multiples(panels, x_label="communication rounds", log_y=False, legend_outside=True)


def _measured(chosen: dict[NetTask, Sequence[float]], progress: ExperimentProgress) -> Measured:
    rows, notes = [], []
    for task, alphas in chosen.items():
        mine, table = run(task, alphas, progress)
        rows += mine
        notes += [table] if table else []
    return Measured(rows, settings_of(list(chosen)), notes, scope_of({task.name: task.whole_size() for task in chosen}))


def settings_of(chosen: Sequence[NetTask]) -> dict[str, object]:
    made: dict[str, object] = {"clients per round": COHORT, "p": P, "batch": BATCH}
    made["FedAvg's local steps"] = round(1 / P)
    for task in chosen:
        local = dict(task.local)
        made[task.name] = (
            f"{task.setting.model}, {task.setting.rounds} rounds, {task.seeds} seeds, {task.budget} candidates; pure "
            f"local models: {local['plm_epochs']} epochs, batch {local['plm_batch']}"
        )
    return made


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
    return _measured({task: [SHOWN[name]] for name, task in tasks(quick).items()}, progress)


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
    return _measured(_others(tasks(quick)[WRITERS]), progress)


@experiment(
    "scafflix/fig5",
    paper=NETS_PAPER,
    title="Scafflix, FLIX and FedAvg on Shakespeare, by alpha",
    caption=CAPTION,
    data=DATA,
    differences=DIFFERENCES,
    judge=judge,
    draw=draw,
)
def fig5(quick: bool, progress: ExperimentProgress) -> Measured:
    """The other alphas."""
    return _measured(_others(tasks(quick)[ROLES]), progress)


def _others(task: NetTask) -> dict[NetTask, Sequence[float]]:
    return {task: [alpha for alpha in task.alphas if alpha != SHOWN[task.name]]}
