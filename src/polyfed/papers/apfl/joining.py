"""APFL, Fig. 6: three clients join after the others were trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from polyfed import data, models
from polyfed.algorithms.contract import get_algorithm
from polyfed.data.federation import Federation
from polyfed.engine.loop import PlannedRun
from polyfed.engine.newcomers import join
from polyfed.engine.result import Result
from polyfed.engine.simulate import every_whole
from polyfed.papers.apfl.methods import (
    ADAPTIVE,
    BATCH,
    CLIENTS,
    DIFFERENCES,
    PAPER,
    PUBLISHED_LR,
    RATES,
    RIDGE,
    RIDGE_NOTE,
    ROUNDS,
    STEPS,
    apfl_entries,
    decays,
    shared_entries,
)
from polyfed.papers.shared import claims, style, tuned
from polyfed.papers.shared.claims import Claim, better
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.held_out import against, options
from polyfed.papers.shared.rows import distinct, ends, mean_curve, rounded
from polyfed.papers.shared.run_cache import RunCache
from polyfed.papers.shared.tuned import Choice, Setting
from polyfed.problem.objective import Batching
from polyfed.problem.problem import Problem

NEWCOMERS, SEEDS = 3, 5
EPOCHS = (1, 3, 5)
"""After which newcomers are measured."""
FEDAVG, ANEW = "FedAvg, localized", "APFL, stepsize begun anew"
WORK = {"local_epochs": 1, "batch": BATCH}
METRICS = {"train_loss": "training loss", "test_accuracy": "test accuracy"}


class JoiningRun(NamedTuple):
    """A method, trained by most clients of a federation with one seed; then the last three join."""

    setting: Setting
    label: str
    choice: Choice
    seed: int


_curves: RunCache[list[Row]] = RunCache(list, list)


def newcomers_of(setting: Setting, seed: int) -> Problem:
    """The clients that no round has seen."""
    federation = data.load(setting.source, seed=seed, **dict(setting.data))
    assert isinstance(federation, Federation)
    assert setting.first_clients is not None
    late = federation.select(range(setting.first_clients, len(federation)))
    return Problem(late, models.linear(), "softmax", setting.l2)


def curves(runs: Sequence[JoiningRun]) -> list[list[Row]]:
    """What the newcomers reach after each epoch; runs of one method go together."""
    missing = [run for run in runs if _curves.get(run) is None]
    if missing:
        setting = missing[0].setting

        def finished(place: int, result: Result) -> None:
            _curves.put(missing[place], _joined(missing[place], result))

        planned = [
            PlannedRun(
                run.setting.problem(run.seed),
                get_algorithm(run.choice.entry.method)(**dict(run.choice.options)),
                seed=run.seed,
            )
            for run in missing
        ]
        every_whole(planned, finished, rounds=setting.rounds, participation=1.0, eval_every=setting.rounds)
    return [_curves[run] for run in runs]


def _joined(run: JoiningRun, result: Result) -> list[Row]:
    simulation, rows = result.simulation, []
    problem = newcomers_of(run.setting, run.seed)
    begun = {run.label: simulation.round} | ({ANEW: 0} if run.label == ADAPTIVE else {})
    for label, round in begun.items():
        for epochs in EPOCHS:
            _, metrics = join(
                problem,
                simulation.method,
                simulation.server,
                round=round,
                seed=run.seed,
                work=Batching(BATCH, 1, epochs),
                finetune=run.choice.finetune,
            )
            if epochs == EPOCHS[0]:
                rows.append(_row(label, run.seed, 0, metrics["global"]))
            rows.append(_row(label, run.seed, epochs, metrics["personal"]))
    return rows


def _row(label: str, seed: int, epochs: int, found: Mapping[str, Mapping[str, np.ndarray]]) -> Row:
    """The means over the newcomers."""
    row = {
        "train_loss": float(np.mean(found["train"]["loss"])),
        "validation_accuracy": float(np.mean(found["validation"]["accuracy"])),
        "test_accuracy": float(np.mean(found["test"]["accuracy"])),
    }
    return {"label": label, "seed": seed, "round": epochs} | rounded(row)


def judge(rows: list[Row]) -> list[Claim]:
    made = []
    columns = distinct(rows, "column")
    for column in columns:
        for metric, words in (("train_loss", "a lower training loss"), ("test_accuracy", "a higher test accuracy")):
            percent = metric == "test_accuracy"
            for label, remark in ((ADAPTIVE, ""), (ANEW, " (not in the paper)")):
                ours, theirs = (ends(rows, metric, column=column, label=each) for each in (label, FEDAVG))
                text = f"{column}: after {EPOCHS[-1]} epochs newcomers have {words} with {label} than with "
                measured = against(ours, theirs, percent)
                unit = claims.POINTS if percent else claims.PLAIN
                made.append(better(f"{text}{FEDAVG}{remark}.", ours, theirs, measured, unit, lower=not percent))
    first, last = (ends(rows, "test_accuracy", column=column, label=ADAPTIVE) for column in (columns[0], columns[-1]))
    text = (
        f"Diversity makes it harder to personalize: {ADAPTIVE} is more accurate on {columns[0]} than on {columns[-1]}."
    )
    return [*made, better(text, first, last, against(first, last, True), claims.POINTS)]


def draw(rows: list[Row]) -> Figure:
    palette = style.colours(distinct(rows, "label"))
    panels = [
        [
            style.Panel(
                column,
                [
                    style.Curve(label, *mean_curve(rows, metric, column=column, label=label), colour, marker="o")
                    for label, colour in palette.items()
                ],
                title,
            )
            for column in distinct(rows, "column")
        ]
        for metric, title in METRICS.items()
    ]
    return style.small_multiples(panels, x_label="epochs after joining", log_y=False, legend_outside=True)


@experiment(
    "apfl/fig6",
    paper=PAPER.replace("Section 6", "Section 7"),
    title="Three clients join after 97 were trained",
    caption=(
        "Training loss and test accuracy of three clients that join after 100 rounds of the 97 others, against the "
        "epochs that they train, means over them and over seeds: APFL's rule (17), the same with the first round's "
        "stepsize, and fine-tuning of FedAvg's global model. 0 epochs: the global model."
    ),
    data=(
        "synthetic(γ, γ) of Li et al. with 100 clients, 60 features, 10 classes, log-normal sizes of at most 2,000 "
        "rows; a tenth of each client's rows are for validation, a fifth for test. The last three clients join."
    ),
    differences=DIFFERENCES
    + RIDGE_NOTE
    + " alpha is learned from 0.5, and newcomers start from the participants' mean; the paper does not say. Stepsizes "
    f"are chosen by the validation rows of the 97: {len(RATES)} for each method, and {len(RATES)} of fine-tuning on "
    "each of FedAvg's, which has more to choose from. APFL's newcomers go on with the decayed stepsize, or begin its "
    "schedule anew, which is not in the paper.",
    judge=judge,
    draw=draw,
)
def fig6(quick: bool, progress: ExperimentProgress) -> Measured:
    """How newcomers get their models."""
    levels = (0.0, 0.5)
    clients, rounds, seeds, budget = (23, 10, 1, 0) if quick else (CLIENTS, ROUNDS, SEEDS, len(RATES))
    rows: list[Row] = []
    choices: dict[tuple[str, str], Choice] = {}
    for level in levels:
        column = f"synthetic({level:g}, {level:g})"
        given = options(alpha=level, beta=level, clients=clients, max_size=2000)
        setting = Setting(
            "synthetic", given, "linear", RIDGE, rounds, STEPS, BATCH, RATES, first_clients=clients - NEWCOMERS
        )
        entries = apfl_entries(RATES, WORK, (), 0.5)
        entries |= shared_entries("FedAvg", "fedavg", decays(RATES), PUBLISHED_LR, WORK, ["finetuned"])
        chosen = tuned.choose(setting, entries, budget, progress)
        for label, choice in chosen.items():
            progress(f"{column}: {label}", 0, seeds)
            choices[column, label] = choice
            runs = [JoiningRun(setting, label, choice, seed) for seed in range(seeds)]
            rows += [{"column": column, **row} for curve in curves(runs) for row in curve]
    settings: dict[str, object] = {"clients that train": clients - NEWCOMERS, "newcomers": NEWCOMERS}
    settings |= {
        "rounds": rounds,
        "batch": BATCH,
        "epochs a round": 1,
        "ridge": RIDGE,
        "seeds": seeds,
        "candidates": budget,
        "alpha at the start": 0.5,
    }
    return Measured(rows, settings, [tuned.table(choices)] if budget else [])
