"""FedBC, Fig. 2: the trade-off between the global and the local models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from polyfed.papers.fedbc.contenders import GLOBAL
from polyfed.papers.fedbc.paper import AVERAGES, POOLED, SYNTHETIC_PAPER, effort, final_rows
from polyfed.papers.fedbc.runs import ContenderRun, trace
from polyfed.papers.fedbc.synthetic import DATA, DIFFERENCES, synthetic, work
from polyfed.papers.fedbc.tuned_runs import choose, collect, ends
from polyfed.papers.shared import style
from polyfed.papers.shared.experiment import Claim, ExperimentProgress, Outcome, experiment
from polyfed.papers.shared.held_out import against, options, plus_minus

TOLERANCES = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
STARTS = {"own": "local work from x_i (the text)", "server": "local work from z (the code)"}
OWN, CHOSEN_BY = "personal_test_mean", "global_validation_pooled"


@experiment(
    "fedbc/fig2",
    paper=SYNTHETIC_PAPER,
    title="The trade-off between the global and the local models, by the tolerance",
    caption=(
        "Accuracy of the global model on all test rows, and of the clients' own models on their own, against a "
        "tolerance that is fixed and the same for all; means over seeds, the band one standard deviation. All points "
        "of a seed and panel are one compiled program. Dashed: the global models of FedAvg."
    ),
    data=DATA,
    differences=DIFFERENCES + " The paper does not say which data Fig. 2 shows, nor its stepsizes. Here E = 5, FedBC's "
    "lr is what Table 1 chose, and its multipliers' stepsize is 0.3, so that the constraints bind within the run. "
    "FedAvg, which Fig. 2 does not show, has weights by size and uniform ones, and is tuned as in Table 1.",
)
def fig2(quick: bool, progress: ExperimentProgress) -> Outcome:
    """Some tolerance helps both models; more helps the local ones alone."""
    task, given = synthetic(5, quick), effort(quick)
    swept = replace(task, every=task.rounds)
    levels = TOLERANCES[::2] if quick else TOLERANCES
    progress("choosing the stepsize", 0, 1)
    lr = dict(choose(task, "FedBC", "global", given["budget"]))["lr"]
    averages = {label: GLOBAL[label] for label in AVERAGES}
    rivals, settings = collect([task], averages, progress, **given)
    progress("every tolerance", 0, 1)
    fixed = {"lr": lr, "dual_lr": 0.3, "grow": False}
    runs = {
        (start, level): [
            ContenderRun(swept, "FedBC", "global", options(**fixed, tolerance=level, start=start), seed)
            for seed in range(given["seeds"])
        ]
        for start in STARTS
        for level in levels
    }
    trace([run for group in runs.values() for run in group])
    recorded = {place: trace(group) for place, group in runs.items()}
    both = {
        (start, name): [ends(recorded[start, level], name) for level in levels]
        for start in STARTS
        for name in (POOLED, OWN, CHOSEN_BY)
    }
    return Outcome(
        rows=[
            {"start": start, "tolerance": level, "seed": seed, **record.rows[-1]}
            for (start, level), records in recorded.items()
            for seed, record in enumerate(records)
        ]
        + final_rows(rivals),
        claims=[
            claim
            for start in STARTS
            for claim in (
                *_tradeoff_claims(start, levels, both[start, POOLED], both[start, OWN]),
                *(
                    _above_claim(start, _chosen(levels, both, start), label, ends(rivals[task, label], POOLED))
                    for label in AVERAGES
                ),
            )
        ],
        figure=_bands(levels, both, {label: ends(rivals[task, label], POOLED) for label in AVERAGES}),
        settings=work(quick) | settings | {"E": 5, "FedBC's lr": lr, "FedBC's dual_lr": 0.3},
    )


def _tradeoff_claims(
    start: str, levels: Sequence[float], shared: Sequence[np.ndarray], own: Sequence[np.ndarray]
) -> list[Claim]:
    means = [float(np.mean(values)) for values in shared]
    best, where = int(np.argmax(means)), STARTS[start]
    highest = f"{plus_minus(shared[best], True)} at {levels[best]:g}"
    return [
        Claim(
            f"{where}: some tolerance above 0 gives a better global model than 0.",
            f"{highest} against {plus_minus(shared[0], True)} at 0",
            best > 0 and means[best] > means[0],
        ),
        Claim(
            f"{where}: beyond the best tolerance the global model becomes worse.",
            f"{highest} against {plus_minus(shared[-1], True)} at {levels[-1]:g}",
            means[-1] < means[best],
        ),
        Claim(
            f"{where}: the clients' own models are better at the largest tolerance than at 0.",
            against(own[-1], own[0], True),
            bool(np.mean(own[-1]) > np.mean(own[0])),
        ),
    ]


def _chosen(
    levels: Sequence[float], both: Mapping[tuple[str, str], Sequence[np.ndarray]], start: str
) -> tuple[float, np.ndarray]:
    """The tolerance that validation rows choose, and its global model's test accuracy."""
    best = int(np.argmax([np.mean(values) for values in both[start, CHOSEN_BY]]))
    return levels[best], both[start, POOLED][best]


def _above_claim(start: str, chosen: tuple[float, np.ndarray], rival: str, theirs: np.ndarray) -> Claim:
    level, ours = chosen
    return Claim(
        f"{STARTS[start]}: at the tolerance that validation rows choose, the global model is better than that of "
        f"{rival} (not in the paper).",
        f"{plus_minus(ours, True)} at {level:g} against {plus_minus(theirs, True)}",
        bool(np.mean(ours) > np.mean(theirs)),
    )


def _bands(
    levels: Sequence[float], both: dict[tuple[str, str], list[np.ndarray]], averages: Mapping[str, np.ndarray]
) -> Figure:
    """Accuracy against the tolerance, evenly spaced, with both forms of FedAvg; a panel for each start."""
    with matplotlib.rc_context(style.RC):
        figure = Figure(figsize=(9.6, 3.2), layout="constrained")
        places = np.arange(len(levels))
        for axis, (start, title) in zip(figure.subplots(1, 2, sharey=True), STARTS.items(), strict=True):
            for colour, name, label in ((0, POOLED, "global model"), (1, OWN, "clients' own models")):
                means = np.array([100 * np.mean(v) for v in both[start, name]])
                widths = np.array([100 * np.std(v, ddof=1) if len(v) > 1 else 0.0 for v in both[start, name]])
                axis.plot(places, means, "o-", color=style.COLOURS[colour], label=label, markersize=4)
                band = {"color": style.COLOURS[colour], "alpha": 0.15, "linewidth": 0}
                axis.fill_between(places, means - widths, means + widths, **band)
            for colour, (label, values) in zip(style.COLOURS[2:], averages.items(), strict=False):
                axis.axhline(100 * float(np.mean(values)), color=colour, linestyle=style.BASELINE, label=label)
            axis.set_xticks(places, [f"{level:g}" for level in levels])
            axis.set_title(title)
            axis.set_xlabel("tolerance γ")
        figure.axes[0].set_ylabel("test accuracy (%)")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right center")
    return figure
