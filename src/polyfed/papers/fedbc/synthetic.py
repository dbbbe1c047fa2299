"""Bedi and others: FedBC. Table 1, Fig. 2 and Fig. 3, on synthetic data; fedbc_rounds.py has the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from polyfed.papers.fedbc.runs import (
    BUDGET,
    COHORT,
    GLOBAL,
    SEEDS,
    Found,
    Record,
    Run,
    Task,
    choose,
    collect,
    curve,
    ends,
    trace,
)
from polyfed.papers.shared import style
from polyfed.papers.shared.experiment import Claim, Outcome, Progress, experiment
from polyfed.papers.shared.held_out import options, spread

PAPER = (
    "A. S. Bedi, C. Fan, A. Koppel, A. K. Sahu, B. M. Sadler, F. Huang, D. Manocha, *FedBC: Calibrating Global and "
    "Local Models via Federated Learning Beyond Consensus*, Section 5 and Appendix E."
)
DATA = (
    "synthetic(0.5, 0.5) of Li et al., 60 features, 10 classes, sizes log-normal, at most 2,000; 20% of each client's "
    "rows are for test and 10% for validation; 10 clients take part in a round."
)
DIFFERENCES = (
    "Every method is tuned by validation rows, with the same number of candidates; figures are of the last round, on "
    "test rows that nobody trained on or chose anything by. Client sizes are capped at 2,000. Each seed draws its own "
    "federation. Local steps are plain SGD (the published code has momentum 0.5), and multipliers move only in rounds "
    "that their clients take part in."
)
BOTH = " FedAvg is shown with weights by size, as in the paper, and with uniform ones."
EPOCHS = (1, 5, 10, 25, 50)
RIVALS = ("FedAvg, by size", "FedProx", "SCAFFOLD", "q-FedAvg")
AVERAGES = ("FedAvg, by size", "FedAvg, uniform")
"""Both of FedAvg's, wherever it is shown."""
POOLED, VARIANCE = "global_test_pooled", "global_test_variance"
BY_DATA = "0.4"
"""The grey of weights by data size, which are no method's."""
SHOWN = {"largest": "-", "smallest": ":"}


def synthetic(epochs: int, quick: bool, clients: int = 30) -> Task:
    size = 300 if quick else 2000
    given = options(alpha=0.5, beta=0.5, clients=clients, max_size=size)
    return Task("synthetic", given, "linear", epochs, 40 if quick else 200)


def effort(quick: bool) -> dict[str, Any]:
    return {"seeds": 2, "budget": 3} if quick else {"seeds": SEEDS, "budget": BUDGET}


def work(quick: bool) -> dict[str, Any]:
    task = synthetic(1, quick)
    return {"clients": 30, "clients per round": COHORT, "batch": task.batch, "rounds": task.rounds}


@experiment(
    "fedbc/table1",
    paper=PAPER,
    title="Global accuracy on synthetic data, by the number of local epochs",
    caption=(
        "Accuracy of the global model on all test rows (Table 1), and the variance of its accuracy over clients "
        "(Fig. 3d), against the local epochs E; means over seeds."
    ),
    data=DATA,
    differences=DIFFERENCES + BOTH,
)
def table1(quick: bool, progress: Progress) -> Outcome:
    """FedBC above the size-weighted baselines; the uniform average beside it."""
    tasks = [synthetic(epochs, quick) for epochs in ((1, 5) if quick else EPOCHS)]
    found, settings = collect(tasks, GLOBAL, progress, **effort(quick))
    palette = style.colours(list(GLOBAL))
    x = [task.epochs for task in tasks]
    panels = [
        style.Panel(
            title,
            [
                style.Curve(n, x, [float(np.mean(ends(found[t, n], column))) for t in tasks], palette[n], marker="o")
                for n in GLOBAL
            ],
            title,
        )
        for column, title in ((POOLED, "global test accuracy"), (VARIANCE, "variance over clients"))
    ]
    return Outcome(
        rows=final_rows(found),
        claims=[claim for task in tasks for claim in (*_accuracy_claims(found, task), *_variance_claims(found, task))],
        figure=style.small_multiples([panels], x_label="local epochs E", log_y=False),
        settings=work(quick) | settings,
        notes=[_table(found, tasks)],
    )


def _accuracy_claims(found: Found, task: Task) -> list[Claim]:
    ours = ends(found[task, "FedBC"], POOLED)
    claims = []
    for rival in (*RIVALS, "FedAvg, uniform"):
        theirs = ends(found[task, rival], POOLED)
        who = f"{rival} (not in the paper)" if rival == "FedAvg, uniform" else rival
        claims.append(
            Claim(
                f"E = {task.epochs}: FedBC's global model is more accurate than that of {who}.",
                f"{spread(ours, True)} against {spread(theirs, True)}; seed by seed {spread(ours - theirs, True)}",
                bool(np.mean(ours) > np.mean(theirs)),
            )
        )
    return claims


def _variance_claims(found: Found, task: Task) -> list[Claim]:
    ours = ends(found[task, "FedBC"], VARIANCE)
    return [
        Claim(
            f"E = {task.epochs}: the accuracy of FedBC's global model varies less over clients than that of {rival}.",
            f"variance {spread(ours)} against {spread(ends(found[task, rival], VARIANCE))}",
            bool(np.mean(ours) < np.mean(ends(found[task, rival], VARIANCE))),
        )
        for rival in AVERAGES
    ]


def final_rows(found: Found) -> list[dict[str, Any]]:
    return [
        {"task": task.source, **_facts(task), "method": label, "seed": seed, **record.rows[-1]}
        for (task, label), records in found.items()
        for seed, record in enumerate(records)
    ]


def _facts(task: Task) -> dict[str, Any]:
    return {"E": task.epochs, "clients": dict(task.data).get("clients")}


def _table(found: Found, tasks: Sequence[Task]) -> str:
    """Table 1, as the paper prints it."""
    head = "| method | " + " | ".join(f"E = {task.epochs}" for task in tasks) + " |\n| --- |" + " ---: |" * len(tasks)
    lines = [
        f"| {label} | " + " | ".join(spread(ends(found[task, label], POOLED), True) for task in tasks) + " |"
        for label in GLOBAL
    ]
    return "\n".join([head, *lines])


@experiment(
    "fedbc/fig3",
    paper=PAPER,
    title="Training loss, and weights in the server's average, at E = 5",
    caption=(
        "Left: training loss over all rows (Fig. 3a). Middle: the weights of the smallest and the largest participant "
        "of a round in the average, FedBC's and by data (Fig. 3b), mean over seeds and 10 rounds. Right: multipliers "
        "against the training rows of the clients at the end (Fig. 3c)."
    ),
    data=DATA,
    differences=DIFFERENCES + BOTH,
)
def fig3(quick: bool, progress: Progress) -> Outcome:
    """Why: small clients count."""
    task = synthetic(5, quick)
    found, settings = collect([task], GLOBAL, progress, **effort(quick))
    ours = found[task, "FedBC"]
    palette = style.colours(list(GLOBAL))
    loss = [style.Curve(n, *curve(found[task, n], "global_train_loss"), palette[n]) for n in GLOBAL]
    sizes, multipliers = _last_multipliers(ours)
    order = np.argsort(sizes)
    scatter = [style.Curve("FedBC", sizes[order], multipliers[order], palette["FedBC"], " ", "o")]
    panels = [
        style.Panel("training loss", loss, "training loss"),
        style.Panel("weight in the average", weight_lines(ours), "weight"),
        style.Panel("multipliers at the end", scatter, "multiplier"),
    ]
    mine = {label: ends(found[task, label], "global_train_loss") for label in GLOBAL}
    lowest = min((label for label in GLOBAL if label not in ("FedBC", "FedAvg, uniform")), key=lambda n: mine[n].mean())
    return Outcome(
        rows=curve_rows(found),
        claims=[
            Claim(
                f"FedBC's training loss ends below that of {lowest}, the best of the paper's baselines.",
                f"{spread(mine['FedBC'])} against {spread(mine[lowest])}",
                bool(mine["FedBC"].mean() < mine[lowest].mean()),
            ),
            Claim(
                "FedBC's training loss ends below that of FedAvg, uniform (not in the paper).",
                f"{spread(mine['FedBC'])} against {spread(mine['FedAvg, uniform'])}",
                bool(mine["FedBC"].mean() < mine["FedAvg, uniform"].mean()),
            ),
            weight_claim(ours, task),
        ],
        figure=style.small_multiples([panels], x_label="round (right: training rows)", log_y=False),
        settings=work(quick) | settings,
    )


def _last_multipliers(records: Sequence[Record]) -> tuple[np.ndarray, np.ndarray]:
    """(training rows, multiplier) of every client of every seed, at the latest snapshot."""
    pairs = [(record.sizes, record.multipliers[max(record.multipliers)]) for record in records if record.multipliers]
    return np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])


def weight_lines(records: Sequence[Record]) -> list[style.Curve]:
    lines = []
    ours = style.colours(list(GLOBAL))["FedBC"]
    for kind, colour, words in (("weight", ours, "FedBC"), ("data", BY_DATA, "by data")):
        for who, line in SHOWN.items():
            x, y = curve(records, f"{who}_{kind}")
            lines.append(style.Curve(f"{who} participant, {words}", x, smooth(y), colour, line))
    return lines


def smooth(values: np.ndarray, window: int = 10) -> np.ndarray:
    """The mean of the last rounds, as many as there are up to the window."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    start = np.maximum(0, np.arange(1, len(total)) - window)
    return (total[1:] - total[start]) / (np.arange(1, len(total)) - start)


def gap(records: Sequence[Record], kind: str) -> np.ndarray:
    """The mean over the last half of the rounds of |largest - smallest|, one for each seed."""
    found = []
    for record in records:
        rows = record.rows[len(record.rows) // 2 :]
        found.append(np.mean([abs(row[f"largest_{kind}"] - row[f"smallest_{kind}"]) for row in rows]))
    return np.array(found)


def weight_claim(records: Sequence[Record], task: Task) -> Claim:
    weights, shares = gap(records, "weight"), gap(records, "data")
    return Claim(
        f"E = {task.epochs}: the weights of a round's smallest and largest participant differ less in FedBC than by "
        "data size.",
        f"by {spread(weights)} against {spread(shares)}, last half of the rounds",
        bool(weights.mean() < shares.mean()),
    )


def curve_rows(found: Found) -> list[dict[str, Any]]:
    return [
        {**_facts(task), "method": label, "seed": seed, **row}
        for (task, label), records in found.items()
        for seed, record in enumerate(records)
        for row in record.rows
    ]


TOLERANCES = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
STARTS = {"own": "local work from x_i (the text)", "server": "local work from z (the code)"}
OWN, CHOSEN_BY = "personal_test_mean", "global_validation_pooled"


@experiment(
    "fedbc/fig2",
    paper=PAPER,
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
def fig2(quick: bool, progress: Progress) -> Outcome:
    """Some tolerance helps both models; more helps the local ones alone."""
    task, given = synthetic(5, quick), effort(quick)
    swept = replace(task, every=task.rounds)
    levels = TOLERANCES[::2] if quick else TOLERANCES
    progress("choosing the stepsize", 0, 1)
    lr = dict(choose(task, "FedBC", "global", given["budget"]))["lr"]
    averages = {label: GLOBAL[label] for label in AVERAGES}
    rivals, settings = collect([task], averages, progress, **given)
    progress("every tolerance", 0, 1)
    runs = {
        (start, level): [
            Run(swept, "FedBC", "global", options(lr=lr, dual_lr=0.3, tolerance=level, grow=False, start=start), seed)
            for seed in range(given["seeds"])
        ]
        for start in STARTS
        for level in levels
    }
    trace([run for group in runs.values() for run in group])
    found = {place: trace(group) for place, group in runs.items()}
    both = {
        (start, name): [ends(found[start, level], name) for level in levels]
        for start in STARTS
        for name in (POOLED, OWN, CHOSEN_BY)
    }
    return Outcome(
        rows=[
            {"start": start, "tolerance": level, "seed": seed, **record.rows[-1]}
            for (start, level), records in found.items()
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
    return [
        Claim(
            f"{where}: some tolerance above 0 gives a better global model than 0.",
            f"{spread(shared[best], True)} at {levels[best]:g} against {spread(shared[0], True)} at 0",
            best > 0 and means[best] > means[0],
        ),
        Claim(
            f"{where}: beyond the best tolerance the global model becomes worse.",
            f"{spread(shared[best], True)} at {levels[best]:g} against {spread(shared[-1], True)} at {levels[-1]:g}",
            means[-1] < means[best],
        ),
        Claim(
            f"{where}: the clients' own models are better at the largest tolerance than at 0.",
            f"{spread(own[-1], True)} against {spread(own[0], True)}",
            bool(np.mean(own[-1]) > np.mean(own[0])),
        ),
    ]


def _chosen(
    levels: Sequence[float], both: Mapping[tuple[str, str], Sequence[np.ndarray]], start: str
) -> tuple[float, np.ndarray]:
    """The tolerance that validation rows choose, as they do FedAvg's stepsize, and its global model's test accuracy."""
    best = int(np.argmax([np.mean(values) for values in both[start, CHOSEN_BY]]))
    return levels[best], both[start, POOLED][best]


def _above_claim(start: str, chosen: tuple[float, np.ndarray], rival: str, theirs: np.ndarray) -> Claim:
    level, ours = chosen
    return Claim(
        f"{STARTS[start]}: at the tolerance that validation rows choose, the global model is better than that of "
        f"{rival} (not in the paper).",
        f"{spread(ours, True)} at {level:g} against {spread(theirs, True)}",
        bool(np.mean(ours) > np.mean(theirs)),
    )


def _bands(
    levels: Sequence[float], both: dict[tuple[str, str], list[np.ndarray]], averages: Mapping[str, np.ndarray]
) -> Figure:
    """Accuracy against the tolerance, evenly spaced, and of averages that have none; a panel for each start."""
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
