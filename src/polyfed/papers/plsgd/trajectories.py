"""PLSGD, Fig. 1b: the paths of local GD with and without personalization."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from polyfed import algorithms
from polyfed.engine.simulation import Simulation
from polyfed.papers.plsgd.runs import PAPER, noisy_quadratics
from polyfed.papers.shared import style
from polyfed.papers.shared.claims import Claim, exact
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.rows import where
from polyfed.papers.shared.style import COLOURS
from polyfed.studies.consensus import Watch

CURVES = np.array([[2.0, 4.0], [4.0, 2.0]])
OPTIMA = np.array([[7.0, 18.0], [18.0, 13.0]])
LOCAL, PERSONAL = "local GD", "personalized local GD"
MIDDLE = (CURVES * OPTIMA).mean(axis=0) / CURVES.mean(axis=0)
"""The optimum of the mean."""
SHOWN = 8
"""The rounds of the figure."""
CLOSE = 1e-9, 1e-2
"""How near to their optima the machines must come, and in a quick run of few rounds."""


def judge(rows: list[Row]) -> list[Claim]:
    """Where both methods are after 8 rounds, and after many."""
    rounds = max(row["round"] for row in rows) + 1
    ends = {name: _models(rows, name, rounds - 1) for name in (LOCAL, PERSONAL)}
    shown = {name: _models(rows, name, SHOWN - 1) for name in (LOCAL, PERSONAL)}
    swing = {name: float(np.mean(np.sum((end[:, -1] - end[:, 0]) ** 2, axis=1))) for name, end in ends.items()}
    miss = float(np.max(np.linalg.norm(ends[PERSONAL][:, -1] - OPTIMA, axis=1)))
    off = float(np.linalg.norm(ends[LOCAL][0, 0] - MIDDLE))
    apart = {name: float(np.linalg.norm(models[0, -1] - models[1, -1])) for name, models in shown.items()}
    far = {name: float(np.mean(np.sum((models[:, -1] - OPTIMA) ** 2, axis=1))) for name, models in shown.items()}
    return [
        exact(
            "With personalization every machine converges to its own optimum.",
            f"after {rounds} rounds the farther machine is {miss:.1e} from its optimum",
            miss < CLOSE[rounds < 100],
        ),
        exact(
            "Without it the machines drift in every round, for ever.",
            f"in round {rounds} a machine moves by {swing[LOCAL]:.3g} in mean square during its local steps, against "
            f"{swing[PERSONAL]:.1e} with personalization",
            swing[LOCAL] > 1 and swing[PERSONAL] < 1e-3 * swing[LOCAL],
        ),
        exact(
            "Local GD does not converge to the optimum v* of the mean either.",
            f"its fixed point is {off:.3g} from v*",
            off > 1e-3,
        ),
        exact(
            f"After the figure's {SHOWN} rounds the machines are nearer to their optima with personalization.",
            f"mean squared distance {far[PERSONAL]:.3g} against {far[LOCAL]:.3g}; the two models are "
            f"{apart[PERSONAL]:.3g} apart against {apart[LOCAL]:.3g}",
            far[PERSONAL] < far[LOCAL],
        ),
    ]


def _models(rows: list[Row], name: str, round: int) -> np.ndarray:
    """Both machines' models after every local step of a round: (machines, steps + 1, 2)."""
    mine = where(rows, method=name, round=round)
    return np.array([[(row["x"], row["y"]) for row in where(mine, machine=machine)] for machine in (1, 2)])


def draw(rows: list[Row]) -> Figure:
    return _plane({name: [_models(rows, name, r) for r in range(SHOWN)] for name in (LOCAL, PERSONAL)}, MIDDLE)


@experiment(
    "plsgd/fig1b",
    paper=f"{PAPER}, Fig. 1b.",
    title="Trajectories of local GD and personalized local GD in the plane",
    caption=(
        "Two machines with the optima v1* and v2*, contours in their colours; v* is the optimum of the mean. Every "
        "point is a model after a local step, K = 3, R = 8; squares: what a round starts from."
    ),
    data="F1(v) = (v[1]-7)^2 + 2(v[2]-18)^2 - 1 and F2(v) = 2(v[1]-18)^2 + (v[2]-13)^2 - 1; no noise.",
    differences="The paper does not say where its trajectories start; here at zero.",
    judge=judge,
    draw=draw,
)
def fig1b(quick: bool, progress: ExperimentProgress) -> Measured:
    """Where both methods walk, and where they end after many more rounds."""
    rounds = 60 if quick else 400
    walks = {LOCAL: _walk(0.0, rounds), PERSONAL: _walk(1.0, rounds)}
    rows = [
        {"method": name, "machine": m + 1, "round": r, "step": k, "x": float(point[0]), "y": float(point[1])}
        for name, walk in walks.items()
        for r in (*range(SHOWN), rounds - 1)
        for m, line in enumerate(walk[r])
        for k, point in enumerate(line)
    ]
    return Measured(rows, {"eta": 0.05, "alpha": 1.0, "beta": 1.0, "K": 3, "R": SHOWN, "start": "zeros"})


def _walk(alpha: float, rounds: int) -> list[np.ndarray]:
    """Per round, every machine's model w_m + theta_m after each local step: (machines, steps + 1, 2)."""
    method = algorithms.PLSGD(lr=0.05, alpha=alpha, local_steps=3, batch="full")
    simulation = Simulation(noisy_quadratics(CURVES, OPTIMA), method, dtype="float64", init="zeros", devices=1)
    watch, paths = Watch(simulation), []
    for _ in range(rounds):
        own, copies = simulation.client_state.own["model"], watch().copies
        moved = own[:, None] + alpha * (copies - copies[:, :1])  # eq. (37): alpha w - theta is constant
        paths.append(copies + moved)
        simulation.advance(1)
    return paths


def _plane(paths: dict[str, list[np.ndarray]], middle: np.ndarray) -> Figure:
    x, y = np.meshgrid(np.linspace(-1, 23, 200), np.linspace(-1, 23, 200))
    with matplotlib.rc_context(style.RC):
        figure = Figure(figsize=(8.6, 4.3), layout="constrained")
        for axis, (name, path) in zip(figure.subplots(1, 2, sharey=True), paths.items(), strict=True):
            for m, colour in enumerate(COLOURS[:2]):
                bowl = (CURVES[m, 0] * (x - OPTIMA[m, 0]) ** 2 + CURVES[m, 1] * (y - OPTIMA[m, 1]) ** 2) / 2 - 1
                axis.contour(x, y, bowl, levels=[4, 20, 60, 140, 280, 500], colors=colour, linewidths=0.5, alpha=0.5)
                line = np.concatenate([models[m] for models in path])
                axis.plot(*line.T, "-o", color=colour, markersize=2.5, linewidth=1)
                starts = np.array([models[m, 0] for models in path])
                axis.plot(*starts.T, "s", color=colour, markersize=4, markerfacecolor="white")
                axis.plot(*OPTIMA[m], "*", color=colour, markersize=11)
                axis.annotate(f"v{m + 1}*", OPTIMA[m], (6, 6), textcoords="offset points", color=colour)
            axis.plot(*middle, "*", color="black", markersize=11)
            axis.annotate("v*", middle, (6, -10), textcoords="offset points")
            axis.set_title(name)
            axis.set_xlabel("v[1]")
            axis.set_aspect("equal")
        figure.axes[0].set_ylabel("v[2]")
    return figure
