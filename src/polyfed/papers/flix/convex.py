"""Gasanov, Khaled, Horvath and Richtarik: FLIX. Its convex figures: GD, compressed GD (DCGD) and DIANA."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyfed.data.sources.libsvm import KNOWN
from polyfed.papers.flix import claims
from polyfed.papers.shared import convex_runs, style
from polyfed.papers.shared.convex_runs import DATASETS, TITLES, ConvexCurves, ConvexRun
from polyfed.papers.shared.experiment import ExperimentProgress, Outcome, Row, experiment

PAPER = (
    "E. Gasanov, A. Khaled, S. Horváth, P. Richtárik, *FLIX: A Simple and Communication-Efficient Alternative to Local "
    "Methods in Federated Learning*, Sections 4, 10 and 11."
)
ALPHAS = (1.0, 0.1, 0.01, 0.001)
SHOWN = (1.0, 0.1)
"""The alphas of the figures on compression."""
CLIENTS, RIDGE, TARGET = 50, 0.1, 1e-8
ROUNDS = {"mushrooms": 1200, "a6a": 800, "w7a": 600, "w8a": 600, "ijcnn1.num12": 300}
COARSE = 1e-2
"""A method without exact convergence is timed to this share of its starting gap."""


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
)
def fig2(quick: bool, progress: ExperimentProgress) -> Outcome:
    """Smaller alpha starts closer to the solution; the rate is the same for all."""
    datasets, alphas = (DATASETS[:1], ALPHAS[:3]) if quick else (DATASETS, ALPHAS)
    todo = {(d, a): _run(d, "GD", a, CLIENTS, RIDGE, None) for d in datasets for a in alphas}
    curves = convex_runs.trace_all(todo.values(), progress)
    palette = style.colours(alphas)
    panels = [
        [
            style.Panel(
                TITLES.get(dataset, dataset),
                [
                    style.Curve(f"α = {a:g}", *_xy(curves[todo[dataset, a]], "round", quantity), palette[a])
                    for a in alphas
                ],
                label,
            )
            for dataset in datasets
        ]
        for quantity, label in (("distance", "mean squared distance"), ("gap", "f - f*"))
    ]
    return Outcome(
        rows=[row for run in todo.values() for row in curves[run]],
        claims=[c for d in datasets for c in claims.gradient_descent(d, curves, [todo[d, a] for a in alphas])],
        figure=style.small_multiples(panels, x_label="communication rounds"),
        settings=_settings(CLIENTS, RIDGE, alphas) | {"stepsize": "1/L_alpha (Theorem 2)"},
    )


@experiment(
    "flix/fig3",
    paper=PAPER,
    title="DIANA with Rand-k against rounds, by k and alpha",
    caption=(
        "f - f* against communication rounds of DIANA with 50 clients and a ridge of 0.1; k coordinates of each "
        "gradient difference travel. " + convex_runs.OTHER_DATA
    ),
    data=convex_runs.DATA,
    differences=f"{convex_runs.OTHER_DATA} {convex_runs.OTHER_REFERENCE} The start is at ones.",
)
def fig3(quick: bool, progress: ExperimentProgress) -> Outcome:
    """DIANA converges linearly for every k; more coordinates, fewer rounds; smaller alpha, better start."""
    return _compression("DIANA", CLIENTS, RIDGE, "round", claims.diana, quick, progress, baseline=False)


def _compression(
    method: str,
    clients: int,
    ridge: float,
    cost: str,
    check: claims.Check,
    quick: bool,
    progress: ExperimentProgress,
    baseline: bool = True,
) -> Outcome:
    """A compressed method for seven k (and GD, dashed), a row of panels per alpha."""
    datasets = DATASETS[:1] if quick else DATASETS
    todo = [
        _run(d, name, a, clients, ridge, k)
        for d in datasets
        for a in SHOWN
        for name, k in [*((method, k) for k in _ks(d, quick)), *([("GD", None)] if baseline else [])]  # GD on top
    ]
    curves = convex_runs.trace_all(todo, progress)
    panels = [[_panel(d, a, curves, cost, quick) for d in datasets] for a in SHOWN]
    x_label = "communication rounds" if cost == "round" else "Mbit sent per client"
    return Outcome(
        rows=[row for run in todo for row in curves[run]],
        claims=[c for d in datasets for c in check(d, curves, [run for run in todo if run.dataset == d])],
        figure=style.small_multiples(panels, x_label=x_label, log_x=cost == "bits"),
        settings=_settings(clients, ridge, SHOWN)
        | {
            "compressor": "Rand-k, seeded (indices do not travel)",
            "k": {d: _ks(d, quick) for d in datasets},
            "stepsize": f"Theorem {_THEOREMS[method, ridge > 0]}; GD 1/L_alpha",
        },
        notes=[] if ridge else [claims.stepsize_note(curves, method, COARSE)],
    )


_THEOREMS = {("DCGD", True): 4, ("DIANA", True): 5, ("DCGD", False): 6, ("DIANA", False): 7}


def _panel(dataset: str, alpha: float, curves: ConvexCurves, cost: str, quick: bool) -> style.Panel:
    """One dataset at one alpha. k's colour goes by its rank, so that one legend serves all datasets."""
    ks = _ks(dataset, quick)
    palette = style.ramp(range(len(ks)))
    lines = []
    for run, rows in curves.items():
        if (run.dataset, run.alpha) != (dataset, alpha):
            continue
        x, y = _xy(rows, cost, "gap")
        x, y = (x[1:] / 1e6, y[1:]) if cost == "bits" else (x, y)  # nothing has travelled at the start
        if run.k is None:
            lines.append(style.Curve(run.method, x, y, "#D55E00", style.BASELINE))
        else:
            rank = ks.index(run.k)
            lines.append(style.Curve(f"{run.method}, {_share(rank, len(ks))}", x, y, palette[rank]))
    return style.Panel(f"{TITLES.get(dataset, dataset)}, α = {alpha:g}", lines, "f - f*")


def _share(rank: int, count: int) -> str:
    if rank in (0, count - 1):
        return "k = 1" if rank == 0 else "k = d"
    return f"k ≈ {rank}d/{count - 1}"


def _compressed_figure(number: int, method: str, clients: int, ridge: float, cost: str, check: claims.Check) -> None:
    of = f"a ridge of {ridge:g}" if ridge else "no ridge"
    against = "communication rounds" if cost == "round" else "bits sent per client"

    @experiment(
        f"flix/fig{number}",
        paper=PAPER,
        title=f"{method} with Rand-k and GD against {against}, {of}",
        caption=(
            f"f - f* against {against} for {method} (by k) and GD (dashed) with {clients} clients and {of}. "
            + convex_runs.OTHER_DATA
        ),
        data=convex_runs.DATA,
        differences=(
            f"{convex_runs.OTHER_DATA} {convex_runs.OTHER_REFERENCE} The start is at ones. Costs are counted in bits "
            f"of float64 numbers, where the paper counts floats.{'' if ridge else ' ' + convex_runs.WITHOUT_RIDGE}"
        ),
    )
    def run(quick: bool, progress: ExperimentProgress) -> Outcome:
        return _compression(method, clients, ridge, cost, check, quick, progress)


_SHARE = f"{COARSE:.0%} of the starting gap"
_compressed_figure(8, "DIANA", 50, RIDGE, "round", claims.rounds_to(TARGET, f"{TARGET:g}"))
_compressed_figure(9, "DIANA", 50, RIDGE, "bits", claims.bits_to(TARGET, f"{TARGET:g}"))
_compressed_figure(10, "DCGD", 8, RIDGE, "round", claims.neighbourhood)
_compressed_figure(11, "DCGD", 8, RIDGE, "bits", claims.bits_to(COARSE, _SHARE, relative=True))
_compressed_figure(12, "DIANA", 100, 0.0, "round", claims.rounds_to(COARSE, _SHARE, relative=True))
_compressed_figure(13, "DIANA", 100, 0.0, "bits", claims.bits_to(COARSE, _SHARE, relative=True))
_compressed_figure(14, "DCGD", 8, 0.0, "round", claims.rounds_to(COARSE, _SHARE, relative=True))
_compressed_figure(15, "DCGD", 8, 0.0, "bits", claims.bits_to(COARSE, _SHARE, relative=True))


def _run(dataset: str, method: str, alpha: float, clients: int, ridge: float, k: int | None) -> ConvexRun:
    rounds = ROUNDS[dataset]
    return ConvexRun(dataset, clients, ridge, method, alpha, rounds, k, every=max(1, rounds // 300))


def _ks(dataset: str, quick: bool) -> list[int]:
    return convex_runs.spaced(KNOWN[dataset].features, 4 if quick else 7)


def _xy(rows: Sequence[Row], x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
    return convex_runs.column(rows, x), convex_runs.column(rows, y)


def _settings(clients: int, ridge: float, alphas: Sequence[float]) -> dict[str, object]:
    return {"clients": clients, "ridge lambda": ridge, "alpha": alphas, "start": "ones", "rounds": ROUNDS}
