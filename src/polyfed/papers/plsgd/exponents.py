"""PLSGD, Fig. 4: the exponents of the bounds, and the window of (16)."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from polyfed import theory
from polyfed.papers.plsgd.runs import PAPER
from polyfed.papers.shared import style
from polyfed.papers.shared.claims import Claim, exact
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.rows import column
from polyfed.papers.shared.style import COLOURS, Curve, Panel

STEPS = (1, 2, 10)
WHY = (
    "Why the second claim fails: the paper compares a bound on the squared distance, e^(-R(1-e^(-2 eta mu K))), with "
    "e^(-eta mu K R) for SGD alone, which is twice too slow: alone, the squared distance falls by (1 - eta mu)^2 a "
    "step. (14) says the same in another way: its optimisation term does not contain beta, and its noise term grows "
    "with beta, so that by (14) no communication at all is best. What PLSGD gains from communication is in the mean of "
    "the clients' errors, which (14) does not follow: see [plsgd/regimes](../regimes/README.md)."
)


def judge(rows: list[Row]) -> list[Claim]:
    """What Appendix B.2 reads off the graphs, and what the exact factors say."""
    x, personal, window = (column(rows, name)[1:] for name in ("x", "exponent_plsgd", "window"))
    crossing = float(x[personal < x][0])
    never = all(np.all(ours >= own - 1e-15) for _, ours, own in (_factors(x[x / K < 0.5], K) for K in STEPS))
    return [
        exact(
            "The exponent of (15) beats that of the bound on pure local training for eta mu K <= 0.8 (to two digits).",
            f"they cross at {crossing:.3f}",
            abs(crossing - 0.8) < 0.005,
        ),
        exact(
            "So PLSGD contracts faster than pure local training at the same eta.",
            "never: a round multiplies the squared distance exactly by ((1 + (1-2x/K)^K)/2)^2, against (1-x/K)^(2K) "
            "for pure local training, which is never larger, and equal for K = 1"
            if never
            else "for some eta and K",
            not never,
        ),
        exact(
            "The window of (16) is never empty.",
            f"2(1 - exp(-x)) - x is at least {np.min(window - x):.2g} on (0, 1]",
            bool(np.all(window > x)),
        ),
    ]


def _floor_note() -> str:
    """What the window leaves of the optimisation term, over many settings."""
    ratios = [
        float(theory.plsgd_rate(_at(M, K, R, float(kappa))).optimization / theory.plsgd_window_floor(M))
        for M in (1, 2, 10, 100)
        for K in (1, 5, 50)
        for R in (1, 10, 1000)
        for kappa in np.linspace(*theory.plsgd_window(M, K, R), 50, endpoint=False)
    ]
    return (
        f"In the window the optimisation term of (16) never falls below e^(-1/(4M)) B^2 (over {len(ratios)} settings "
        f"its least ratio to that is {min(ratios):.6f}): nothing is optimised yet."
    )


def draw(rows: list[Row]) -> Figure:
    x, personal, window = (column(rows, name) for name in ("x", "exponent_plsgd", "window"))
    exact_factors = {K: _factors(x[x / K < 0.5], K) for K in STEPS}
    panels = [
        Panel(
            "exponents of the bounds",
            [Curve("1 - exp(-2x)", x, personal, COLOURS[0]), Curve("x", x, x, COLOURS[1], "--")],
            "exponent per round",
        ),
        Panel(
            "exact factors of a round",
            [
                Curve(f"{name}, K = {K}", points, values, colour, line)
                for (K, (points, ours, own)), colour in zip(exact_factors.items(), COLOURS[2:], strict=False)
                for name, values, line in (("PLSGD", ours, "-"), ("alone", own, "--"))
            ],
            "distance² after / before",
        ),
        Panel(
            "window of (16)",
            [Curve("2(1 - exp(-x))", x, window, COLOURS[0]), Curve("x ", x, x, COLOURS[1], "--")],
            "",
        ),
    ]
    return _graphs(panels)


@experiment(
    "plsgd/fig4",
    paper=f"{PAPER}, Fig. 4 and Appendix B.2.",
    title="What the bounds of Theorem 1 say: the exponents, and the window of (16)",
    caption=(
        "Left: the exponents of (15) and of the bound on pure local training that the paper compares with, by x = eta "
        "mu K. Middle: what a round does to the distance of machines with opposite optima, exactly, at the same eta. "
        "Right: the two sides of the condition on kappa, by x = 1/(4MR)."
    ),
    data="None: graphs of functions, and the exact factors of one-dimensional quadratics.",
    differences="The middle panel is not in the paper.",
    judge=judge,
    draw=draw,
    tell=lambda rows: [WHY, _floor_note()],
)
def fig4(quick: bool, progress: ExperimentProgress) -> Measured:
    """Both graphs of the paper, and what lies behind them."""
    x = np.linspace(0, 1, 401)
    personal, window = 1 - np.exp(-2 * x), 2 * (1 - np.exp(-x))
    return Measured(
        [
            {"x": float(a), "exponent_plsgd": float(b), "exponent_alone": float(a), "window": float(c)}
            for a, b, c in zip(x, personal, window, strict=True)
        ]
    )


def _factors(x: np.ndarray, K: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, and what a round of K steps leaves of the squared distance: PLSGD (alpha = 1) and pure local training."""
    return x, ((1 + (1 - 2 * x / K) ** K) / 2) ** 2, (1 - x / K) ** (2 * K)


def _at(M: int, K: int, R: int, kappa: float) -> theory.Federated:
    return theory.Federated(clients=M, local_steps=K, rounds=R, L=1.0, mu=1 / kappa)


def _graphs(panels: list[Panel]) -> Figure:
    with matplotlib.rc_context(style.RC):
        figure = Figure(figsize=(11, 3.1), layout="constrained")
        for axis, panel in zip(figure.subplots(1, 3), panels, strict=True):
            for curve in panel.curves:
                axis.plot(curve.x, curve.y, curve.line, color=curve.colour, label=curve.label)
            axis.set_title(panel.title)
            axis.set_xlabel("x")
            axis.set_ylabel(panel.y_label or "")
            axis.legend(fontsize=7.5)
    return figure
