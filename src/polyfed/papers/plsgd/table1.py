"""PLSGD, Table 1: its rates against the methods at their best stepsizes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyfed import algorithms, theory
from polyfed.algorithms.contract import Algorithm
from polyfed.papers.plsgd.runs import ONE_ROW, PAPER, Seeds, constants, interval, noisy_quadratics
from polyfed.papers.shared import style
from polyfed.papers.shared.experiment import Claim, ExperimentProgress, Outcome, Row, experiment
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
        "a grid in the mean over the seeds; PLSGD has alpha = 1 and beta = sqrt(M), as in (16)."
    ),
)
def table1(quick: bool, progress: ExperimentProgress) -> Outcome:
    """Best stepsizes on a grid, for three numbers of rounds."""
    seeds, grid = (5, np.geomspace(0.01, 1, 5)) if quick else (40, np.geomspace(0.003, 1.8, 20))
    federations = FEDERATIONS[:1] if quick else FEDERATIONS
    rows: list[Row] = []
    for fed in federations:
        problem = noisy_quadratics(np.array([fed.spectrum] * fed.M), fed.optima, fed.noise)
        for name in [*METHODS, "PLSGD (16)"]:
            progress(f"{fed.title}: {name}", len(rows), 12 * len(federations))
            distances = _best(problem, fed, name, grid, seeds)
            rate = theory.TABLE_1["strongly convex"][name]
            for R, values in zip(fed.rounds, distances, strict=True):
                c = fed.constants(R)
                terms = rate(c)
                rows.append(
                    {
                        "federation": fed.title,
                        "method": name,
                        "R": R,
                        "optimization": float(terms.optimization),
                        "noise": float(terms.noise),
                        "heterogeneity": float(terms.heterogeneity),
                        "predicted": float(terms.total),
                        "measured": float(values.mean()),
                        "interval": float(interval(values)),
                        "in_window": c.kappa in theory.plsgd_window(c.clients, c.local_steps, R),
                    }
                )
    palette = style.colours([*METHODS, "PLSGD (16)"])
    panels = [
        Panel(
            fed.title,
            [
                Curve(f"{name}, {what}", [r["R"] for r in mine], [r[what] for r in mine], palette[name], line, marker)
                for name in palette
                for what, line, marker in (("measured", "-", "o"), ("predicted", "--", ""))
                if (mine := [r for r in rows if r["federation"] == fed.title and r["method"] == name])
            ],
            "squared distance",
        )
        for fed in federations
    ]
    claims = [
        claim for fed in federations for claim in _table_claims([r for r in rows if r["federation"] == fed.title])
    ]
    claims += [_window_claim(fed, seeds) for fed in federations if fed.window_rounds is not None]
    return Outcome(
        rows,
        claims,
        style.small_multiples([panels], x_label="rounds R", log_x=True),
        settings={
            "seeds": seeds,
            "stepsizes": f"{len(grid)} from {grid[0]:g} to {grid[-1]:g}",
            **{
                fed.title: f"M = {fed.M}, K = {fed.K}, spectrum {fed.spectrum}, sigma = {fed.noise:g}, "
                f"B = {fed.constants(1).radius:.3g}, zeta*/L = {fed.constants(1).heterogeneity / max(fed.spectrum):.3g}"
                for fed in federations
            },
        },
        notes=[_as_table(rows)],
    )


def _best(problem: Problem, fed: QuadraticFederation, name: str, grid: np.ndarray, seeds: int) -> list[np.ndarray]:
    """For each number of rounds, the distances of all seeds at the stepsize with the least mean."""
    distances = []
    for lr in grid:
        if name == "PLSGD (16)":
            method: Algorithm = algorithms.PLSGD(
                lr=float(lr) / 2, alpha=1.0, beta=float(np.sqrt(fed.M)), local_steps=fed.K, **ONE_ROW
            )
        else:
            method = METHODS[name](float(lr), fed.K)
        with np.errstate(all="ignore"):
            distances.append(Seeds(problem, method).distances(fed.optima, range(seeds), fed.rounds))
    means = np.nan_to_num(np.mean(distances, axis=1), nan=np.inf)
    return [distances[int(np.argmin(means[:, i]))][:, i] for i in range(len(fed.rounds))]


def _table_claims(rows: list[Row]) -> list[Claim]:
    title, made = rows[0]["federation"], []
    for name in dict.fromkeys(row["method"] for row in rows):
        ratios = [row["measured"] / row["predicted"] for row in rows if row["method"] == name]
        made.append(
            Claim(
                f"{title}: {name} stays within ten times its row of Table 1.",
                "measured / predicted " + ", ".join(f"{ratio:.2g} at R = {row['R']}" for ratio, row in zip(
                    ratios, [row for row in rows if row["method"] == name], strict=True)),
                max(ratios) <= 10,
            )
        )  # fmt: skip
    inside = [row for row in rows if row["in_window"] and row["method"] == "PLSGD (16)"]
    for row in inside:
        local = next(r for r in rows if r["R"] == row["R"] and r["method"] == "pure local training")
        made.append(
            Claim(
                f"{title}: in the window of (16) PLSGD beats pure local training, each with its best stepsize.",
                f"R = {row['R']}: {row['measured']:.4g} +- {row['interval']:.1g} against {local['measured']:.4g} +- "
                f"{local['interval']:.1g}",
                row["measured"] + row["interval"] < local["measured"] - local["interval"],
            )
        )
    return made


def _window_claim(fed: QuadraticFederation, seeds: int) -> Claim:
    """(16) with its own stepsize: what is left of the distance along the flattest direction."""
    R = fed.window_rounds
    assert R is not None
    c = fed.constants(R)
    lr, beta = float(theory.plsgd_window_stepsize(c)), float(np.sqrt(fed.M))
    problem = noisy_quadratics(np.array([fed.spectrum] * fed.M), fed.optima, fed.noise)
    runs = Seeds(problem, algorithms.PLSGD(lr=lr, alpha=1.0, beta=beta, local_steps=fed.K, **ONE_ROW))
    errors = runs.models(range(seeds), [R])[:, 0] - fed.optima
    flat = int(np.argmin(fed.spectrum))
    left = float(np.mean(errors[..., flat] ** 2) / np.mean(fed.optima[:, flat] ** 2))
    distance, bound = float(np.mean(np.sum(errors**2, axis=2))), float(theory.plsgd_window_bound(c))
    return Claim(
        f"{fed.title}: with the stepsize of (16) the distance is under (16), and along the flattest direction most of "
        "it is still there.",
        f"{distance:.3g} against {bound:.3g}; {100 * left:.0f}% of the squared distance along it is left, where (16)'s "
        f"optimisation term is {100 * np.exp(-fed.K * R / (2 * c.kappa)):.0f}% of B^2",
        distance <= bound and left > 0.5,
    )


def _as_table(rows: list[Row]) -> str:
    head = ("federation", "method", "R", "optimisation", "noise", "heterogeneity", "predicted", "measured")
    lines = [
        (
            row["federation"],
            row["method"] + ("" if row["method"] != "PLSGD (16)" or row["in_window"] else ", outside its window"),
            str(row["R"]),
            *(f"{row[name]:.3g}" for name in ("optimization", "noise", "heterogeneity", "predicted")),
            f"{row['measured']:.3g} ± {row['interval']:.1g}",
        )
        for row in rows
    ]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ("---",) * len(head), *lines))
