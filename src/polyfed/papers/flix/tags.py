"""FLIX, Fig. 1, 6 and 7: tags of software packages by linear models, in the place of Stack Overflow's."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure

from polyfed.core.startup import start
from polyfed.papers.flix.convex import PAPER
from polyfed.papers.flix.tag_models import INNER, MOST
from polyfed.papers.flix.tag_runs import (
    ALONE,
    ALPHAS,
    CONSTANT,
    RIVALS,
    STEPSIZES,
    TOLERANCES,
    TagTask,
    best_tolerance,
    chosen,
    flix_candidates,
    rival_candidates,
    run_all,
    tasks,
    tolerance_rows,
)
from polyfed.papers.shared import claims, style
from polyfed.papers.shared.claims import Claim, every, some
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.held_out import options, plus_minus
from polyfed.papers.shared.rows import distinct, where

SEEDS = 5
META = ("FOMAML", "Reptile")
DEALT = (
    "debtags, the words of Debian packages' descriptions (10,000, a word occurs or not) and their tags (the 100 most "
    "common). (a) The two maintainers with the most packages, dealt out over 100 workers: 50 have 10 training rows "
    "each of the one, 50 of the other. The workers of a maintainer share its 100 rows for validation and 200 and 196 "
    "for test."
)
NATURAL = (
    " (b) The 51 maintainers with 30 packages or more; of those with more than 60, 60 are drawn, so that a client has "
    "15 to 30 training rows, and 15% of its rows for validation, 35% for test."
)
DIFFERENCES = (
    "Debian's packages stand in for Stack Overflow's questions, which are not at hand. 100 tags instead of 500. "
    "Clients of (b) have at most 30 training rows instead of 90, and are all that have enough rows, not a cluster. 300 "
    "rounds (a) and 150 (b) instead of 10,000 and 50,000: with full gradients and these stepsizes. Five draws of the "
    "rows (seeds), where the paper shows one. Pure local models by gradient descent with a line search (Armijo, as in "
    f"Fig. 4) instead of a stepsize that is not given, for at most {MOST} iterations a tolerance. A grid of "
    f"{STEPSIZES[0]:g} to {STEPSIZES[-1]:g} by factors of about 3, as the loss is a sum over tags here. The models are "
    "computed in the space of the training rows, where no number per word is needed; a test compares them with those "
    "of `polyfed.algorithms`."
)


SCOPE = (
    "**Smaller than in the paper:** 300 rounds on workers and 150 on maintainers instead of 10,000 and 50,000, 100 "
    "tags instead of 500, at most 30 training rows a maintainer instead of 90, and another dataset."
)


def _effort(quick: bool) -> int:
    return 2 if quick else SEEDS


def _flix_rows(task: TagTask, tolerance: float, seeds: int, progress: ExperimentProgress) -> list[Row]:
    """The first seed with every stepsize of every alpha, the others with those that it chose."""
    grids = [flix_candidates(alpha, tolerance) for alpha in ALPHAS]
    rows = run_all(task, 0, "FLIX", [each for grid in grids for each in grid], progress)
    size = len(STEPSIZES)
    best = [chosen(rows[place * size : (place + 1) * size], grid) for place, grid in enumerate(grids)]
    return rows + [row for seed in range(1, seeds) for row in run_all(task, seed, "FLIX", best, progress)]


def _rival_rows(task: TagTask, method: str, seeds: int, progress: ExperimentProgress) -> list[Row]:
    candidates = rival_candidates(method)
    rows = run_all(task, 0, method, candidates, progress)
    best = chosen(rows, candidates)
    return rows + [row for seed in range(1, seeds) for row in run_all(task, seed, method, [best], progress)]


def _task_rows(task: TagTask, seeds: int, progress: ExperimentProgress) -> list[Row]:
    rows = [row for seed in range(seeds) for row in tolerance_rows(task, seed, progress)]
    rows += [row for seed in range(seeds) for row in run_all(task, seed, CONSTANT, [options()], progress)]
    tolerance = best_tolerance(task, progress)
    rows += _flix_rows(task, tolerance, seeds, progress)
    for method in RIVALS:
        rows += _rival_rows(task, method, seeds, progress)
    return rows


NUMBERS = ("alpha", "lr", "inner_lr", "server_lr", "tolerance")


def winner(rows: list[Row], task: str, method: str, alpha: float | None = None) -> list[Row]:
    """The rows, by seed, of the candidate that the first seed's validation rows choose.

    That is the one with the highest recall@5; of pure local models, the one with the lowest loss, as in the paper.
    """
    facts = {"task": task, "method": method} | ({} if alpha is None else {"alpha": alpha})
    mine = where(rows, **facts)
    first = where(mine, seed=0)
    if method == ALONE:
        best = min(first, key=lambda row: row["validation_loss"])
    else:
        best = max(first, key=lambda row: row["validation_recall"])
    same = [row for row in mine if all(row.get(name) == best.get(name) for name in NUMBERS)]
    return sorted(same, key=lambda row: row["seed"])


def recalls(rows: list[Row], task: str, method: str, alpha: float | None = None) -> np.ndarray:
    """recall@5 on test rows, one for each seed; FLIX at alpha = 0 is everybody alone."""
    method, alpha = (ALONE, None) if alpha == 0 else (method, alpha)
    return np.array([row["test_recall"] for row in winner(rows, task, method, alpha)], float)


def best_alpha(rows: list[Row], task: str) -> float:
    """By the first seed's validation rows, of the alphas between 0 and 1."""
    inner = [alpha for alpha in _alphas(rows) if alpha < 1]
    return max(inner, key=lambda alpha: winner(rows, task, "FLIX", alpha)[0]["validation_recall"])


def _alphas(rows: list[Row]) -> list[float]:
    return sorted(distinct(rows, "alpha"))


def judge_fig1(rows: list[Row]) -> list[Claim]:
    workers, natural = distinct(rows, "task")
    inner = [alpha for alpha in _alphas(rows) if alpha < 1]
    wide = {
        f"α = {alpha:g} against {rival}": recalls(rows, workers, "FLIX", alpha) - recalls(rows, workers, rival)
        for alpha in inner
        for rival in META
    }
    made = [
        every(
            "(a): FLIX has a higher recall@5 than FOMAML and Reptile for every alpha from 0.2 to 0.8.",
            wide,
            _words(rows, workers, inner, META),
            claims.POINTS,
        ),
        _best_claim(rows, natural, "(b)", META, ""),
    ]
    between = {}
    for alpha in inner:
        edge = max((0.0, 1.0), key=lambda edge: float(np.mean(recalls(rows, natural, "FLIX", edge))))
        between[f"α = {alpha:g} against α = {edge:g}"] = recalls(rows, natural, "FLIX", alpha) - recalls(
            rows, natural, "FLIX", edge
        )
    words = _words(rows, natural, [0.0, *inner, 1.0], ())
    made.append(some("(b): the best alpha lies between 0 and 1.", between, words, claims.POINTS))
    for name, task in (("(a)", workers), ("(b)", natural)):
        made += [_best_claim(rows, task, name, (rival,), " (not in the paper)") for rival in ("FedAvg", ALONE)]
    return made


def _best_claim(rows: list[Row], task: str, name: str, rivals: tuple[str, ...], remark: str) -> Claim:
    alpha = best_alpha(rows, task)
    ours = recalls(rows, task, "FLIX", alpha)
    text = f"{name}: FLIX at its best alpha below 1 (by validation rows, {alpha:g}) has a higher recall@5 than "
    differences = {rival: ours - recalls(rows, task, rival) for rival in rivals}
    return every(
        text + " and ".join(map(_label, rivals)) + remark + ".",
        differences,
        _words(rows, task, [alpha], rivals),
        claims.POINTS,
    )


def _label(method: str) -> str:
    return "pure local models" if method == ALONE else method


def _words(rows: list[Row], task: str, alphas: list[float], rivals: tuple[str, ...]) -> str:
    ours = [f"{plus_minus(recalls(rows, task, 'FLIX', alpha), True)} (α = {alpha:g})" for alpha in alphas]
    return ", ".join(ours + [f"{plus_minus(recalls(rows, task, rival), True)} ({rival})" for rival in rivals])


def tell_fig1(rows: list[Row]) -> list[str]:
    return [_chosen_table(rows), _tolerance_table(rows)]


def _chosen_table(rows: list[Row]) -> str:
    lines = [
        "recall@5 of every method at the candidate that validation rows chose, and at the one with the lowest "
        "validation loss (with the first seed).",
        "",
        "| clients | method | chosen | validation recall@5 | test recall@5 | first seed | if chosen by loss |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for task in distinct(rows, "task"):
        methods = [("FLIX", alpha) for alpha in _alphas(rows)] + [(m, None) for m in (*RIVALS, ALONE, CONSTANT)]
        for method, alpha in methods:
            won = winner(rows, task, method, alpha)
            facts = {"task": task, "method": method, "seed": 0} | ({} if alpha is None else {"alpha": alpha})
            by_loss = min(where(rows, **facts), key=lambda row: row["validation_loss"])
            numbers = ", ".join(f"{name} {won[0][name]:g}{_end(won[0], name)}" for name in NUMBERS if name in won[0])
            recall = plus_minus(np.array([row["test_recall"] for row in won]), True)
            lines.append(
                f"| {task} | {method} | {numbers} | {won[0]['validation_recall']:.2%} | {recall} | "
                f"{won[0]['test_recall']:.2%} | {by_loss['test_recall']:.2%} |"
            )
    return "\n".join(lines)


def _end(row: Row, name: str) -> str:
    """A remark where a stepsize is the largest or smallest of those that were tried."""
    tried = {"lr": STEPSIZES} if row["method"] == "FLIX" else RIVALS.get(row["method"], {})
    values = tried.get(name, ())
    if len(values) < 2:
        return ""
    return {max(values): " (the largest)", min(values): " (the smallest)"}.get(row[name], "")


def _tolerance_table(rows: list[Row]) -> str:
    lines = [
        "Pure local models by tolerance, with the first seed.",
        "",
        "| clients | tolerance | reached by | largest norm | iterations (median) | training loss | validation loss | "
        "test recall@5 |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in where(rows, method=ALONE, seed=0):
        lines.append(
            f"| {row['task']} | {row['tolerance']:g} | {row['reached']} of {row['clients']} | "
            f"{row['largest_norm']:.1e} | {row['iterations']:g} | {row['train_loss']:.2g} | "
            f"{row['validation_loss']:.2f} | {row['test_recall']:.2%} |"
        )
    return "\n".join(lines)


def draw_fig1(rows: list[Row]) -> Figure:
    palette = style.colours(["FLIX", *RIVALS, ALONE, CONSTANT])
    panels = []
    for name, task in zip("ab", distinct(rows, "task"), strict=True):
        alphas = [0.0, *_alphas(rows)]
        means = [float(np.mean(recalls(rows, task, "FLIX", alpha))) for alpha in alphas]
        curves = [style.Curve("FLIX", alphas, means, palette["FLIX"], marker="o")]
        for method in (*RIVALS, ALONE, CONSTANT):
            level = float(np.mean(recalls(rows, task, method)))
            curves.append(style.Curve(method, [0, 1], [level] * 2, palette[method], style.BASELINE))
        panels.append(style.Panel(f"({name}) {task}", curves, "recall@5"))
    return style.small_multiples([panels], x_label="α (0: pure local, 1: global)", log_y=False, legend_outside=True)


@experiment(
    "flix/fig1",
    paper=PAPER,
    title="FLIX by alpha against FOMAML, Reptile and FedAvg, recall@5 of tags",
    caption=(
        "recall@5 on test rows against alpha, means over clients and over seeds, for workers of two maintainers (a) "
        "and for maintainers (b); alpha = 0 is everybody alone. Dashed: methods without an alpha, and the constant "
        "predictor, which gives every row the client's own most common tags."
    ),
    data=DEALT + NATURAL,
    differences=DIFFERENCES
    + " Every method has 8 candidates, chosen by recall@5 on the first seed's validation rows; FLIX has 8 for each "
    "alpha, so that FLIX at its best alpha has had 32. The paper gives FOMAML and Reptile 45, and chooses by loss. "
    "FedAvg and the constant predictor are not in the paper's figure.",
    judge=judge_fig1,
    draw=draw_fig1,
    tell=tell_fig1,
)
def fig1(quick: bool, progress: ExperimentProgress) -> Measured:
    """Mixtures of a global and pure local models against models that are trained to be adapted."""
    start()
    chosen_tasks = tasks(quick)
    rows = [row for task in chosen_tasks.values() for row in _task_rows(task, _effort(quick), progress)]
    return Measured(rows, _settings(chosen_tasks, quick, progress) | {"others' candidates": RIVALS}, scope=SCOPE)


def _settings(chosen_tasks: dict[str, TagTask], quick: bool, progress: ExperimentProgress) -> dict[str, object]:
    named = chosen_tasks.items()
    return {
        "rounds": {f"({name})": task.rounds for name, task in named},
        "data": {f"({name})": dict(task.data) for name, task in named},
        "alpha": ALPHAS,
        "FLIX's stepsizes": STEPSIZES,
        "steps of an adaptation, and FedAvg's local steps": INNER,
        "batch": "full",
        "tolerances of pure local models": TOLERANCES,
        "tolerance chosen": {f"({name})": best_tolerance(task, progress) for name, task in named},
        "seeds": _effort(quick),
    }


def _best_stepsizes(rows: list[Row], alpha: float) -> np.ndarray:
    """log10 of the stepsize with the lowest validation loss, one for each seed."""
    seeds = sorted(distinct(rows, "seed"))
    best = [min(where(rows, alpha=alpha, seed=seed), key=lambda row: row["validation_loss"])["lr"] for seed in seeds]
    return np.log10(best)


def judge_grid(rows: list[Row]) -> list[Claim]:
    alphas = _alphas(rows)
    best = {alpha: _best_stepsizes(rows, alpha) for alpha in alphas}
    words = ", ".join(f"{10 ** float(np.median(best[alpha])):.3g} (α = {alpha:g})" for alpha in alphas)
    steps = {f"α = {small:g} against {large:g}": best[small] - best[large] for small, large in pairwise(alphas)}
    ends = f"α = {alphas[0]:g} against {alphas[-1]:g}"
    return [
        every(
            "The smaller alpha, the larger the stepsize with the lowest validation loss (log10).",
            steps,
            f"median over seeds: {words}",
        ),
        every(
            f"The best stepsize is larger at alpha = {alphas[0]:g} than at alpha = {alphas[-1]:g} (log10).",
            {ends: best[alphas[0]] - best[alphas[-1]]},
            f"median over seeds: {words}",
        ),
    ]


def draw_grid(rows: list[Row]) -> Figure:
    alphas, stepsizes = _alphas(rows), sorted(distinct(rows, "lr"))
    titles = {"validation_loss": "log10 of the validation loss", "validation_recall": "1 - validation recall@5"}

    def cell(alpha: float, lr: float, name: str) -> float:
        values = np.array([row[name] for row in where(rows, alpha=alpha, lr=lr)], float)
        return float(np.mean(np.log10(values) if name == "validation_loss" else 1 - values))

    maps = [
        style.HeatMap(
            title,
            [f"{alpha:g}" for alpha in alphas],
            [f"{np.log10(lr):.1f}" for lr in stepsizes],
            np.array([[cell(alpha, lr, name) for lr in stepsizes] for alpha in alphas]),
        )
        for name, title in titles.items()
    ]
    return style.heat_maps(maps, x_label="log10 of the stepsize", y_label="α")


def _grid(place: str, quick: bool, progress: ExperimentProgress) -> Measured:
    start()
    task = tasks(quick)[place]
    tolerance = best_tolerance(task, progress)
    grid = [each for alpha in ALPHAS for each in flix_candidates(alpha, tolerance)]
    rows = [row for seed in range(_effort(quick)) for row in run_all(task, seed, "FLIX", grid, progress)]
    return Measured(rows, _settings({place: task}, quick, progress), scope=SCOPE)


GRID_CAPTION = (
    "Left: log10 of the validation loss of FLIX's personal models by alpha and stepsize, mean over clients and seeds; "
    "right: one minus recall@5 (not in the paper). Colours are scaled within each row; a red frame marks its minimum."
)


@experiment(
    "flix/fig6",
    paper=PAPER,
    title="Stepsizes of FLIX by alpha, on workers of two maintainers",
    caption=GRID_CAPTION,
    data=DEALT,
    differences=DIFFERENCES,
    judge=judge_grid,
    draw=draw_grid,
)
def fig6(quick: bool, progress: ExperimentProgress) -> Measured:
    """Small mixing weights want large stepsizes."""
    return _grid("a", quick, progress)


@experiment(
    "flix/fig7",
    paper=PAPER,
    title="Stepsizes of FLIX by alpha, on maintainers",
    caption=GRID_CAPTION,
    data=DEALT.split(" (a)")[0] + NATURAL,
    differences=DIFFERENCES,
    judge=judge_grid,
    draw=draw_grid,
)
def fig7(quick: bool, progress: ExperimentProgress) -> Measured:
    """Small mixing weights want large stepsizes."""
    return _grid("b", quick, progress)
