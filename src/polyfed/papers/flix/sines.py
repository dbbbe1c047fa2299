"""FLIX, Fig. 4: sines of two kinds, fitted by mixtures of small nets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from polyfed.core.startup import start
from polyfed.papers.flix.convex import PAPER
from polyfed.papers.flix.line_search import GROWTH, SUFFICIENT
from polyfed.papers.flix.sine_nets import FULL, QUICK, TOLERANCE, Measurements, measure, split_name
from polyfed.papers.shared import style
from polyfed.papers.shared.claims import Claim, some
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.rows import column, distinct, where
from polyfed.problem.problem import precision

DRAMATIC = 0.5
"""The share of an extreme's error that counts as a dramatic improvement on it."""
GLOBAL, LOCAL = 1.0, 0.0
"""The extremes of alpha."""


def judge(rows: list[Row]) -> list[Claim]:
    """What the paper concludes from its figure. Errors are compared by their logarithms, paired by draw."""
    splits = distinct(rows, "split")
    made = [_between_claim(rows, split) for split in splits]
    for what, extreme in (("one global model", GLOBAL), ("the pure local models", LOCAL)):
        gains = {
            f"{split}, alpha = {alpha:g}": -_log_ratio(rows, split, alpha, extreme) + np.log(DRAMATIC)
            for split in splits
            for alpha in _inner(rows)
        }
        shares = {
            split: min(float(np.exp(_log_ratio(rows, split, a, extreme)).mean()) for a in _inner(rows))
            for split in splits
        }
        made.append(
            some(
                f"Some alpha can outperform {what} dramatically (in some split, by {DRAMATIC:.0%} or more).",
                gains,
                "its error is at best " + ", ".join(f"{s:.0%} ({name})" for name, s in shares.items()) + " of that",
            )
        )
    return made


def _between_claim(rows: list[Row], split: str) -> Claim:
    """Some alpha beats both extremes: for each alpha, the extreme that is harder to beat counts."""
    gains, means = {}, {alpha: float(np.mean(_errors(rows, split, alpha))) for alpha in distinct(rows, "alpha")}
    for alpha in _inner(rows):
        hardest = max((LOCAL, GLOBAL), key=lambda extreme: float(np.mean(_log_ratio(rows, split, alpha, extreme))))
        gains[f"log, alpha = {alpha:g}"] = -_log_ratio(rows, split, alpha, hardest)
    best = min(_inner(rows), key=means.__getitem__)
    text = f"{split} clients: some alpha between 0 and 1 has a lower average test error than the pure local models and "
    words = f"{means[best]:.2e} at alpha = {best:g}, {means[LOCAL]:.2e} pure local, {means[GLOBAL]:.2e} global"
    return some(f"{text}than one global model.", gains, words)


def _inner(rows: list[Row]) -> list[float]:
    return [alpha for alpha in distinct(rows, "alpha") if 0 < alpha < 1]


def _errors(rows: list[Row], split: str, alpha: float) -> np.ndarray:
    """The test error of each draw."""
    return column(sorted(where(rows, split=split, alpha=alpha), key=lambda row: row["draw"]), "test_error")


def _log_ratio(rows: list[Row], split: str, alpha: float, extreme: float) -> np.ndarray:
    return np.log(_errors(rows, split, alpha)) - np.log(_errors(rows, split, extreme))


def tell(rows: list[Row]) -> list[str]:
    server = [row["grad_norm"] for row in rows if row["alpha"] > 0]
    most = max(row["iterations"] for row in rows if row["alpha"] > 0)
    return [
        f"{_reached(server)} server models met the paper's rule, |grad| < {TOLERANCE:g} (median "
        f"{np.median(server):.2e}), after at most {most:,} iterations."
    ]


def draw(rows: list[Row]) -> Figure:
    palette = style.colours(distinct(rows, "draw"))
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

    panels = [[panel(split, quantity) for split in distinct(rows, "split")] for quantity in quantities]
    return style.small_multiples(panels, x_label="α (0: pure local, 1: global)")


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
        "Twenty draws of the two sines, the points and the initial net, where the paper shows one. Pure local models "
        "are trained to a hundredth of the paper's gradient norm; they and the server start from the same net. The "
        "paper does not say how the net is initialised: here weights and biases are uniform within 1/sqrt(inputs), as "
        "biases of zero would put every first-layer unit's bend at x = 0. Nor does it say which line search: here "
        "Armijo's with constant 1e-4, halving, begun at 1.25 times the last step. alpha = 0 is shown too. In the "
        "stopping rule grad f_i(T_i(x)) is read as the gradient of f_i at T_i(x), without the factor alpha."
    ),
    judge=judge,
    draw=draw,
    tell=tell,
)
def fig4(quick: bool, progress: ExperimentProgress) -> Measured:
    """A mixture generalises better than pure local models and than one global model."""
    start()
    scale = QUICK if quick else FULL
    with precision("float64"):
        measurements = measure(scale, progress)
    return Measured(
        measurements.rows,
        {
            "clients": [split_name(split) for split in scale.splits],
            "alpha": scale.alphas,
            "net": "1-40-40-1, tanh",
            "loss": "mean squared error",
            "training points a client": scale.points,
            "test points a client": scale.test_points,
            "method": "gradient descent with a line search, all rows, float64",
            "line search": f"Armijo {SUFFICIENT:g}, halving, from {GROWTH:g} times the last step; the first from 1",
            "tolerance of the server": TOLERANCE,
            "tolerance of pure local models": scale.stationary,
            "draws (seeds from 0)": scale.draws,
            "amplitude and phase of the groups": measurements.pairs,
        },
        _notes(measurements, scale.stationary),
    )


def _notes(measurements: Measurements, stationary: float) -> list[str]:
    """What rows do not say of the pure local models."""
    most = max(row["iterations"] for row in measurements.rows if row["alpha"] == 0)
    early, late = np.exp(np.mean(np.log(measurements.early), axis=0))
    return [
        f"{_reached(measurements.norms, stationary)} pure local models ended with |grad f_i| < {stationary:g} (median "
        f"{np.median(measurements.norms):.2e}), after at most {most:,} iterations.",
        f"A tolerance of {TOLERANCE:g} would stop them early. On every tenth client of "
        f"{measurements.rows[0]['split']} their average test error would be {early:.2e}; it is {late:.2e} (geometric "
        "means over the draws).",
    ]


def _reached(norms: Sequence[float], tolerance: float = TOLERANCE) -> str:
    return f"{sum(norm < tolerance for norm in norms):,} of {len(norms):,}"
