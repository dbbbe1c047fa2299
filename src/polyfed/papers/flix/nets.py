"""FLIX, Fig. 5 and Tables 1 and 3: nets on MNIST by writer (in EMNIST's place) and on Shakespeare by role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from polyfed.papers.flix import convex
from polyfed.papers.shared import claims, style, tuned
from polyfed.papers.shared.claims import Claim, better
from polyfed.papers.shared.comparison import METRICS, Compared, Comparison, compare
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.held_out import Options, against, options, plus_minus
from polyfed.papers.shared.net_tasks import (
    ALPHAS,
    BATCH,
    COHORT,
    FLIX_ROUNDS,
    ROLES,
    SEEDS,
    WRITERS,
    P,
    accelerated,
    label_of,
    scope_of,
    tasks,
)
from polyfed.papers.shared.rows import mean_curve
from polyfed.papers.shared.tuned import Choice, Entry, Setting

FEDAVG = "FedAvg"
PUBLISHED = {WRITERS: {0.1: 86.2, 0.3: 86.91, 0.5: 86.34, 0.7: 86.52, 0.9: 83.97, FEDAVG: 86.63}}
PUBLISHED[ROLES] = {0.1: 56.20, 0.3: 52.91, 0.5: 57.18, 0.7: 51.46, FEDAVG: 56.29}
"""The paper's Table 1, in percent."""
PUBLISHED_BEST = {WRITERS: (0.3, "10", "0.001", "20", "0.01"), ROLES: (0.5, "4", "0.1", "1", "10^0.5")}
"""Its Table 3: alpha, batch and stepsize of the pure local models, batch and stepsize of FLIX."""


@dataclass(frozen=True)
class FlixTask:
    """A dataset with its net, what is tried, and how much is run."""

    name: str
    setting: Setting
    alphas: tuple[float, ...]
    local: Options
    """candidates for the pure local models, and what they have in common"""
    local_space: Options
    optimizer: str
    lrs: tuple[float, ...]
    """FLIX's stepsizes; with sgd they are divided by alpha^2, as a deployed model moves by alpha^2 lr"""
    fedavg: Options
    fedavg_lrs: tuple[float, ...]
    seeds: int
    tuned: bool
    scope: str


def flix_tasks(quick: bool) -> dict[str, FlixTask]:
    """The size that fits the device."""
    sizes = tasks(quick)
    return {WRITERS: _writers(sizes[WRITERS].setting, quick), ROLES: _roles(quick)}


def _writers(like: Setting, quick: bool) -> FlixTask:
    large = accelerated() and not quick
    rounds = FLIX_ROUNDS if large else 5 if quick else 150
    setting = Setting(
        like.source, like.data, like.model, 0.0, rounds, 10, BATCH, like.rates, COHORT, max(1, rounds // 10)
    )
    epochs = 100 if large else 2 if quick else 20
    scope = (
        "all writers and the CNN, 3,000 rounds, every alpha; two batches and two stepsizes of pure local models, then "
        "four stepsizes of FLIX"
        if large
        else "50 writers instead of all, an MLP with one hidden layer of 32 instead of the CNN, 150 rounds instead of "
        "3,000, every alpha; two batches and two stepsizes of pure local models, then four stepsizes of FLIX"
    )
    return FlixTask(
        WRITERS,
        setting,
        ALPHAS[:2] if quick else ALPHAS,
        options(plm_epochs=epochs),
        options(plm_batch=(20,) if quick else (20, 100), plm_lr=(0.1,) if quick else (0.03, 0.1)),
        "adam",
        (1e-3,) if quick else (3e-4, 1e-3, 3e-3, 1e-2),
        options(local_epochs=1),
        (0.1,) if quick else (0.03, 0.1, 0.3, 1.0),
        2 if quick else SEEDS,
        not quick,
        "" if quick else scope,
    )


def _roles(quick: bool) -> FlixTask:
    """The runs of Scafflix's Fig. 5: a reproduction of both makes them once."""
    like = tasks(quick)[ROLES]
    return FlixTask(
        ROLES,
        like.setting,
        like.alphas,
        like.local,
        options(plm_lr=like.setting.rates),
        "sgd",
        like.setting.rates,
        options(local_steps=round(1 / P)),
        like.setting.rates,
        like.seeds,
        not quick,
        like.whole_size(FLIX_ROUNDS),
    )


def lonely(task: FlixTask) -> dict[str, Entry]:
    """Pure local models, by their batch and stepsize."""
    own = {name: values[-1] for name, values in task.local_space}
    given = options(alpha=0.0, lr=1.0, batch=BATCH, **(dict(task.local) | own))
    return {"alone": Entry("flix", given, "personal", task.local_space, published=False)}


def entries(task: FlixTask, local: Options) -> dict[str, Entry]:
    """FLIX at every alpha, and FedAvg: as many candidates for each."""
    made: dict[str, Entry] = {}
    for alpha in task.alphas:
        lrs = tuple(lr / alpha**2 for lr in task.lrs) if task.optimizer == "sgd" else task.lrs
        given = {"alpha": alpha, "batch": BATCH, **dict(local)}
        if task.optimizer != "sgd":
            given["server_optimizer"] = task.optimizer
        made[label_of("FLIX", alpha)] = Entry(
            "flix", options(lr=lrs[-1], **given), "personal", options(lr=lrs), published=False
        )
    work = {"weighting": "size", "batch": BATCH, **dict(task.fedavg)}
    rates = task.fedavg_lrs
    made[FEDAVG] = Entry("fedavg", options(lr=rates[-1], **work), "global", options(lr=rates), published=False)
    return made


def chosen_local(task: FlixTask, progress: ExperimentProgress) -> tuple[Options, Comparison]:
    """The batch and the stepsize of the pure local models with the best validation accuracy."""
    budget = 1
    for _, values in task.local_space:
        budget *= len(values)
    first = compared(task, lonely(task), budget, progress)
    best = dict(next(iter(first.choices.values())).options)
    return tuple(sorted((name, value) for name, value in best.items() if name.startswith("plm_"))), first


def compared(task: FlixTask, wanted: dict[str, Entry], budget: int, progress: ExperimentProgress) -> Comparison:
    budget = budget if task.tuned else 0
    return compare({task.name: task.setting}, wanted, seeds=task.seeds, budget=budget, progress=progress)


def run(task: FlixTask, progress: ExperimentProgress) -> tuple[list[Row], list[str]]:
    """The rows of all methods, and what tuning chose."""
    local, first = chosen_local(task, progress)
    rest = compared(task, entries(task, local), len(task.lrs), progress)
    notes = [tuned.table({**first.choices, **rest.choices})] if task.tuned else []
    return rest.rows + first.rows, notes + ([best_table(task.name, rest.choices)] if task.tuned else [])


def best_table(name: str, choices: Mapping[tuple[str, str], Choice]) -> str:
    """The paper's Table 3 beside what validation rows chose here."""
    flix = [choice for (_, label), choice in choices.items() if label.startswith("FLIX")]
    best = max(flix, key=lambda choice: choice.score or 0.0)
    chosen = dict(best.options)
    ours = [f"{chosen[key]:g}" for key in ("alpha", "plm_batch", "plm_lr", "batch", "lr")]
    names = ("alpha", "batch of pure local models", "their stepsize", "batch of FLIX", "its stepsize")
    lines = [f"| best on {name} | here | paper |", "| --- | --- | --- |"]
    theirs = [f"{value}" for value in PUBLISHED_BEST[name]]
    return "\n".join([*lines, *(f"| {what} | {a} | {b} |" for what, a, b in zip(names, ours, theirs, strict=True))])


def judge(rows: list[Row]) -> list[Claim]:
    """The paper: FLIX at its best alpha is more accurate than FedAvg, on both datasets. Validation rows choose it."""
    compared, made = Compared(rows), []
    for column in compared.columns:
        best = best_of(compared, column)
        ours, theirs = compared.ends(column, best), compared.ends(column, FEDAVG)
        text = f"{column}: at the alpha that validation rows choose, {best.partition(', ')[2]}, FLIX is more accurate "
        made.append(better(text + "than FedAvg.", ours, theirs, against(ours, theirs, True), claims.POINTS))
        alone = compared.ends(column, "alone")
        words = against(ours, alone, True)
        made.append(better(f"{text}than going alone (not in the paper).", ours, alone, words, claims.POINTS))
    return made


def best_of(compared: Compared, column: str) -> str:
    """Of FLIX's alphas on this dataset, the one with the highest mean on validation rows."""
    labels = dict.fromkeys(row["label"] for row in compared.rows if row["column"] == column)
    mine = [label for label in labels if label.startswith("FLIX")]
    return max(mine, key=lambda label: compared.mean(column, label, "validation_accuracy"))


def draw(rows: list[Row]) -> Figure:
    """Test accuracy over the rounds, FLIX at every alpha and FedAvg."""
    compared, title = Compared(rows), METRICS["test_accuracy"]
    flix = [label for label in compared.labels if label.startswith("FLIX")]
    palette = style.ramp(sorted(flix))
    panels = []
    for column in compared.columns:
        curves = []
        for label in [*sorted(flix), FEDAVG, "alone"]:
            x, y = mean_curve(rows, "test_accuracy", column=column, label=label)
            if len(x):
                colour = palette.get(label, style.COLOURS[1] if label == FEDAVG else "#7F7F7F")
                kind = style.METHOD if label in palette else style.BASELINE
                curves.append(style.Curve(label, x[1:], y[1:], colour, kind))
        panels.append(style.Panel(column, curves, title))
    return style.small_multiples([panels], x_label="communication rounds", log_y=False, legend_outside=True)


def tables(rows: list[Row]) -> list[str]:
    """The paper's Table 1 beside ours."""
    compared, lines = Compared(rows), ["| model | data | test accuracy | paper |", "| --- | --- | --- | --- |"]
    for column in compared.columns:
        mine = list(dict.fromkeys(row["label"] for row in rows if row["column"] == column))
        for label in mine:
            key = float(label.partition("= ")[2]) if label.startswith("FLIX") else label
            published = PUBLISHED[column].get(key)  # pyright: ignore[reportArgumentType]
            words = "" if published is None else f"{published:.2f}%"
            lines.append(f"| {label} | {column} | {plus_minus(compared.ends(column, label), True)} | {words} |")
    return ["\n".join(lines)]


CAPTION = (
    "Test accuracy of the models that clients deploy, means over clients and seeds: FLIX at every alpha (solid), "
    "FedAvg's global model and everybody alone (dashed)."
)
DATA = (
    "MNIST's training images by writer (QMNIST's writer ids) in EMNIST's place, a fifth of each writer's for test, a "
    "tenth for validation; Shakespeare's plays by role."
)
DIFFERENCES = (
    "Writers of MNIST write digits, those of EMNIST also letters, so that accuracies are higher here. Accuracy is on "
    "test rows after the last round, a mean over all clients; what is chosen, is chosen on validation rows of the "
    "first seed. A round of FLIX is one gradient of each of ten clients, a round of FedAvg an epoch on handwriting and "
    "five steps on Shakespeare. FLIX has Adam at the server on handwriting and SGD on Shakespeare, as in the paper. On "
    "Shakespeare FLIX's candidates are divided by alpha^2, and the runs are those of Scafflix's Fig. 5. Pure local "
    "models and server start from one net."
)


@experiment(
    "flix/fig5",
    paper=convex.PAPER,
    title="FLIX and FedAvg with nets",
    caption=CAPTION,
    data=DATA,
    differences=DIFFERENCES,
    judge=judge,
    draw=draw,
    tell=tables,
)
def fig5(quick: bool, progress: ExperimentProgress) -> Measured:
    """Fig. 5 with Table 1 (all alphas) and Table 3 (what tuning chose)."""
    rows, notes = [], []
    chosen = flix_tasks(quick)
    for task in chosen.values():
        mine, words = run(task, progress)
        rows += mine
        notes += words
    scope = scope_of({name: task.scope for name, task in chosen.items()})
    return Measured(rows, settings_of(list(chosen.values())), notes, scope)


def settings_of(chosen: Sequence[FlixTask]) -> dict[str, object]:
    made: dict[str, object] = {"clients per round": COHORT, "batch": BATCH}
    for task in chosen:
        local = ", ".join(f"{name} {value}" for name, value in (*task.local, *task.local_space))
        made[task.name] = (
            f"{task.setting.model}, {task.setting.rounds} rounds, {task.seeds} seeds; FLIX with {task.optimizer}, "
            f"{len(task.lrs) if task.tuned else 0} candidates; {local}"
        )
    return made
