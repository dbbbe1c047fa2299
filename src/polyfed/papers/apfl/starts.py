"""APFL's learned mixing weight: where it ends, by where it starts, beside the best one by validation and by (3)."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from polyfed import algorithms, theory
from polyfed.engine.loop import PlannedRun
from polyfed.engine.result import Result
from polyfed.engine.simulate import simulate_all
from polyfed.papers.apfl.methods import BATCH, PAPER, PUBLISHED_LR, RIDGE, STEPS
from polyfed.papers.shared import style
from polyfed.papers.shared.claims import Claim, better, every, similar
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.held_out import against, options, plus_minus, problem_of
from polyfed.papers.shared.rows import distinct, ends, rounded, where
from polyfed.papers.shared.tuned import value_words
from polyfed.problem.problem import Problem

STARTS = (0.01, 0.03, 0.1, 0.3, 0.5, 0.9)
FIXED = tuple(k / 10 for k in range(11))
TRAIN, VALIDATION, HELD, BOUND = "learned", "learned on validation rows", "fixed", "by (3)"
LEVELS = {"clients differ": 0.5, "clients alike": 0.0}
WORK = {"lr": PUBLISHED_LR, "local_steps": STEPS, "batch": BATCH}


def judge(rows: list[Row]) -> list[Claim]:
    """Where alpha ends, and what that costs."""
    made: list[Claim] = []
    for column in distinct(rows, "column"):
        shares = {
            s: ends(rows, "share", column=column, kind=TRAIN, start=s)
            for s in distinct(where(rows, kind=TRAIN), "start")
        }
        accuracy = {s: ends(rows, "accuracy", column=column, kind=TRAIN, start=s) for s in shares}
        low, high = min(shares), max(shares)
        made += [
            similar(
                f"{column}: the learned alpha does not depend on its start (within 0.05; the paper starts at 0.01 in "
                "Fig. 3 and at 0.5 in Fig. 5).",
                shares[low],
                shares[high],
                0.05,
                ", ".join(f"{plus_minus(values)} from {start:g}" for start, values in shares.items()),
            ),
            better(
                f"{column}: the start decides accuracy, too: {high:g} against {low:g} (not in the paper).",
                *((accuracy[high], accuracy[low]) if column == "clients differ" else (accuracy[low], accuracy[high])),
                against(accuracy[high], accuracy[low], True),
            ),
        ]
        fixed = best_fixed(rows, column)
        made.append(
            every(
                f"{column}: with the best fixed alpha by validation rows, clients are more accurate than with one that "
                "is learned, from any start (not in the paper).",
                {f"start {s:g}": fixed - values for s, values in accuracy.items()},
                f"{plus_minus(fixed, True)} against "
                + ", ".join(f"{plus_minus(values, True)} from {s:g}" for s, values in accuracy.items()),
            )
        )
    return made


def best_fixed(rows: list[Row], column: str, name: str = "accuracy") -> np.ndarray:
    """By seed, of the fixed alpha with the least validation loss: its accuracy on test rows, or the alpha itself."""
    alphas = distinct(where(rows, kind=HELD), "start")
    losses = np.array([ends(rows, "validation_loss", column=column, kind=HELD, start=a) for a in alphas])
    values = np.array([ends(rows, name, column=column, kind=HELD, start=a) for a in alphas])
    return np.take_along_axis(values, losses.argmin(axis=0)[None], axis=0)[0]


def draw(rows: list[Row]) -> Figure:
    """Left of each pair the end of alpha against its start, right the accuracy."""
    columns, palette = distinct(rows, "column"), style.colours([TRAIN, VALIDATION, HELD, BOUND])
    with matplotlib.rc_context(style.RC):
        figure = Figure(figsize=(7.4, 3.0 * len(columns)), layout="constrained")
        axes = figure.subplots(len(columns), 2, squeeze=False)
        for place, column in enumerate(columns):
            for kind in (TRAIN, VALIDATION):
                starts = distinct(where(rows, kind=kind), "start")
                for axis, name in zip(axes[place], ("share", "accuracy"), strict=True):
                    values = [ends(rows, name, column=column, kind=kind, start=s).mean() for s in starts]
                    axis.plot(starts, values, marker="o", color=palette[kind], label=kind)
            lines = {HELD: best_fixed(rows, column, "start"), BOUND: ends(rows, "share", column=column, kind=BOUND)}
            for label, values in lines.items():
                words = "best fixed, by validation" if label == HELD else "by (3)"
                axes[place, 0].axhline(float(values.mean()), ls="--", color=palette[label], label=words)
            reached = float(best_fixed(rows, column).mean())
            axes[place, 1].axhline(reached, ls="--", color=palette[HELD], label="best fixed, by validation")
            axes[place, 0].set(title=column, ylabel="mean alpha at the end", ylim=(-0.03, 1.03), xscale="log")
            axes[place, 1].set(title=column, ylabel="accuracy of mixtures, test", xscale="log")
        for axis in axes[-1]:
            axis.set_xlabel("alpha at the start")
        axes[0, 0].legend()
    return figure


@experiment(
    "apfl/starts",
    paper=f"{PAPER[:-1]}.1 and eq. (3).",
    title="Where the learned mixing weight ends, by where it starts",
    caption=(
        "APFL's mean alpha after training, and the accuracy of the clients' mixtures on test rows, by the alpha that "
        "all clients start with: learned from training batches as in (10), and from validation rows. Dashed: the fixed "
        "alpha with the least validation loss, and the mean of the weights of (3). Means over seeds."
    ),
    data=(
        "synthetic(0.5, 0.5) of Li et al., and the same law with one rule and one law of inputs for all clients; 30 "
        "clients, 500 rows at most. A tenth of each client's rows are for validation, a fifth for test."
    ),
    differences=(
        "The paper does not ask. Stepsizes are its own, 0.1 * 0.99^round, for models and alpha. (3) takes the training "
        "loss of FedAvg's model for the global risk, the validation loss of going alone for the local one, label "
        "frequencies for the divergence, B = G = C = 1, and the number of parameters for d. So it is an estimate; the "
        "paper's constants are not known."
    ),
    judge=judge,
    draw=draw,
    tell=lambda rows: [_told(rows)],
)
def starts(quick: bool, progress: ExperimentProgress) -> Measured:
    """The learned alpha is a matter of its start."""
    seeds, rounds = (2, 20) if quick else (5, 100)
    chosen = (STARTS[0], STARTS[-1]) if quick else STARTS
    fixed = (0.0, 0.5, 1.0) if quick else FIXED
    rows: list[Row] = []
    for place, (column, level) in enumerate(LEVELS.items()):
        progress(column, place, len(LEVELS))
        data = options(alpha=level, beta=level, clients=30, max_size=500, iid=level == 0)
        problems = [problem_of("synthetic", data, seed, "linear", RIDGE) for seed in range(seeds)]
        for kind, given, values in (
            (TRAIN, {"adaptive": "round"}, chosen),
            (VALIDATION, {"adaptive": "round", "alpha_on": "validation"}, chosen),
            (HELD, {"adaptive": "off"}, fixed),
        ):
            cases = [(start, seed) for start in values for seed in range(seeds)]
            planned = [
                PlannedRun(problems[seed], algorithms.APFL(alpha=start, **given, **WORK), seed) for start, seed in cases
            ]
            for (start, seed), result in zip(
                cases, simulate_all(planned, rounds=rounds, eval_every=rounds), strict=True
            ):
                about = {"column": column, "kind": kind, "start": start, "seed": seed, "round": rounds}
                share = result.simulation.own_share
                assert share is not None
                rows.append(rounded(about | {"share": float(np.mean(share))} | _reached(result)))
        for seed, weights in enumerate(by_the_bound(problems, rounds)):
            about = {"column": column, "kind": BOUND, "seed": seed, "round": rounds}
            rows.append(rounded(about | {"share": float(np.mean(weights))}))
    progress("done", len(LEVELS), len(LEVELS))
    return Measured(rows, {**WORK, "lr": value_words(PUBLISHED_LR), "rounds": rounds, "seeds": seeds, "ridge": RIDGE})


def _reached(result: Result) -> dict[str, float]:
    last = result.rows[-1]
    return {"accuracy": last["personal_test_accuracy"], "validation_loss": last["personal_validation_loss"]}


def by_the_bound(problems: list[Problem], rounds: int) -> list[np.ndarray]:
    """Every client's weight of (3), by problem, from what runs of FedAvg and of going alone measure."""
    shared, alone = (
        simulate_all(
            [PlannedRun(problem, method, seed) for seed, problem in enumerate(problems)],
            rounds=rounds,
            eval_every=rounds,
        )
        for method in (algorithms.FedAvg(weighting="uniform", **WORK), algorithms.Local(**WORK))
    )
    return [_weights(*pair) for pair in zip(shared, alone, strict=True)]


def _weights(shared: Result, alone: Result) -> np.ndarray:
    train = shared.problem.federation.split("train")
    labels = [shared.problem.targets(client, "train") for client in range(len(shared.problem))]
    losses = shared.evaluate("train")["global_loss"].to_numpy()
    risk = theory.ApflRisk(
        rows=train.sizes,
        global_risk=float(np.average(losses, weights=train.sizes)),
        local_risk=alone.evaluate("validation")["personal_loss"].to_numpy(),
        divergence=theory.label_divergence([np.bincount(own.astype(int), minlength=10) for own in labels]),
        dimension=float(shared.simulation.parameters),
    )
    return theory.apfl_mixing_weight(risk)


def _told(rows: list[Row]) -> str:
    """The figure's numbers."""
    kinds = [TRAIN, VALIDATION]
    heads = "| data | start | " + " | ".join(f"{kind}: alpha, accuracy" for kind in kinds) + " |"
    lines = [heads, "| --- | --- | --- | --- |"]
    for column in distinct(rows, "column"):
        for start in distinct(where(rows, kind=TRAIN), "start"):
            cells = [
                f"{plus_minus(ends(rows, 'share', column=column, kind=kind, start=start))}, "
                f"{plus_minus(ends(rows, 'accuracy', column=column, kind=kind, start=start), True)}"
                for kind in kinds
            ]
            lines.append(f"| {column} | {start:g} | {' | '.join(cells)} |")
    for column in distinct(rows, "column"):
        lines.append(
            f"\n{column[0].upper()}{column[1:]}: the best fixed alpha by validation is "
            f"{plus_minus(best_fixed(rows, column, 'start'))}, with accuracy "
            f"{plus_minus(best_fixed(rows, column), True)}; (3) gives "
            f"{plus_minus(ends(rows, 'share', column=column, kind=BOUND))}."
        )
    return "\n".join(lines)
