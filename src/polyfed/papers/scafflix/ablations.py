"""Scafflix, Fig. 3 and 6: what the mixing weight, the number of sampled clients and p do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

from polyfed.papers.scafflix import nets
from polyfed.papers.scafflix.nets import NETS_PAPER
from polyfed.papers.shared import claims, style, tuned
from polyfed.papers.shared.claims import Claim, better, every, similar
from polyfed.papers.shared.comparison import METRICS, Compared, Comparison, compare
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.held_out import Options, against, options
from polyfed.papers.shared.net_tasks import BATCH, COHORT, WRITERS, P, accelerated, scope_of, tasks
from polyfed.papers.shared.rows import mean_curve, where
from polyfed.papers.shared.tuned import Entry, Setting

BEST = 0.3
"""The paper's best mixing weight on handwriting; also that of the panels on sampled clients and p."""
LARGE_BATCH = 128
LINEAR, EXPONENTIAL = (0.1, 0.3, 0.5, 0.7, 0.9), (0.0001, 0.001, 0.01, 0.1, 1.0)
COHORTS, PROBABILITIES = (1, 5, 10, 20), (0.1, 0.2, 0.5)
MARGIN = 0.01
"""Within a point, Scafflix is called insensitive to how many clients take part."""
BY_ALPHA = f"α, batches of {LARGE_BATCH}"
BY_COHORT = "clients a round"
BY_P = "p"
BY_EXPONENT = f"exponential α, batches of {BATCH}"
FULL = "α, full batches"
ROUNDS = {"round": "communication rounds", "gradients": "gradients of a row, thousands"}


@dataclass(frozen=True)
class Variant:
    """A line of a panel: what of Scafflix is changed."""

    panel: str
    label: str
    alpha: float = BEST
    batch: int = BATCH
    cohort: int = COHORT
    p: float = P


@dataclass(frozen=True)
class AblationTask:
    """What is run on handwriting, and how much of it."""

    setting: Setting
    local: Options
    seeds: int
    budget: int
    scope: str


def ablation_task(quick: bool) -> AblationTask:
    """The size that fits the device."""
    task = tasks(quick)[WRITERS]
    rounds = task.setting.rounds if quick or not accelerated() else 300
    setting = replace(task.setting, rounds=rounds, every=max(1, rounds // 15))
    scope = scope_of({WRITERS: task.size(rounds=rounds)})
    return AblationTask(setting, task.local, task.seeds, task.budget, scope)


def variants(panel: str) -> list[Variant]:
    """The lines of a panel."""
    if panel == BY_COHORT:
        return [Variant(panel, _clients(cohort), cohort=cohort) for cohort in COHORTS]
    if panel == BY_P:
        return [Variant(panel, f"p = {p:g}", p=p) for p in PROBABILITIES]
    batch, alphas = (BATCH, EXPONENTIAL) if panel == BY_EXPONENT else (LARGE_BATCH, LINEAR)
    return [Variant(panel, f"α = {alpha:g}", alpha=alpha, batch=batch) for alpha in alphas]


def _clients(cohort: int) -> str:
    return "1 client" if cohort == 1 else f"{cohort} clients"


def run_variant(task: AblationTask, variant: Variant, plm_lr: float, progress: ExperimentProgress) -> Comparison:
    """The curves of one line, at the best of its stepsizes."""
    own = {"alpha": variant.alpha, "p": variant.p, "batch": variant.batch, "plm_lr": plm_lr, **dict(task.local)}
    rates = task.setting.rates
    entry = Entry("scafflix", options(lr=rates[-1], **own), "personal", options(lr=rates), published=False)
    cohort = min(variant.cohort, _population(task))
    column = {variant.panel: replace(task.setting, participation=cohort)}
    return compare(column, {variant.label: entry}, seeds=task.seeds, budget=task.budget, progress=progress)


def rows_of(task: AblationTask, variant: Variant, comparison: Comparison) -> list[Row]:
    """Its rows, with the gradients that all clients of all rounds have computed, each counted by its rows."""
    sizes = task.setting.problem().federation.train.sizes
    cost = min(variant.cohort, len(sizes)) * float(np.mean(np.minimum(sizes, variant.batch))) / 1000
    rows = comparison.rows_with("iterations")
    return [row | {"gradients": round(row["iterations"] * cost, 3)} for row in rows]


def _population(task: AblationTask) -> int:
    return len(task.setting.problem().federation)


def chosen_plm_lr(quick: bool, progress: ExperimentProgress) -> float:
    """As in the figures beside which these stand."""
    task = tasks(quick)[WRITERS]
    return nets.chosen_plm_lr(nets.compared(task, nets.lonely(task), progress))


def _measured(panels: Sequence[str], quick: bool, progress: ExperimentProgress) -> Measured:
    task, plm_lr = ablation_task(quick), chosen_plm_lr(quick, progress)
    rows, choices = [], {}
    for variant in [variant for panel in panels for variant in variants(panel)]:
        comparison = run_variant(task, variant, plm_lr, progress)
        rows += rows_of(task, variant, comparison)
        choices |= comparison.choices
    return Measured(rows, settings_of(task, plm_lr), [tuned.table(choices)] if task.budget else [], task.scope)


def settings_of(task: AblationTask, plm_lr: float) -> dict[str, object]:
    made: dict[str, object] = {"rounds": task.setting.rounds, "net": task.setting.model, "seeds": task.seeds}
    made |= {"candidates": task.budget, "alpha, where it is not varied": BEST, "p, where it is not varied": P}
    return made | {"clients per round, where they are not varied": COHORT, "plm_lr": plm_lr, **dict(task.local)}


def at_equal_gradients(rows: list[Row], column: str, labels: Sequence[str]) -> dict[str, np.ndarray]:
    """The test accuracy of each seed where every label has computed at most as many gradients as the one with fewest.

    The last evaluation up to there counts, so that none has an advantage.
    """
    ends = [max(row["gradients"] for row in where(rows, column=column, label=label)) for label in labels]
    most, reached = min(ends), {}
    for label in labels:
        by_seed: dict[int, Row] = {}
        for row in where(rows, column=column, label=label):
            if row["gradients"] <= most and row["round"] >= by_seed.get(row["seed"], row)["round"]:
                by_seed[row["seed"]] = row
        reached[label] = np.array([by_seed[seed]["test_accuracy"] for seed in sorted(by_seed)])
    return reached


def judge_fig3(rows: list[Row]) -> list[Claim]:
    """The paper's three statements, and what is left of the last at equal computation."""
    compared = Compared(rows)
    ends = {p: compared.ends(BY_P, f"p = {p:g}") for p in PROBABILITIES}
    few, most = (compared.ends(BY_COHORT, _clients(cohort)) for cohort in (1, 20))
    ten, five = (compared.ends(BY_COHORT, _clients(cohort)) for cohort in (10, 5))
    low, middle, high = (ends[p] for p in PROBABILITIES)
    equal = at_equal_gradients(rows, BY_P, [f"p = {p:g}" for p in PROBABILITIES])
    cheap, dear = equal[f"p = {PROBABILITIES[0]:g}"], equal[f"p = {PROBABILITIES[-1]:g}"]
    words = compared.words(BY_P, [f"p = {p:g}" for p in PROBABILITIES])
    return [
        best_alpha_claim(compared, BY_ALPHA),
        similar(
            "Whether 1 or 20 clients take part makes little difference.",
            most,
            few,
            MARGIN,
            against(most, few, True),
            claims.POINTS,
        ),
        better("10 clients a round do better than 5.", ten, five, against(ten, five, True), claims.POINTS),
        every(
            "After as many rounds, a smaller p is more accurate.",
            {"p = 0.1 over 0.2": low - middle, "p = 0.2 over 0.5": middle - high},
            words,
            claims.POINTS,
        ),
        better(
            "After as many gradients, p = 0.1 is more accurate than p = 0.5 (not in the paper).",
            cheap,
            dear,
            against(cheap, dear, True),
            claims.POINTS,
        ),
    ]


def judge_fig6(rows: list[Row]) -> list[Claim]:
    compared = Compared(rows)
    extremes = [f"α = {alpha:g}" for alpha in (EXPONENTIAL[0], EXPONENTIAL[-1])]
    between = f"{BY_EXPONENT}: a weight between the extremes, α = 0.1, is more accurate than both."
    return [best_alpha_claim(compared, FULL), compared.beats_all(BY_EXPONENT, "α = 0.1", extremes, between)]


def best_alpha_claim(compared: Compared, column: str) -> Claim:
    """The weight that the paper finds best is more accurate than each of the others."""
    ours = f"α = {BEST:g}"
    others = [variant.label for variant in variants(column) if variant.alpha != BEST]
    return compared.beats_all(column, ours, others, f"{column}: {ours} is more accurate than every other.")


def draw(rows: list[Row]) -> Figure:
    """Test accuracy against rounds, and against gradients; a panel for each thing that is varied."""
    compared, title = Compared(rows), METRICS["test_accuracy"]
    panels = []
    for x_name, x_label in ROUNDS.items():
        line = []
        for column in compared.columns:
            labels = list(dict.fromkeys(row["label"] for row in where(rows, column=column)))
            palette = style.ramp(labels)
            curves = []
            for label in labels:
                x, y = mean_curve(rows, "test_accuracy", "round", column=column, label=label)
                if x_name != "round":
                    x = mean_curve(rows, x_name, "round", column=column, label=label)[1]
                curves.append(style.Curve(label, x[1:], y[1:], palette[label]))
            line.append(style.Panel(column, curves, title, x_label))
        panels.append(line)
    return style.small_multiples(panels, x_label="", log_y=False, legend_outside=True)


CAPTION = (
    "Test accuracy of the models that clients deploy with Scafflix, means over clients and seeds, above against rounds "
    "and below against the gradients that all clients have computed, each of one row."
)
DIFFERENCES = (
    nets.DIFFERENCES + " The paper shows accuracy against rounds alone: there a smaller p also means more local work, "
    "and more clients a round mean more work, too. It does not say which alpha Figs. 3b and 3c have; here it is the "
    "best of Fig. 3a in the paper. A writer has at most 92 training images here, so that batches of 128 are all of "
    "them: Fig. 3a and the left half of Fig. 6 are the same runs."
)


@experiment(
    "scafflix/fig3",
    paper=NETS_PAPER,
    title="Scafflix by mixing weight, sampled clients and p",
    caption=CAPTION,
    data=nets.DATA,
    differences=DIFFERENCES,
    judge=judge_fig3,
    draw=draw,
)
def fig3(quick: bool, progress: ExperimentProgress) -> Measured:
    """One thing is varied in each panel, and the stepsize is chosen for every line."""
    return _measured((BY_ALPHA, BY_COHORT, BY_P), quick, progress)


@experiment(
    "scafflix/fig6",
    paper=NETS_PAPER,
    title="Scafflix by mixing weight: full batches, and exponential weights",
    caption=CAPTION,
    data=nets.DATA,
    differences=DIFFERENCES,
    judge=judge_fig6,
    draw=draw,
)
def fig6(quick: bool, progress: ExperimentProgress) -> Measured:
    """Linear weights with full batches, exponential ones with batches of 20."""
    return _measured((FULL, BY_EXPONENT), quick, progress)
