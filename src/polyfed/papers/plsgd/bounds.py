"""PLSGD: Theorem 1 against 200 seeds, at every round."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyfed import algorithms, theory
from polyfed.papers.plsgd.runs import ONE_ROW, PAPER, Seeds, constants, noisy_quadratics
from polyfed.papers.shared import style
from polyfed.papers.shared.experiment import Claim, ExperimentProgress, Outcome, Row, experiment
from polyfed.papers.shared.style import COLOURS, Curve, Panel
from polyfed.theory import Federated

SPECTRUM = np.array([0.2, 0.4, 0.6, 0.8, 1.0])
"""The diagonal of the Hessian where all clients have the same."""


class Case(NamedTuple):
    """A setting of Theorem 1; eta is `share` of its limit 1/((1 + alpha) L)."""

    alpha: float
    beta: float
    K: int
    M: int
    noise: float
    share: float = 0.5
    unequal: bool = False

    @property
    def lr(self) -> float:
        return self.share * theory.plsgd_stepsize_limit(1.0, self.alpha)

    @property
    def name(self) -> str:
        return f"α={self.alpha:g}, β={self.beta:g}, K={self.K}, M={self.M}, σ={self.noise:g}" + (
            ", H unequal" if self.unequal else ""
        )


CASES = (
    Case(1.0, 1.0, 5, 4, 1.0),
    Case(1.0, 2.0, 2, 4, 1.0),
    Case(0.3, 1.0, 10, 8, 0.5),
    Case(0.1, 1.0, 1, 16, 2.0, 0.9),
    Case(3.0, 0.5, 5, 4, 3.0, 0.2),
    Case(1.0, 4.0, 1, 16, 1.0, 0.5),
    Case(1.0, 1.0, 5, 8, 1.0, 0.9, unequal=True),
    Case(3.0, 1.0, 3, 4, 0.3, 0.9, unequal=True),
)


@experiment(
    "plsgd/bounds",
    paper=f"{PAPER}, Theorem 1, (14) and (15).",
    title="Theorem 1 against 200 seeds, at every round",
    caption=(
        "The mean squared distance of the clients' models from their optima: mean over the seeds (solid) and the bound "
        "(14) (dashed). The last two panels break it: an outer stepsize above its limit, and unequal Hessians with a "
        "small alpha."
    ),
    data="Quadratics with known constants in five dimensions; gradient noise of variance sigma^2 exactly.",
    differences="The paper has no such figure.",
)
def bounds(quick: bool, progress: ExperimentProgress) -> Outcome:
    """Every round of every case under (14), and (15) where it applies; then two counterexamples."""
    seeds, R = (20, 10) if quick else (200, 30)
    cases = CASES[:3] if quick else CASES
    panels, rows, claims = [], [], []
    for done, case in enumerate(cases):
        progress(case.name, done, len(cases))
        distances, c = _measured(case, seeds, R)
        bound = theory.plsgd_bound(c, case.lr, case.alpha, case.beta)
        mean, errors = distances.mean(axis=0), distances.std(axis=0, ddof=1) / np.sqrt(seeds)
        panels.append(_panel(case.name, mean, bound))
        rows += _rows(case, mean, bound)
        claims.append(_under(case.name, "(14)", mean + 4 * errors, bound, seeds))
        if case.alpha == 1:
            balanced = theory.plsgd_balanced_bound(c, case.lr)
            if case.beta <= np.sqrt(case.M):
                claims.append(_under(case.name, "(15)", mean + 4 * errors, balanced, seeds))
    for case, why, optima in _counterexamples():
        distances, c = _measured(case, 2, R, optima)
        bound, mean = theory.plsgd_bound(c, case.lr, case.alpha, case.beta), distances.mean(axis=0)
        panels.append(_panel(f"{case.name}: {why}", mean, bound))
        rows += _rows(case, mean, bound)
        worst = float(np.max(mean / bound))
        claims.append(
            Claim(
                f"{case.name} ({why}): the distance stays under (14).",
                f"no: up to {worst:.3g} times the bound, without any noise",
                worst <= 1,
            )
        )
    progress("done", len(cases), len(cases))
    grid = [panels[i : i + 5] for i in range(0, len(panels), 5)]
    return Outcome(
        rows,
        claims,
        style.small_multiples(grid, x_label="rounds", floor=1e-4),
        settings={
            "seeds": seeds,
            "rounds": R,
            "spectrum of equal Hessians": SPECTRUM.tolist(),
            "unequal Hessians": "each client's own in [0.2, 1]",
            "eta": [round(case.lr, 4) for case in cases],
            "batch": "one row, with replacement",
        },
        notes=[
            "A mean counts as under a bound if it still is with four standard errors added.",
            "Why it breaks: the proof takes the norm of a round's matrix for its largest eigenvalue, and the matrix "
            "is not symmetric where Hessians differ; and it looks at the smallest eigenvalue alone, where a large "
            "beta makes the other end the larger one. For equal Hessians `theory.plsgd_outer_limit` is the beta up to "
            "which (14) holds; it is at least 2. (15) allows beta = sqrt(M) without a word on K.",
        ],
    )


def _counterexamples() -> list[tuple[Case, str, np.ndarray]]:
    """Two settings that Theorem 1 allows but that break (14), each with the reason and the optima."""
    apart = np.zeros((2, 5))
    apart[:, 0] = (1.0, -1.0)
    return [
        (Case(1.0, 4.0, 20, 16, 0.0, 0.9), "beta above its limit", np.ones((16, 5))),
        (Case(0.1, 1.0, 10, 2, 0.0, 0.9, unequal=True), "one steep, one flat client", apart),
    ]


def _measured(case: Case, seeds: int, R: int, optima: np.ndarray | None = None) -> tuple[np.ndarray, Federated]:
    """The mean squared distances, (seeds, rounds 0 to R), and the constants."""
    random = np.random.default_rng(1)
    spectra = np.broadcast_to(SPECTRUM, (case.M, 5))
    if case.unequal:
        spectra = random.uniform(0.2, 1.0, size=(case.M, 5))
        spectra[0, 0], spectra[-1, -1] = 0.2, 1.0
    if optima is None:
        optima = 1.0 + random.normal(size=(case.M, 5))
    elif case.unequal:
        spectra = np.array([[1.0], [0.01]]) * np.ones((2, 5))
    method = algorithms.PLSGD(lr=case.lr, alpha=case.alpha, beta=case.beta, local_steps=case.K, **ONE_ROW)
    runs = Seeds(noisy_quadratics(spectra, optima, case.noise), method)
    rounds = list(range(R + 1))
    return runs.distances(optima, range(seeds), rounds), constants(spectra, optima, case.noise, case.K, rounds)


def _panel(title: str, mean: np.ndarray, bound: np.ndarray) -> Panel:
    rounds = np.arange(len(mean))
    return Panel(
        title.replace(", K=", ",\nK=").replace(": ", ":\n"),
        [Curve("measured", rounds, mean, COLOURS[0]), Curve("bound (14)", rounds, bound, COLOURS[1], "--")],
        "squared distance",
    )


def _rows(case: Case, mean: np.ndarray, bound: np.ndarray) -> list[Row]:
    return [
        {**case._asdict(), "round": r, "distance": float(d), "bound": float(b)}
        for r, (d, b) in enumerate(zip(mean, bound, strict=True))
    ]


def _under(name: str, which: str, upper: np.ndarray, bound: np.ndarray, seeds: int) -> Claim:
    share = upper / bound
    return Claim(
        f"{name}: the mean distance stays under {which} at every round.",
        f"over {seeds} seeds and {len(bound) - 1} rounds at most {np.max(share):.3f} of it, {share[-1]:.3f} at the "
        f"last",
        bool(np.all(share <= 1)),
    )
