"""FLIX, Fig. 4: sines of two kinds, fitted by mixtures of small nets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from polyfed.core.startup import start
from polyfed.papers.flix.convex import PAPER
from polyfed.papers.flix.line_search import GROWTH, SUFFICIENT
from polyfed.papers.flix.sine_nets import (
    FARTHER,
    FULL,
    QUICK,
    TOLERANCE,
    Measurements,
    Scale,
    measure,
    split_name,
)
from polyfed.papers.shared import style
from polyfed.papers.shared.experiment import Claim, ExperimentProgress, Outcome, Row, experiment
from polyfed.problem.problem import precision

DRAMATIC = 0.5
"""The share of an extreme's error that counts as a dramatic improvement on it."""


@experiment(
    "flix/fig4",
    paper=PAPER,
    title="Two kinds of sines, fitted by mixtures of small nets, by alpha",
    caption=(
        "Average test error (MSE) against alpha for clients that fit one of two sines, by the sizes of the two groups; "
        "alpha = 0 is the pure local models, alpha = 1 one model for all. Below, the same over each group's clients."
    ),
    data=(
        "a sin(x + b) with a from [0.1, 0.5] and b from [0, 2 pi], one pair for each of two groups of clients; "
        "50 training and 2000 test points a client, uniform on [-5, 5], without noise. Generated."
    ),
    differences=(
        "Three draws of the two sines, the points and the initial net, where the paper shows one. Pure local models "
        "and the server start from the same net. The paper does not say how the net is initialised: here weights and "
        "biases are uniform within 1/sqrt(inputs), as biases of zero would put every first-layer unit's bend at x = 0. "
        "Nor does it say which line search: here Armijo's with constant 1e-4, halving, begun at 1.25 times the last "
        "step. alpha = 0 is shown too. In the stopping rule grad f_i(T_i(x)) is read as the gradient of f_i at T_i(x), "
        "without the factor alpha."
    ),
)
def fig4(quick: bool, progress: ExperimentProgress) -> Outcome:
    """A mixture generalises better than pure local models and than one global model."""
    start()
    scale = QUICK if quick else FULL
    with precision("float64"):
        measurements = measure(scale, progress)
    return Outcome(
        rows=measurements.rows,
        claims=claims(measurements.rows),
        figure=_figure(measurements.rows, scale),
        settings={
            "clients": [split_name(split) for split in scale.splits],
            "alpha": scale.alphas,
            "net": "1-40-40-1, tanh",
            "loss": "mean squared error",
            "training points a client": scale.points,
            "test points a client": scale.test_points,
            "method": "gradient descent with a line search, all rows, float64",
            "line search": f"Armijo {SUFFICIENT:g}, halving, from {GROWTH:g} times the last step; the first from 1",
            "tolerance": TOLERANCE,
            "draws (seeds from 0)": scale.draws,
            "amplitude and phase of the groups": measurements.pairs,
        },
        notes=_notes(measurements),
    )


def claims(rows: Sequence[Row]) -> list[Claim]:
    """What the paper concludes from its figure, on means over the draws; alpha = 0 is the pure local models."""
    splits = list(dict.fromkeys(row["split"] for row in rows))
    made, shares = [], []
    for split in splits:
        points = [row for row in rows if row["split"] == split]
        draws = [_curve([row for row in points if row["draw"] == d]) for d in sorted({row["draw"] for row in points})]
        mean = _curve(points)
        best = _best(mean)
        agreeing = sum(curve[_best(curve)] < min(curve[0.0], curve[1.0]) for curve in draws)
        made.append(
            Claim(
                f"{split} clients: some alpha between 0 and 1 has a lower average test error than the pure local "
                "models and than one global model.",
                f"{mean[best]:.2e} at alpha = {best:g}, {mean[0.0]:.2e} pure local, {mean[1.0]:.2e} global; "
                f"{agreeing} of {len(draws)} draws agree",
                mean[best] < min(mean[0.0], mean[1.0]),
            )
        )
        shares.append((mean[best] / mean[1.0], mean[best] / mean[0.0]))
    for what, of in zip(("one global model", "the pure local models"), zip(*shares, strict=True), strict=True):
        made.append(
            Claim(
                f"The best alpha can outperform {what} dramatically (in some split, by {DRAMATIC:.0%} or more).",
                "its error is "
                + ", ".join(f"{s:.0%} ({name})" for s, name in zip(of, splits, strict=True))
                + " of that",
                min(of) <= DRAMATIC,
            )
        )
    return made


def _curve(rows: Sequence[Row]) -> dict[float, float]:
    """The mean test error by alpha."""
    alphas = sorted({row["alpha"] for row in rows})
    return {alpha: float(np.mean([row["test_error"] for row in rows if row["alpha"] == alpha])) for alpha in alphas}


def _best(curve: dict[float, float]) -> float:
    """The best alpha strictly between 0 and 1."""
    return min((alpha for alpha in curve if 0 < alpha < 1), key=curve.__getitem__)


def _notes(measurements: Measurements) -> list[str]:
    server = [row["grad_norm"] for row in measurements.rows if row["alpha"] > 0]
    most = [max(row["iterations"] for row in measurements.rows if (row["alpha"] == 0) == own) for own in (True, False)]
    before, after = (", ".join(f"{pair[i]:.2e}" for pair in measurements.farther) for i in (0, 1))
    return [
        f"{_reached(measurements.norms)} pure local models ended with |grad f_i| < {TOLERANCE:g} (median "
        f"{np.median(measurements.norms):.2e}), after at most {most[0]:,} iterations; {_reached(server)} server "
        f"models met the paper's rule (median {np.median(server):.2e}), after at most {most[1]:,}.",
        f"A tolerance of {TOLERANCE:g} stops early. On every tenth client of {measurements.rows[0]['split']} the "
        f"average test error of the pure local models is {before} in the draws; trained on to {FARTHER:g}, it is "
        f"{after}.",
    ]


def _reached(norms: Sequence[float]) -> str:
    return f"{sum(norm < TOLERANCE for norm in norms):,} of {len(norms):,}"


def _figure(rows: Sequence[Row], scale: Scale) -> Figure:
    palette = style.colours(range(1, scale.draws + 1))
    quantities = {
        "test_error": "MSE, all clients",
        "test_error_smaller_group": "MSE, smaller group",
        "test_error_larger_group": "MSE, larger group",
    }

    def panel(split: str, quantity: str) -> style.Panel:
        curves = []
        for draw, colour in palette.items():
            points = [row for row in rows if (row["split"], row["draw"]) == (split, draw)]
            x, y = ([row[name] for row in points] for name in ("alpha", quantity))
            curves.append(style.Curve(f"draw {draw}", x, y, colour, marker="o"))
        return style.Panel(f"{split} clients", curves, quantities[quantity])

    panels = [[panel(split_name(split), quantity) for split in scale.splits] for quantity in quantities]
    return style.small_multiples(panels, x_label="α (0: pure local, 1: global)")
