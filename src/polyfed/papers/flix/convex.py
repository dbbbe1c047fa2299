"""Gasanov, Khaled, Horvath and Richtarik: FLIX. Its convex figures: GD, compressed GD (DCGD) and DIANA."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from polyfed.data.sources.libsvm import KNOWN
from polyfed.papers.flix import claims
from polyfed.papers.shared import convex_runs, style
from polyfed.papers.shared.claims import Claim
from polyfed.papers.shared.convex_runs import DATASETS, TITLES, ConvexRun
from polyfed.papers.shared.experiment import ExperimentProgress, Judge, Measured, Row, Tell, experiment
from polyfed.papers.shared.rows import column, distinct, where

PAPER = (
    "E. Gasanov, A. Khaled, S. Horváth, P. Richtárik, *FLIX: A Simple and Communication-Efficient Alternative to Local "
    "Methods in Federated Learning*, Sections 4, 10 and 11."
)
ALPHAS = (1.0, 0.1, 0.01, 0.001)
SHOWN = (1.0, 0.1)
"""The alphas of the figures on compression."""
CLIENTS, RIDGE, TARGET = 50, 0.1, 1e-8
ROUNDS = {"mushrooms": 1200, "a6a": 800, "w7a": 400, "w8a": 400, "ijcnn1.num12": 300}
FLAT_ROUNDS = {
    100: {"mushrooms": 1200, "a6a": 400, "w7a": 600, "ijcnn1.num12": 1600},
    8: {"mushrooms": 2500, "a6a": 500, "w7a": 600, "ijcnn1.num12": 2800},
}
"""Without a ridge, by the number of clients: what the theorems' stepsizes need to reach `COARSE` for every k but 1."""
ONE_ROUNDS = {
    100: {"mushrooms": 8000, "a6a": 2400, "w7a": 600, "ijcnn1.num12": 3500},
    8: {"mushrooms": 2500, "a6a": 800, "w7a": 600, "ijcnn1.num12": 9000},
}
"""The same for k = 1 at alpha = 1, where that is not more than ten times as many."""
EVERY = {"mushrooms": 4, "a6a": 2, "w7a": 2, "w8a": 2, "ijcnn1.num12": 1}
"""Rounds between points of a curve, to which costs are known; curves of compressed methods that are only shown have
fewer."""
FLAT_EVERY = {"mushrooms": 4, "a6a": 2, "w7a": 4, "ijcnn1.num12": 4}
"""The same for compressed methods without a ridge, which have many rounds."""
SEEDS = {"mushrooms": 5, "a6a": 5, "w7a": 3, "w8a": 3, "ijcnn1.num12": 5}
"""Compressors draw at random: claims are about means over so many seeds, at alpha = 1. The figures show the first."""
FEWER = {"w7a": 4, "w8a": 4}
"""How many k large datasets are run with, instead of seven."""
LARGE = "w7a and w8a have three seeds of the compressor and four k, the others five and seven."
LARGE_ONCE = (
    "w7a has three seeds of the compressor, four k and alpha = 1 alone, the others five, seven and both alphas."
)
SIXTHS = 6
"""k is 1, or so many parts of d."""
COARSE = 1e-2
"""A method without exact convergence is timed to this share of its starting gap."""


def summaries(rows: list[Row]) -> list[Row]:
    """The rows that sum up a run; the others are points of curves."""
    return [row for row in rows if "start" in row]


def _judge(check: claims.Check) -> Judge:
    def judge(rows: list[Row]) -> list[Claim]:
        runs = summaries(rows)
        return [
            claim for dataset in distinct(runs, "dataset") for claim in check(dataset, where(runs, dataset=dataset))
        ]

    return judge


def _draw_fig2(rows: list[Row]) -> Figure:
    alphas = sorted(distinct(rows, "alpha"), reverse=True)
    palette = style.colours(alphas)
    panels = [
        [
            style.Panel(
                TITLES.get(dataset) or dataset,
                [
                    style.Curve(
                        f"α = {a:g}", *_xy(where(rows, dataset=dataset, alpha=a), "round", quantity), palette[a]
                    )
                    for a in alphas
                ],
                label,
            )
            for dataset in distinct(rows, "dataset")
        ]
        for quantity, label in (("distance", "mean squared distance"), ("gap", "f - f*"))
    ]
    return style.small_multiples(panels, x_label="communication rounds")


@experiment(
    "flix/fig2",
    paper=PAPER,
    title="Gradient descent on the FLIX objective, by alpha",
    caption=(
        "Mean squared distance of the deployed models to theirs at the optimum, and f - f*, against communication "
        "rounds of GD with 50 clients and a ridge of 0.1. " + convex_runs.OTHER_DATA
    ),
    data=convex_runs.DATA,
    differences=f"{convex_runs.OTHER_DATA} {convex_runs.OTHER_REFERENCE} The start is at ones.",
    judge=_judge(claims.gradient_descent),
    draw=_draw_fig2,
)
def fig2(quick: bool, progress: ExperimentProgress) -> Measured:
    """Smaller alpha starts closer to the solution; the rate is the same for all."""
    datasets, alphas = (DATASETS[:1], ALPHAS[:3]) if quick else (DATASETS, ALPHAS)
    todo = [_run(d, "GD", a, CLIENTS, RIDGE, None) for d in datasets for a in alphas]
    curves = convex_runs.trace_all(todo, progress)
    rows = []
    for run, curve in curves.items():
        more = {"rate": claims.rate(curve), "over_bound": claims.over_bound(run, curve)}
        rows += [convex_runs.summary(run, curve, TARGET) | more, *convex_runs.thinned(curve, without=("grad_norm2",))]
    return Measured(rows, _settings(CLIENTS, RIDGE, alphas, datasets) | {"stepsize": "1/L_alpha (Theorem 2)"})


def _compression(
    method: str,
    clients: int,
    ridge: float,
    level: float,
    relative: bool,
    quick: bool,
    progress: ExperimentProgress,
    baseline: bool = True,
) -> Measured:
    """A compressed method for some k, at alpha = 1 with every seed, and GD."""
    thorough = method == "DIANA" and ridge > 0
    seeds = {DATASETS[0]: 2} if quick else {d: count for d, count in SEEDS.items() if thorough or d != "w8a"}
    todo = [
        _run(d, name, a, clients, ridge, k, seed)
        for d in seeds
        for a in (SHOWN if thorough or d not in FEWER else SHOWN[:1])
        for name, k in [*((method, k) for k in _ks(d, quick)), *([("GD", None)] if baseline else [])]  # GD on top
        for seed in range(seeds[d] if a == 1.0 and k not in (None, _ks(d, quick)[-1]) else 1)
    ]
    if quick:
        todo = [replace(run, rounds=ROUNDS[run.dataset]) for run in todo]
    rows = []
    for run, curve in convex_runs.trace_all(todo, progress).items():
        stalls = method == "DCGD" and ridge > 0 and run.k is not None and run.alpha == 1.0
        more = claims.floor_and_share(run, curve) if stalls else {}
        rows.append(convex_runs.summary(run, curve, level, relative) | more)
        rows += convex_runs.thinned(curve, without=("distance", "grad_norm2")) if run.seed == 0 else []
    return Measured(
        rows,
        _settings(clients, ridge, SHOWN, seeds)
        | {
            "compressor": "Rand-k, seeded (indices do not travel)",
            "k": {d: _ks(d, quick) for d in seeds},
            "stepsize": f"Theorem {_THEOREMS[method, ridge > 0]}; GD 1/L_alpha",
            "seeds of the compressor at alpha = 1": seeds,
            "rounds between points": {d: (EVERY if ridge else FLAT_EVERY)[d] for d in seeds},
        }
        | ({} if ridge else {"rounds of k = 1 at alpha = 1": {d: ONE_ROUNDS[clients][d] for d in seeds}}),
    )


_THEOREMS = {("DCGD", True): 4, ("DIANA", True): 5, ("DCGD", False): 6, ("DIANA", False): 7}


def _draw_compression(rows: list[Row], cost: str) -> Figure:
    """A compressed method for several k (and GD, dashed), a row of panels per alpha."""
    points = [row for row in rows if "round" in row]
    panels = [[_panel(points, d, a, cost) for d in distinct(points, "dataset")] for a in SHOWN]
    x_label = "communication rounds" if cost == "round" else "Mbit sent per client"
    return style.small_multiples(panels, x_label=x_label, log_x=cost == "bits")


def _panel(points: list[Row], dataset: str, alpha: float, cost: str) -> style.Panel:
    """One dataset at one alpha. k's colour goes by its share of d, so that one legend serves all datasets."""
    mine = where(points, dataset=dataset, alpha=alpha)
    ks, lines = sorted(distinct(mine, "k")), []
    palette = style.ramp(range(SIXTHS + 1))
    for k in [*ks, None]:
        curve = where(mine, k=k)
        if not curve:
            continue
        x, y = _xy(curve, cost, "gap")
        x, y = (x[1:] / 1e6, y[1:]) if cost == "bits" else (x, y)  # nothing has travelled at the start
        method = curve[0]["method"]
        if k is None:
            lines.append(style.Curve(method, x, y, "#D55E00", style.BASELINE))
        else:
            sixths = round(SIXTHS * k / ks[-1])
            lines.append(style.Curve(f"{method}, {_share(sixths)}", x, y, palette[sixths]))
    return style.Panel(f"{TITLES.get(dataset) or dataset}, α = {alpha:g}", lines, "f - f*")


def _share(sixths: int) -> str:
    if sixths in (0, SIXTHS):
        return "k = d" if sixths else "k = 1"
    return f"k ≈ {sixths}d/{SIXTHS}"


@experiment(
    "flix/fig3",
    paper=PAPER,
    title="DIANA with Rand-k against rounds, by k and alpha",
    caption=(
        "f - f* against communication rounds of DIANA with 50 clients and a ridge of 0.1; k coordinates of each "
        "gradient difference travel. Curves are those of the first seed. " + convex_runs.OTHER_DATA
    ),
    data=convex_runs.DATA,
    differences=f"{convex_runs.OTHER_DATA} {LARGE} {convex_runs.OTHER_REFERENCE} The start is at ones.",
    judge=_judge(claims.diana),
    draw=lambda rows: _draw_compression(rows, "round"),
)
def fig3(quick: bool, progress: ExperimentProgress) -> Measured:
    """DIANA converges linearly for every k; more coordinates, fewer rounds; smaller alpha, better start."""
    return _compression("DIANA", CLIENTS, RIDGE, TARGET, False, quick, progress, baseline=False)


def _compressed_figure(
    number: int, method: str, clients: int, ridge: float, cost: str, check: claims.Check, level: float, relative: bool
) -> None:
    of = f"a ridge of {ridge:g}" if ridge else "no ridge"
    against = "communication rounds" if cost == "round" else "bits sent per client"
    tell: Tell = (lambda rows: []) if ridge else (lambda rows: [claims.stepsize_note(summaries(rows))])
    data, other, large = convex_runs.DATA, convex_runs.OTHER_DATA, LARGE
    no_ridge = "" if ridge else f"\n\n{convex_runs.WITHOUT_RIDGE}"
    if method == "DCGD" or not ridge:
        data, other, large = convex_runs.DATA_ONCE, convex_runs.OTHER_DATA_ONCE, LARGE_ONCE

    @experiment(
        f"flix/fig{number}",
        paper=PAPER,
        title=f"{method} with Rand-k and GD against {against}, {of}",
        caption=(
            f"f - f* against {against} for {method} (by k) and GD (dashed) with {clients} clients and {of}. "
            f"Curves are those of the first seed. {other}"
        ),
        data=data,
        differences=(
            f"{other} {large}\n\n{convex_runs.OTHER_REFERENCE} The start is at ones. Costs are counted in bits of "
            f"float64 numbers, where the paper counts floats.{no_ridge}"
        ),
        judge=_judge(check),
        draw=lambda rows: _draw_compression(rows, cost),
        tell=tell,
    )
    def run(quick: bool, progress: ExperimentProgress) -> Measured:
        return _compression(method, clients, ridge, level, relative, quick, progress)


_SHARE = f"{COARSE:.0%} of the starting gap"
_EXACTLY, _COARSELY = (TARGET, False), (COARSE, True)
_compressed_figure(8, "DIANA", 50, RIDGE, "round", claims.rounds_to(f"{TARGET:g}"), *_EXACTLY)
_compressed_figure(9, "DIANA", 50, RIDGE, "bits", claims.bits_to(f"{TARGET:g}"), *_EXACTLY)
_compressed_figure(10, "DCGD", 8, RIDGE, "round", claims.neighbourhood, *_COARSELY)
_compressed_figure(11, "DCGD", 8, RIDGE, "bits", claims.bits_to(_SHARE), *_COARSELY)
_compressed_figure(12, "DIANA", 100, 0.0, "round", claims.rounds_to(_SHARE, ridge=False), *_COARSELY)
_compressed_figure(13, "DIANA", 100, 0.0, "bits", claims.bits_to(_SHARE), *_COARSELY)
_compressed_figure(14, "DCGD", 8, 0.0, "round", claims.rounds_to(_SHARE, ridge=False), *_COARSELY)
_compressed_figure(15, "DCGD", 8, 0.0, "bits", claims.bits_to(_SHARE), *_COARSELY)


def _run(
    dataset: str, method: str, alpha: float, clients: int, ridge: float, k: int | None, seed: int = 0
) -> ConvexRun:
    every = (EVERY if ridge or k is None else FLAT_EVERY)[dataset]
    every *= 1 if k is None or alpha == 1.0 else 4
    one = not ridge and k == 1 and alpha == 1.0
    rounds = ONE_ROUNDS[clients][dataset] if one else _rounds(dataset, clients, ridge)
    return ConvexRun(dataset, clients, ridge, method, alpha, rounds, k, every, seed)


def _rounds(dataset: str, clients: int, ridge: float) -> int:
    return ROUNDS[dataset] if ridge else FLAT_ROUNDS[clients][dataset]


def _ks(dataset: str, quick: bool) -> list[int]:
    return convex_runs.spaced(KNOWN[dataset].features, 4 if quick else FEWER.get(dataset, SIXTHS + 1))


def _xy(rows: Sequence[Row], x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
    points = [row for row in rows if x in row]
    return column(points, x), column(points, y)


def _settings(clients: int, ridge: float, alphas: Sequence[float], datasets: Iterable[str]) -> dict[str, object]:
    rounds = {dataset: _rounds(dataset, clients, ridge) for dataset in datasets}
    return {"clients": clients, "ridge lambda": ridge, "alpha": alphas, "start": "ones", "rounds": rounds}
