"""PLSGD: the trajectories of Fig. 1b, the consensus error of Fig. 2, and the graphs of Fig. 4."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from polyfed import algorithms, theory
from polyfed.engine.simulation import Simulation
from polyfed.papers.plsgd.runs import PAPER, noisy_quadratics
from polyfed.papers.shared import style
from polyfed.papers.shared.experiment import Claim, Outcome, Progress, experiment
from polyfed.papers.shared.style import COLOURS, Curve, Panel
from polyfed.studies.consensus import Watch, consensus

CURVES = np.array([[2.0, 4.0], [4.0, 2.0]])
OPTIMA = np.array([[7.0, 18.0], [18.0, 13.0]])
LOCAL, PERSONAL = "local GD", "personalized local GD"


@experiment(
    "plsgd/fig1b",
    paper=f"{PAPER}, Fig. 1b.",
    title="Trajectories of local GD and personalized local GD in the plane",
    caption=(
        "Two machines with the optima v1* and v2*, contours in their colours; v* is the optimum of the mean. Every "
        "point "
        "is a model after a local step, K = 3, R = 8; squares: what a round starts from."
    ),
    data="F1(v) = (v[1]-7)^2 + 2(v[2]-18)^2 - 1 and F2(v) = 2(v[1]-18)^2 + (v[2]-13)^2 - 1; no noise.",
    differences="The paper does not say where its trajectories start; here at zero.",
)
def fig1b(quick: bool, progress: Progress) -> Outcome:
    """Where both methods walk, and where they end after many more rounds."""
    paths = {LOCAL: _walk(0.0, 8), PERSONAL: _walk(1.0, 8)}
    rounds = 60 if quick else 400
    ends = {LOCAL: _walk(0.0, rounds)[-1], PERSONAL: _walk(1.0, rounds)[-1]}
    middle = (CURVES * OPTIMA).mean(axis=0) / CURVES.mean(axis=0)
    apart = {name: float(np.linalg.norm(path[-1][0, -1] - path[-1][1, -1])) for name, path in paths.items()}
    swing = {name: float(np.mean(np.sum((end[:, -1] - end[:, 0]) ** 2, axis=1))) for name, end in ends.items()}
    miss = float(np.max(np.linalg.norm(ends[PERSONAL][:, -1] - OPTIMA, axis=1)))
    off = float(np.linalg.norm(ends[LOCAL][0, 0] - middle))
    near = float(np.mean(np.sum((paths[PERSONAL][-1][:, -1] - OPTIMA) ** 2, axis=1)))
    far = float(np.mean(np.sum((paths[LOCAL][-1][:, -1] - OPTIMA) ** 2, axis=1)))
    return Outcome(
        rows=[
            {"method": name, "machine": m + 1, "round": r, "step": k, "x": point[0], "y": point[1]}
            for name, path in paths.items()
            for r, models in enumerate(path)
            for m, line in enumerate(models)
            for k, point in enumerate(line)
        ],
        claims=[
            Claim(
                "With personalization every machine converges to its own optimum.",
                f"after {rounds} rounds the farther machine is {miss:.1e} from its optimum",
                miss < 1e-9 if not quick else miss < 1e-2,
            ),
            Claim(
                "Without it the machines drift in every round, for ever.",
                f"in round {rounds} a machine moves by {swing[LOCAL]:.3g} in mean square during its local steps, "
                f"against "
                f"{swing[PERSONAL]:.1e} with personalization",
                swing[LOCAL] > 1 and swing[PERSONAL] < 1e-3 * swing[LOCAL],
            ),
            Claim(
                "Local GD does not converge to the optimum v* of the mean either.",
                f"its fixed point is {off:.3g} from v*",
                off > 1e-3,
            ),
            Claim(
                "After the figure's 8 rounds the machines are nearer to their optima with personalization.",
                f"mean squared distance {near:.3g} against {far:.3g}; the two models are {apart[PERSONAL]:.3g} apart "
                f"against {apart[LOCAL]:.3g}",
                near < far,
            ),
        ],
        figure=_plane(paths, middle),
        settings={"eta": 0.05, "alpha": 1.0, "beta": 1.0, "K": 3, "R": 8, "start": "zeros"},
    )


def _walk(alpha: float, rounds: int) -> list[np.ndarray]:
    """Per round, every machine's model w_m + theta_m after each local step: (machines, steps + 1, 2)."""
    method = algorithms.PLSGD(lr=0.05, alpha=alpha, local_steps=3, batch="full")
    simulation = Simulation(noisy_quadratics(CURVES, OPTIMA), method, dtype="float64", init="zeros", devices=1)
    watch, found = Watch(simulation), []
    for _ in range(rounds):
        own, copies = simulation.client_state.own["model"], watch().copies
        moved = own[:, None] + alpha * (copies - copies[:, :1])  # eq. (37): alpha w - theta is constant
        found.append(copies + moved)
        simulation.advance(1)
    return found


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


@experiment(
    "plsgd/fig2",
    paper=f"{PAPER}, Fig. 2 and Proposition 1.",
    title="The consensus error over time, with and without personalization",
    caption=(
        "The mean over both machines of |w_m - w|^2 at every local step, on the two machines of Proposition 1. "
        "Dots: measured; lines: the exact laws."
    ),
    data="(v - (v* - zeta))^2 / 2 and (v - (v* + zeta))^2 / 2 with v* = 2, zeta = 1; no noise.",
    differences=(
        "K is not in the paper's caption; here 5. The law of PLSGD is the exact one: the paper prints its factors "
        "without their squares."
    ),
)
def fig2(quick: bool, progress: Progress) -> Outcome:
    """Both laws to rounding, and where (21) ends."""
    K, R, zeta = 5, 12 if quick else 40, 1.0
    problem = noisy_quadratics(np.ones((2, 1)), np.array([[2 - zeta], [2 + zeta]]))
    cases = {"local SGD": (0.0, 0.5), "PLSGD, α = 1": (1.0, 0.25), "PLSGD, α = 0.1": (0.1, 0.5 / 1.1)}
    curves, ends, rows, claims = [], [], [], []
    for (name, (alpha, lr)), colour in zip(cases.items(), COLOURS, strict=False):
        method = algorithms.PLSGD(lr=lr, alpha=alpha, local_steps=K, batch="full")
        found = consensus(problem, method, rounds=R, dtype="float64", init="zeros")
        law = theory.consensus_plsgd(found["round"], found["step"], lr, alpha, K, zeta)
        error = float(np.max(np.abs(found["consensus"].to_numpy() - law)))
        times, values = found["iteration"].to_numpy(), found["consensus"].to_numpy()
        inner = found["step"].to_numpy() < K
        mean, exact = float(np.mean(values[inner])), theory.consensus_plsgd_mean(lr, alpha, K, R, zeta)
        curves += [Curve(name, times, law, colour), Curve(name, times, values, colour, "", ".")]
        last_steps = found["step"].to_numpy() == K
        ends += [
            Curve(name, times[last_steps], law[last_steps], colour),
            Curve(name, times[last_steps], values[last_steps], colour, "", "."),
        ]
        rows += [{"method": name, **row, "law": float(y)} for row, y in zip(found.to_dict("records"), law, strict=True)]
        last = float(values[-1])
        if alpha == 0:
            level = theory.consensus_local_sgd_mean(lr, K, zeta)
            claims.append(
                Claim(
                    "Local SGD's consensus error stays at the level of (20), to 1e-9.",
                    f"mean over {R} rounds {mean:.12f} against {level:.12f}; largest error of a step {error:.1e}; "
                    f"{last:.4f} at the end of the last round",
                    abs(mean - level) < 1e-9 and error < 1e-9,
                )
            )
            continue
        limit = theory.consensus_plsgd_bound(lr, alpha, K, R, zeta)
        claims += [
            Claim(
                f"{name}: the consensus error follows the exact law to 1e-9 and goes to zero.",
                f"largest error of a step {error:.1e}, of the mean {abs(mean - exact):.1e}; {last:.1e} at the end of "
                f"round {R}",
                error < 1e-9 and abs(mean - exact) < 1e-9 and last < 0.3 * values[K],
            ),
            Claim(
                f"{name}: (21) bounds its mean.",
                f"{mean:.4g} against {limit:.4g}",
                mean <= limit,
            ),
        ]
    panels = [Panel("every step", curves, "consensus error"), Panel("at the end of rounds", ends, "consensus error")]
    return Outcome(
        rows,
        claims,
        _two_scales(panels),
        settings={"K": K, "R": R, "beta": 1.0, "eta": "1/2 for local SGD, 1/(2(1+alpha)) for PLSGD", "zeta*": zeta},
        notes=[
            "(21) holds for alpha = 1, the paper's choice, and fails for a small alpha: its last factor falls with R "
            "as "
            "(1 - eta (1 + alpha))^r, the exact law only as ((1 + alpha nu^K)/(1 + alpha))^(2r). At alpha = 0 it "
            "would go to "
            "zero where (20) does not. Over a grid of eta, K and R it holds from alpha = 0.62 on."
        ],
    )


def _two_scales(panels: list[Panel]) -> Figure:
    with matplotlib.rc_context(style.RC):
        figure = Figure(figsize=(8.8, 3.2), layout="constrained")
        axes = figure.subplots(1, 2)
        for axis, panel in zip(axes, panels, strict=True):
            for curve in panel.curves:
                label = curve.label if curve.line else None
                axis.plot(curve.x, curve.y, curve.line, color=curve.colour, marker=curve.marker, lw=1, label=label)
            axis.set_title(panel.title)
            axis.set_xlabel("time (t)")
            axis.set_ylabel(panel.y_label or "")
        axes[0].set_xlim(-1, 62)
        axes[1].set_yscale("log")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
    return figure


@experiment(
    "plsgd/fig4",
    paper=f"{PAPER}, Fig. 4 and Appendix B.2.",
    title="What the bounds of Theorem 1 say: the exponents, and the window of (16)",
    caption=(
        "Left: the exponents of (15) and of the bound on pure local training that the paper compares with, by x = eta "
        "mu K. "
        "Middle: what a round does to the distance of machines with opposite optima, exactly, at the same eta. Right: "
        "the "
        "two sides of the condition on kappa, by x = 1/(4MR)."
    ),
    data="None: graphs of functions, and the exact factors of one-dimensional quadratics.",
    differences="The middle panel is not in the paper.",
)
def fig4(quick: bool, progress: Progress) -> Outcome:
    """Both graphs of the paper, and what lies behind them."""
    x = np.linspace(0, 1, 401)
    personal, alone = 1 - np.exp(-2 * x), x
    crossing = float(x[1:][(personal - alone)[1:] < 0][0])
    steps = {K: _factors(x[x / K < 0.5], K) for K in (1, 2, 10)}
    never = all(np.all(ours >= own - 1e-15) for _, ours, own in steps.values())
    window = 2 * (1 - np.exp(-x))
    floors = [
        (theory.plsgd_rate(_at(M, K, R, kappa)).optimization, theory.plsgd_window_floor(M))
        for M in (1, 2, 10, 100)
        for K in (1, 5, 50)
        for R in (1, 10, 1000)
        for kappa in np.linspace(*theory.plsgd_window(M, K, R), 50, endpoint=False)
    ]
    lowest = min(float(term / floor) for term, floor in floors)
    panels = [
        Panel(
            "exponents of the bounds",
            [Curve("1 - exp(-2x)", x, personal, COLOURS[0]), Curve("x", x, alone, COLOURS[1], "--")],
            "exponent per round",
        ),
        Panel(
            "exact factors of a round",
            [
                Curve(f"{name}, K = {K}", points, values, colour, line)
                for (K, (points, ours, own)), colour in zip(steps.items(), COLOURS[2:], strict=False)
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
    return Outcome(
        rows=[
            {"x": float(a), "exponent_plsgd": float(b), "exponent_alone": float(a), "window": float(c)}
            for a, b, c in zip(x, personal, window, strict=True)
        ],
        claims=[
            Claim(
                "The exponent of (15) beats that of the bound on pure local training for eta mu K <= 0.8.",
                f"they cross at {crossing:.3f}",
                abs(crossing - 0.8) < 0.01,
            ),
            Claim(
                "So PLSGD contracts faster than pure local training at the same eta.",
                "exactly, never: a round multiplies the squared distance by ((1 + (1-2x/K)^K)/2)^2 against "
                "(1-x/K)^(2K), "
                "which is never more, and equal for K = 1",
                not never,
            ),
            Claim(
                "The window of (16) is never empty.",
                f"2(1 - exp(-x)) - x is at least {np.min((window - x)[1:]):.2g} on (0, 1]",
                bool(np.all(window[1:] > x[1:])),
            ),
            Claim(
                "In the window the optimisation term of (16) never falls below e^(-1/(4M)) B^2: nothing is optimised "
                "yet.",
                f"over {len(floors)} settings its least ratio to that floor is {lowest:.6f}",
                lowest >= 1 - 1e-12,
            ),
        ],
        figure=_graphs(panels),
        notes=[
            "Why the second claim fails: the paper compares a bound on the squared distance, e^(-R(1-e^(-2 eta mu "
            "K))), with "
            "e^(-eta mu K R) for SGD alone, which is twice too slow: alone, the squared distance falls by (1 - eta "
            "mu)^2 a "
            "step. (14) says the same in another way: its optimisation term does not contain beta, and its noise term "
            "grows with beta, so that by (14) no communication at all is best. What PLSGD gains from communication is "
            "in "
            "the mean of the clients' errors, which (14) does not follow: see [plsgd/regimes](../regimes/README.md).",
        ],
    )


def _factors(x: np.ndarray, K: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, and what a round of K steps leaves of the squared distance: PLSGD with alpha = 1, and alone, both with eta."""
    return x, ((1 + (1 - 2 * x / K) ** K) / 2) ** 2, (1 - x / K) ** (2 * K)


def _at(M: int, K: int, R: int, kappa: Any) -> theory.Federated:
    return theory.Federated(clients=M, local_steps=K, rounds=R, L=1.0, mu=1 / float(kappa))


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
