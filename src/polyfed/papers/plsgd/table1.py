"""PLSGD, Table 1: its rates against the methods at their best stepsizes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from polyfed import algorithms, theory
from polyfed.algorithms.contract import Algorithm
from polyfed.papers.plsgd.runs import ONE_ROW, PAPER, TUNING, Seeds, constants, interval, noisy_quadratics
from polyfed.papers.shared import style
from polyfed.papers.shared.claims import Claim, at_most, better, every
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.rows import distinct, ends, where
from polyfed.papers.shared.style import Curve, Panel
from polyfed.problem.problem import Problem
from polyfed.theory import Federated

METHODS = {
    "minibatch SGD": lambda lr, K: algorithms.MinibatchSGD(lr=lr, local_steps=K, **ONE_ROW),
    "local SGD": lambda lr, K: algorithms.FedAvg(lr=lr, local_steps=K, weighting="uniform", **ONE_ROW),
    "pure local training": lambda lr, K: algorithms.Local(lr=lr, local_steps=K, **ONE_ROW),
}


class QuadraticFederation(NamedTuple):
    """A strongly convex federation with known constants."""

    title: str
    spectrum: tuple[float, ...]
    M: int
    K: int
    rounds: tuple[int, ...]
    noise: float
    spread: float

    @property
    def optima(self) -> np.ndarray:
        size = len(self.spectrum)
        return 1.0 + self.spread * np.random.default_rng(2).normal(size=(self.M, size)) / np.sqrt(size)

    @property
    def window_rounds(self) -> int | None:
        """A number of rounds at which the condition number lies in the window of (16)."""
        inside = (R for R in self.rounds if self.constants(R).kappa in theory.plsgd_window(self.M, self.K, R))
        return next(inside, None)

    def constants(self, R: int) -> Federated:
        return constants(np.array([self.spectrum] * self.M), self.optima, self.noise, self.K, R)


FEDERATIONS = (
    QuadraticFederation("κ = 5", (0.2, 0.5, 1.0), 8, 5, (5, 20, 80), 1.0, 0.5),
    QuadraticFederation("κ = 100, in the window at R = 5", (0.01, 0.5, 1.0), 4, 2, (5, 20, 80), 0.03, 0.5),
)


OURS, OWN_STEPSIZE = "PLSGD (16)", "PLSGD (16), its own stepsize"


def judge(rows: list[Row]) -> list[Claim]:
    """Every row of the table up to a factor of ten, and what (16) promises in its window."""
    made = []
    for title in distinct(rows, "federation"):
        mine = where(rows, federation=title)
        for name in (name for name in distinct(mine, "method") if name != OWN_STEPSIZE):
            predicted = {row["R"]: row["predicted"] for row in where(mine, method=name) if "predicted" in row}
            ratios = {R: ends(mine, "distance", method=name, R=R) / value for R, value in predicted.items()}
            made.append(
                every(
                    f"{title}: {name} stays within ten times its row of Table 1.",
                    {f"10 - ratio, R = {R}": 10 - ratio for R, ratio in ratios.items()},
                    "measured / predicted " + ", ".join(f"{r.mean():.2g} at R = {R}" for R, r in ratios.items()),
                )
            )
        made += _window_claims(title, mine)
    return made


def _window_claims(title: str, rows: list[Row]) -> list[Claim]:
    made = []
    for R in (row["R"] for row in where(rows, method=OURS, in_window=True)):
        ours, alone = (ends(rows, "distance", method=name, R=R) for name in (OURS, "pure local training"))
        text = f"{title}: in the window of (16) PLSGD beats pure local training, each with its best stepsize."
        made.append(better(text, ours, alone, f"R = {R}: {ours.mean():.4g} against {alone.mean():.4g}", lower=True))
    for row in (row for row in where(rows, method=OWN_STEPSIZE) if "predicted" in row):
        values, bound = ends(rows, "distance", method=OWN_STEPSIZE), row["predicted"]
        text = f"{title}: with the stepsize of (16) the distance is under (16)."
        made.append(at_most(text, values, bound, f"{values.mean():.3g} against {bound:.3g}"))
    return made


def draw(rows: list[Row]) -> Figure:
    palette = style.colours([*METHODS, OURS])
    panels = []
    for title in distinct(rows, "federation"):
        curves = []
        for name in palette:
            known = [row for row in where(rows, federation=title, method=name) if "predicted" in row]
            rounds = [row["R"] for row in known]
            means = [float(ends(rows, "distance", federation=title, method=name, R=R).mean()) for R in rounds]
            curves.append(Curve(f"{name}, measured", rounds, means, palette[name], "-", "o"))
            predicted = [row["predicted"] for row in known]
            curves.append(Curve(f"{name}, predicted", rounds, predicted, palette[name], "--"))
        panels.append(Panel(title, curves, "squared distance"))
    return style.small_multiples([panels], x_label="rounds R", log_x=True)


def tell(rows: list[Row]) -> list[str]:
    """The table, and what is left along the flattest direction."""
    told = [_as_table(rows), _at_the_ends(rows)]
    for row in (row for row in where(rows, method=OWN_STEPSIZE) if "predicted" in row):
        left = float(ends(rows, "flat_left", federation=row["federation"], method=OWN_STEPSIZE).mean())
        told.append(
            f"{row['federation']}: with the stepsize of (16) {left:.0%} of the squared distance along the flattest "
            f"direction is left; (16)'s optimisation term is {row['optimization']:.0%} of B^2."
        )
    return told


@experiment(
    "plsgd/table1",
    paper=f"{PAPER}, Table 1, strongly convex rows.",
    title="Table 1, predicted against measured",
    caption=(
        "The mean squared distance from the clients' optima after R rounds, measured at each method's best stepsize "
        "(solid, circles), and the row of Table 1, which leaves out numerical constants (dashed)."
    ),
    data="Quadratics with known constants in three dimensions, noise of variance sigma^2, one Hessian for all clients.",
    differences=(
        "The table holds up to constants, so a measured value above it is no contradiction. Stepsizes are the best of "
        "a grid in the mean over seeds that serve for nothing else; PLSGD has alpha = 1 and beta = sqrt(M), as in (16)."
    ),
    judge=judge,
    draw=draw,
    tell=tell,
)
def table1(quick: bool, progress: ExperimentProgress) -> Measured:
    """Best stepsizes on a grid, for three numbers of rounds."""
    tuning, seeds = (3, 5) if quick else (10, 40)
    grid = np.geomspace(0.01, 1, 5) if quick else np.geomspace(0.003, 1.8, 20)
    federations = FEDERATIONS[:1] if quick else FEDERATIONS
    rows: list[Row] = []
    names = [*METHODS, OURS]
    for place, fed in enumerate(federations):
        problem = noisy_quadratics(np.array([fed.spectrum] * fed.M), fed.optima, fed.noise)
        for number, name in enumerate(names):
            progress(f"{fed.title}: {name}", place * len(names) + number, len(names) * len(federations))
            best = _best(problem, fed, name, grid, tuning, seeds)
            rate = theory.TABLE_1["strongly convex"][name]
            for R, tuned in zip(fed.rounds, best, strict=True):
                c, facts = fed.constants(R), {"federation": fed.title, "method": name, "R": R}
                terms = rate(c)
                rows.append(
                    facts
                    | {
                        "optimization": float(terms.optimization),
                        "noise": float(terms.noise),
                        "heterogeneity": float(terms.heterogeneity),
                        "predicted": float(terms.total),
                        "in_window": bool(c.kappa in theory.plsgd_window(c.clients, c.local_steps, R)),
                        "lr": tuned.lr,
                        "end": tuned.end,
                    }
                )
                values = enumerate(tuned.distances.tolist())
                rows += [{**facts, "seed": seed, "distance": value} for seed, value in values]
        if fed.window_rounds is not None:
            rows += _window_rows(problem, fed, fed.window_rounds, seeds)
    return Measured(
        rows,
        {
            "seeds": seeds,
            "stepsizes": f"{len(grid)} from {grid[0]:g} to {grid[-1]:g}, PLSGD's half of them, chosen by {tuning} "
            "other seeds",
            **{
                fed.title: f"M = {fed.M}, K = {fed.K}, spectrum {fed.spectrum}, sigma = {fed.noise:g}, "
                f"B = {fed.constants(1).radius:.3g}, zeta*/L = {fed.constants(1).heterogeneity / max(fed.spectrum):.3g}"
                for fed in federations
            },
        },
    )


def _window_rows(problem: Problem, fed: QuadraticFederation, R: int, seeds: int) -> list[Row]:
    """(16) with its own stepsize: the distance, and what is left of it along the flattest direction."""
    c = fed.constants(R)
    lr, beta = float(theory.plsgd_window_stepsize(c)), float(np.sqrt(fed.M))
    runs = Seeds(problem, algorithms.PLSGD(lr=lr, alpha=1.0, beta=beta, local_steps=fed.K, **ONE_ROW))
    errors = runs.models(range(seeds), [R])[:, 0] - fed.optima
    flat = int(np.argmin(fed.spectrum))
    left = np.mean(errors[..., flat] ** 2, axis=1) / np.mean(fed.optima[:, flat] ** 2)
    facts = {"federation": fed.title, "method": OWN_STEPSIZE, "R": R}
    term = float(np.exp(-fed.K * R / (2 * c.kappa)))
    return [
        facts | {"predicted": float(theory.plsgd_window_bound(c)), "optimization": term},
        *(
            facts | {"seed": seed, "distance": float(np.mean(np.sum(error**2, axis=1))), "flat_left": float(share)}
            for seed, (error, share) in enumerate(zip(errors, left, strict=True))
        ),
    ]


class Tuned(NamedTuple):
    """A method at the stepsize that was chosen for a number of rounds."""

    distances: np.ndarray
    """one for each seed"""
    lr: float
    end: str
    """ "largest" or "smallest" where the stepsize is an end of the grid, else empty"""


def _best(
    problem: Problem, fed: QuadraticFederation, name: str, grid: np.ndarray, tuning: int, seeds: int
) -> list[Tuned]:
    """For each number of rounds, the stepsize with the least mean over the seeds that choose, and what others give."""

    def distances(lr: float, seeds: range) -> np.ndarray:
        if name == OURS:
            method: Algorithm = algorithms.PLSGD(
                lr=lr / 2, alpha=1.0, beta=float(np.sqrt(fed.M)), local_steps=fed.K, **ONE_ROW
            )
        else:
            method = METHODS[name](lr, fed.K)
        with np.errstate(all="ignore"):
            return Seeds(problem, method).distances(fed.optima, seeds, fed.rounds)

    tried: list[float] = np.sort(grid).tolist()
    means = np.array([distances(lr, range(TUNING, TUNING + tuning)).mean(axis=0) for lr in tried])
    places: list[int] = np.argmin(np.nan_to_num(means, nan=np.inf), axis=0).tolist()
    reached = {place: distances(tried[place], range(seeds)) for place in set(places)}
    ends = {0: "smallest", len(tried) - 1: "largest"}
    return [Tuned(reached[place][:, i], tried[place], ends.get(place, "")) for i, place in enumerate(places)]


def _at_the_ends(rows: list[Row]) -> str:
    """Which stepsizes lie at an end of the grid: a better one may lie beyond it."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in (row for row in rows if row.get("end")):
        found.setdefault((row["federation"], row["end"]), {}).setdefault(row["method"], []).append(str(row["R"]))
    if not found:
        return "No chosen stepsize is the largest or the smallest of the grid."
    told = []
    for (federation, end), methods in found.items():
        which = "; ".join(f"{name} at R = {', '.join(rounds)}" for name, rounds in methods.items())
        told.append(f"{federation}: the chosen stepsize is the {end} of the grid for {which}.")
    return " ".join(told) + " The grid ends a tenth before the stepsize at which descent diverges, 2 / L."


def _as_table(rows: list[Row]) -> str:
    head = ("federation", "method", "R", "optimisation", "noise", "heterogeneity", "predicted", "measured")
    lines = []
    for row in (row for row in rows if "heterogeneity" in row):
        values = ends(rows, "distance", **{key: row[key] for key in ("federation", "method", "R")})
        outside = row["method"] == OURS and not row["in_window"]
        lines.append(
            (
                row["federation"],
                row["method"] + (", outside its window" if outside else ""),
                str(row["R"]),
                *(f"{row[name]:.3g}" for name in ("optimization", "noise", "heterogeneity", "predicted")),
                f"{values.mean():.3g} ± {interval(values):.1g}",
            )
        )
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ("---",) * len(head), *lines))
