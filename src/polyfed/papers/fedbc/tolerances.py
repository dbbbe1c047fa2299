"""FedBC, Fig. 2: the trade-off between the global and the local models."""

from __future__ import annotations

from dataclasses import replace

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from polyfed.papers.fedbc.contenders import GLOBAL
from polyfed.papers.fedbc.paper import POOLED, SYNTHETIC_PAPER, UNIFORM, effort, final_rows, rival_words
from polyfed.papers.fedbc.runs import ContenderRun, trace
from polyfed.papers.fedbc.synthetic import DATA, DIFFERENCES, synthetic, work
from polyfed.papers.fedbc.tuned_runs import choose, collect
from polyfed.papers.shared import claims, held_out, style
from polyfed.papers.shared.claims import Claim, better, some
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.held_out import options, plus_minus
from polyfed.papers.shared.rows import distinct, ends

TOLERANCES = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
STARTS = {"own": "local work from x_i (the text)", "server": "local work from z (the code)"}
IMPROVES = 0.05
"""The paper sees a better global model at tolerances above 0 and below this."""
OWN = "personal_test_mean"
NAMED = ("FedAvg, by size", "FedProx", "SCAFFOLD")
"""Those that a small tolerance improves on, by the figure's caption."""
OTHERS = (*NAMED, UNIFORM)


def judge(rows: list[Row]) -> list[Claim]:
    return [claim for start in STARTS for claim in (*_tradeoff_claims(rows, start), *_above_claims(rows, start))]


def _small(rows: list[Row]) -> list[float]:
    """The tolerances of the paper's region; no result has a part in the choice."""
    return [level for level in distinct(rows, "tolerance") if 0 < level < IMPROVES]


def _tradeoff_claims(rows: list[Row], start: str) -> list[Claim]:
    """Both models get better up to a small tolerance; beyond, the own ones still do, and the global one worse."""
    where, levels, small = STARTS[start], distinct(rows, "tolerance"), _small(rows)
    shared = {level: ends(rows, POOLED, start=start, tolerance=level) for level in levels}
    own = {level: ends(rows, OWN, start=start, tolerance=level) for level in levels}
    edge, largest = max(small), max(levels)
    return [
        some(
            f"{where}: some tolerance above 0 and below {IMPROVES:g} gives a better global model than 0.",
            {f"at {level:g}": shared[level] - shared[0.0] for level in small},
            ", ".join(f"{plus_minus(shared[level], True)} at {level:g}" for level in (0.0, *small)),
            claims.POINTS,
        ),
        better(
            f"{where}: beyond {IMPROVES:g} the global model becomes worse ({edge:g} against {largest:g}).",
            shared[edge],
            shared[largest],
            held_out.against(shared[edge], shared[largest], True),
            claims.POINTS,
        ),
        *(
            better(
                f"{where}: the clients' own models are better at {high:g} than at {low:g}.",
                own[high],
                own[low],
                held_out.against(own[high], own[low], True),
                claims.POINTS,
            )
            for low, high in ((0.0, edge), (edge, largest))
        ),
    ]


def _above_claims(rows: list[Row], start: str) -> list[Claim]:
    """A better global model than those of the caption."""
    ours = {level: ends(rows, POOLED, start=start, tolerance=level) for level in _small(rows)}
    made = []
    for rival in OTHERS:
        theirs = ends(rows, POOLED, method=rival)
        text = f"{STARTS[start]}: some tolerance above 0 and below {IMPROVES:g} gives a better global model than "
        words = ", ".join(f"{plus_minus(values, True)} at {level:g}" for level, values in ours.items())
        made.append(
            some(
                f"{text}{rival_words(rival)}.",
                {f"at {level:g}": values - theirs for level, values in ours.items()},
                f"{words} against {plus_minus(theirs, True)}",
                claims.POINTS,
            )
        )
    return made


def draw(rows: list[Row]) -> Figure:
    """Accuracy against the tolerance, evenly spaced, with the methods of one global model; a panel for each start."""
    levels = distinct(rows, "tolerance")
    with matplotlib.rc_context(style.RC):
        figure = Figure(figsize=(9.6, 3.2), layout="constrained")
        places = np.arange(len(levels))
        for axis, (start, title) in zip(figure.subplots(1, 2, sharey=True), STARTS.items(), strict=True):
            for colour, name, label in ((0, POOLED, "global model"), (1, OWN, "clients' own models")):
                values = [ends(rows, name, start=start, tolerance=level) for level in levels]
                means = np.array([100 * np.mean(v) for v in values])
                widths = np.array([100 * np.std(v, ddof=1) if len(v) > 1 else 0.0 for v in values])
                axis.plot(places, means, "o-", color=style.COLOURS[colour], label=label, markersize=4)
                band = {"color": style.COLOURS[colour], "alpha": 0.15, "linewidth": 0}
                axis.fill_between(places, means - widths, means + widths, **band)
            for colour, label in zip(style.COLOURS[2:], OTHERS, strict=False):
                height = 100 * float(ends(rows, POOLED, method=label).mean())
                axis.axhline(height, color=colour, linestyle=style.BASELINE, label=label)
            axis.set_xticks(places, [f"{level:g}" for level in levels])
            axis.set_title(title)
            axis.set_xlabel("tolerance γ")
        figure.axes[0].set_ylabel("test accuracy (%)")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right center")
    return figure


@experiment(
    "fedbc/fig2",
    paper=SYNTHETIC_PAPER,
    title="The trade-off between the global and the local models, by the tolerance",
    caption=(
        "Accuracy of the global model on all test rows, and of the clients' own models on their own, against a "
        "tolerance that is fixed and the same for all; means over seeds, the band one standard deviation. All points "
        "of a seed and panel are one compiled program. Dashed: methods that have a global model alone."
    ),
    data=DATA,
    differences=DIFFERENCES + " The paper does not say which data Fig. 2 shows, nor its stepsizes. Here E = 5, FedBC's "
    "lr is what Table 1 chose, and its multipliers' stepsize is 0.3, so that the constraints bind within the run. "
    "FedAvg, FedProx and SCAFFOLD, which the figure's caption names, are tuned as in Table 1; FedAvg has weights by "
    "size and uniform ones.",
    judge=judge,
    draw=draw,
)
def fig2(quick: bool, progress: ExperimentProgress) -> Measured:
    """Some tolerance helps both models; more helps the local ones alone."""
    task, given = synthetic(5, quick), effort(quick)
    task = replace(task, every=task.rounds)  # the end is all that is shown
    levels = TOLERANCES[::2] if quick else TOLERANCES
    progress("choosing the stepsize", 0, 1)
    lr = dict(choose(task, "FedBC", "global", given["budget"]))["lr"]
    rivals, settings = collect([task], {label: GLOBAL[label] for label in OTHERS}, progress, **given)
    progress("every tolerance", 0, 1)
    fixed = {"lr": lr, "dual_lr": 0.3, "grow": False}
    runs = {
        (start, level): [
            ContenderRun(task, "FedBC", "global", options(**fixed, tolerance=level, start=start), seed)
            for seed in range(given["seeds"])
        ]
        for start in STARTS
        for level in levels
    }
    trace([run for group in runs.values() for run in group])
    rows = [
        {"method": "FedBC", "start": start, "tolerance": level, "seed": seed, **record.rows[-1]}
        for (start, level), group in runs.items()
        for seed, record in enumerate(trace(group))
    ]
    return Measured(
        rows + final_rows(rivals), work(quick) | settings | {"E": 5, "FedBC's lr": lr, "FedBC's dual_lr": 0.3}
    )
