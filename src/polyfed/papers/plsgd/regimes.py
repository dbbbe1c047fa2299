"""PLSGD, pure local training and one model for all at their best stepsizes, by the spread of the clients' optima."""

from __future__ import annotations

from collections.abc import Callable

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from polyfed import algorithms, theory
from polyfed.algorithms.contract import Algorithm
from polyfed.algorithms.shared.local_work import LocalWork
from polyfed.papers.plsgd.runs import ONE_ROW, PAPER, Seeds, constants, interval, noisy_quadratics
from polyfed.papers.shared import style
from polyfed.papers.shared.experiment import Claim, ExperimentProgress, Outcome, Row, experiment
from polyfed.problem.problem import Problem

M, K, R, DIM, NOISE = 20, 5, 20, 5, 2.0
SPREADS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6)
TUNING = 10_000
"""The first seed that stepsizes are chosen by; results are from other seeds."""
OURS, ALONE, SHARED = "PLSGD", "pure local training", ("local SGD", "minibatch SGD")
Candidates = dict[str, list[Algorithm]]
Distances = dict[float, dict[str, np.ndarray]]
"""By spread and method, one for each seed."""


def candidates(count: int) -> Candidates:
    """The same number for each method: many stepsizes, or a third of them with three values of beta or alpha."""
    few, many = np.geomspace(0.003, 1.0, count), np.geomspace(0.003, 1.0, 3 * count)
    return {
        ALONE: [algorithms.Local(lr=lr, local_steps=K, **ONE_ROW) for lr in many.tolist()],
        "local SGD": [
            algorithms.FedAvg(lr=lr, server_lr=beta, weighting="uniform", local_steps=K, **ONE_ROW)
            for lr in few.tolist()
            for beta in (0.5, 1.0, 2.0)
        ],
        "minibatch SGD": [algorithms.MinibatchSGD(lr=2 * lr, local_steps=K, **ONE_ROW) for lr in many.tolist()],
        OURS: [
            algorithms.PLSGD(lr=lr / (1 + alpha), alpha=alpha, local_steps=K, **ONE_ROW)
            for lr in few.tolist()
            for alpha in (0.1, 0.3, 1.0)
        ],
    }


def federation(spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Diagonals of the Hessians in [0.3, 1], and optima with mean squared distance spread^2 from a common one."""
    random = np.random.default_rng(3)
    spectra = random.uniform(0.3, 1.0, size=(M, DIM))
    apart = random.normal(size=(M, DIM))
    apart -= apart.mean(axis=0)
    return spectra, 1.0 + spread * apart / np.sqrt(np.mean(np.sum(apart**2, axis=1)))


@experiment(
    "plsgd/regimes",
    paper=f"{PAPER}, Sections 3.1 and 4: the three regimes.",
    title="Three regimes: one model, a shared and a personal part, or going alone",
    caption=(
        "The mean squared distance of the clients' models from their optima after 20 rounds of 5 steps on noisy "
        "gradients, by the spread of the optima around a common one. Every method at its best stepsizes; bands: 95% "
        "confidence over the seeds."
    ),
    data="20 quadratics in five dimensions with unequal Hessians (eigenvalues 0.3 to 1), noise of variance 4.",
    differences=(
        "The paper asks for these regimes and has no experiment. PLSGD has alpha in {0.1, 0.3, 1} and beta = 1, so "
        "that neither extreme is among its candidates."
    ),
)
def regimes(quick: bool, progress: ExperimentProgress) -> Outcome:
    """Tune on some seeds, measure on others."""
    spreads = (0.0, 0.4, 25.6) if quick else SPREADS
    tuning, seeds, count = (3, 20, 7) if quick else (10, 100, 17)
    distances: Distances = {}
    rows: list[Row] = []
    for done, spread in enumerate(spreads):
        progress(f"spread {spread:g}", done, len(spreads))
        spectra, optima = federation(spread)
        problem, distances[spread] = noisy_quadratics(spectra, optima, NOISE), {}
        for name, options in candidates(count).items():
            best = _tuned(problem, optima, options, range(TUNING, TUNING + tuning))
            values = Seeds(problem, best).distances(optima, range(seeds), [R])[:, 0]
            distances[spread][name] = values
            rows.append(
                {
                    "spread": spread,
                    "method": name,
                    "distance": float(values.mean()),
                    "interval": float(interval(values)),
                }
                | _chosen(best)
            )
    progress("done", len(spreads), len(spreads))
    return Outcome(
        rows,
        _claims(distances),
        _figure(rows, spreads),
        settings={
            "M, K, R": [M, K, R],
            "noise sigma": NOISE,
            "batch": "one row, with replacement",
            "candidates": f"{3 * count} per method, chosen by {tuning} seeds",
            "seeds": f"{seeds} others",
        },
        notes=[_by_the_bounds(spreads)],
    )


def _chosen(method: Algorithm) -> Row:
    """A method's stepsizes and its personalisation, where it has them."""
    assert isinstance(method, LocalWork)
    assert isinstance(method.lr, float)
    alpha, beta = "", ""
    if isinstance(method, algorithms.PLSGD):
        alpha, beta = method.alpha, method.beta
    elif isinstance(method, algorithms.FedAvg):
        beta = method.server_lr
    return {"lr": method.lr, "alpha": alpha, "beta": beta}


def _tuned(problem: Problem, optima: np.ndarray, options: list[Algorithm], seeds: range) -> Algorithm:
    """The candidate with the least mean distance."""
    with np.errstate(all="ignore"):
        means = [np.mean(Seeds(problem, method).distances(optima, seeds, [R])) for method in options]
    return options[int(np.argmin(np.nan_to_num(means, nan=np.inf)))]


def ahead(values: dict[str, np.ndarray], nearer: str, farther: str) -> tuple[float, float]:
    """The mean over seeds of how much nearer a method is than another, and half its 95% interval."""
    difference = values[farther] - values[nearer]
    return float(difference.mean()), float(interval(difference))


def _claims(distances: Distances) -> list[Claim]:
    spreads = list(distances)
    wins = [s for s in spreads if all(np.subtract(*ahead(distances[s], OURS, other)) > 0 for other in (ALONE, *SHARED))]

    def gain(spread: float) -> float:
        values = distances[spread]
        return min(values[other].mean() for other in (ALONE, *SHARED)) / values[OURS].mean()

    top = max(wins, key=gain, default=spreads[len(spreads) // 2])
    shown = ", ".join(f"{name} {v.mean():.4g} ± {interval(v):.1g}" for name, v in distances[top].items())
    made = [
        Claim(
            "There is a spread at which PLSGD beats pure local training and local SGD (and minibatch SGD), all at "
            "their best stepsizes.",
            f"at {len(wins)} of {len(spreads)} spreads ({', '.join(f'{s:g}' for s in wins)}) the 95% intervals of the "
            f"paired differences exclude zero; most at {top:g}, by a factor {gain(top):.2f}: {shown}",
            bool(wins),
        )
    ]
    for text, spread, other in (
        ("Where clients are alike, local SGD beats PLSGD.", spreads[0], "local SGD"),
        ("Where clients are very different, going alone beats PLSGD.", spreads[-1], ALONE),
    ):
        difference, half = ahead(distances[spread], other, OURS)
        values = distances[spread]
        made.append(
            Claim(
                text,
                f"spread {spread:g}: {values[other].mean():.4g} against {values[OURS].mean():.4g}, a difference of "
                f"{difference:.2g} ± {half:.1g}",
                difference - half > 0,
            )
        )
    return made


def _by_the_bounds(spreads: tuple[float, ...]) -> str:
    """Which regime Table 1 puts each spread in."""
    rates: dict[str, Callable[..., theory.Rate]] = {
        "alone": theory.pure_local_rate,
        "one model": theory.minibatch_rate,
    }
    said, kappa = [], 0.0
    for spread in spreads:
        c = constants(*federation(spread), NOISE, K, R)
        kappa = c.kappa
        said.append(min(rates, key=lambda name, c=c: float(rates[name](c).total)))
    turn = next((s for s, name in zip(spreads, said, strict=True) if name == "alone"), None)
    low = float(theory.plsgd_window(M, K, R).low)
    return (
        f"By the bounds of Table 1 the personalized regime does not occur here at any spread: the condition number is "
        f"{kappa:.3g}, and (16) starts at {low:.0f}. They prefer one model up to a spread of about "
        f"{turn if turn is not None else spreads[-1]:g}, and going alone from there on."
    )


def _figure(rows: list[Row], spreads: tuple[float, ...]) -> Figure:
    palette = style.colours([ALONE, "local SGD", "minibatch SGD", OURS])
    x = np.array([s if s > 0 else min(t for t in spreads if t) / 2 for s in spreads])
    with matplotlib.rc_context(style.RC):
        figure = Figure(figsize=(7.4, 4.0), layout="constrained")
        axis = figure.subplots()
        for name, colour in palette.items():
            mine = [row for row in rows if row["method"] == name]
            mean, half = (np.array([row[key] for row in mine]) for key in ("distance", "interval"))
            line = "--" if name == "minibatch SGD" else "-"
            axis.plot(x, mean, line, marker="o", markersize=3.5, color=colour, label=name)
            axis.fill_between(x, mean - half, mean + half, color=colour, alpha=0.25, linewidth=0)
        axis.set_xscale("log")
        axis.set_yscale("log")
        best = {name: [row["distance"] for row in rows if row["method"] == name] for name in palette}
        axis.set_ylim(0.7 * min(map(min, best.values())), 6 * max(best[ALONE]))
        ticks = [value for value in x.tolist() if value in (x[0], 0.1, 0.4, 1.6, 6.4, 25.6)]
        axis.set_xticks(ticks, [f"{t:g}" if t != x[0] or spreads[0] else "0" for t in ticks])
        axis.set_xlabel("spread of the clients' optima")
        axis.set_ylabel("mean squared distance")
        axis.legend(loc="upper left")
        _mark(axis, x, best)
    return figure


def _mark(axis: Axes, x: np.ndarray, best: dict[str, list[float]]) -> None:
    """Shade the spreads at which PLSGD is nearest."""
    others = np.min([values for name, values in best.items() if name != OURS], axis=0)
    won = np.flatnonzero(np.array(best[OURS]) < others)
    if len(won):
        axis.axvspan(float(x[won[0]]), float(x[won[-1]]), color=style.COLOURS[3], alpha=0.08, linewidth=0)
