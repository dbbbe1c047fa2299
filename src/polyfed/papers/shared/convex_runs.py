"""The convex runs of the papers: logistic regression on LIBSVM files, in float64, against the exact solution."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from polyfed import algorithms, data, models
from polyfed.algorithms.contract import Algorithm
from polyfed.compress import RandK
from polyfed.core.errors import PolyfedError
from polyfed.engine.simulate import simulate_whole
from polyfed.papers.shared.experiment import ExperimentProgress, Row
from polyfed.papers.shared.run_cache import RunCache
from polyfed.problem.problem import Problem

DATASETS = ("mushrooms", "a6a", "w7a", "w8a", "ijcnn1.num12")
TITLES: dict[str, str] = {"w7a": "w7a (for w6a)", "w8a": "w8a (for w6a)", "ijcnn1.num12": "ijcnn1 (12 of 22 columns)"}
DATA = (
    "LIBSVM mushrooms, a6a, w7a, w8a, and ijcnn1 without its ten binary columns; contiguous blocks of rows in file "
    "order, one per client; no rows are held out."
)
OTHER_DATA = (
    "w7a and w8a stand in for w6a, of which no complete copy was found. ijcnn1 has only its 12 real-valued columns, "
    "which makes it much better conditioned than the published file."
)
OTHER_REFERENCE = (
    "The reference value is solved for to machine precision by Newton's method, where the published code took a fixed "
    "number of gradient steps. mushrooms' labels 1 and 2 are mapped to -1 and +1."
)
WITHOUT_RIDGE = (
    "Without a ridge, a client whose rows are separable has no pure local model: x_i* is then the first iterate of "
    "Newton's method with a gradient norm below 1e-6, the paper's tolerance. Where no minimiser was found for the "
    "mixture either (every client fits its rows), f* is taken as 0. Every k runs for the same number of rounds; for "
    "k = 1 they are too few to reach the level that is compared, though it may be ahead in bits where it stops."
)
COLUMNS = ("round", "gap", "distance")
FACTS = ("dataset", "clients", "method", "alpha", "k")


@dataclass(frozen=True)
class ConvexRun:
    """One curve: a method on a dataset, at one alpha."""

    dataset: str
    clients: int
    l2: float
    method: str
    """GD, DCGD, DIANA or Scafflix."""
    alpha: float
    rounds: int
    k: int | None = None
    """Rand-k's number of coordinates, for DCGD and DIANA."""
    every: int = 1
    """Rounds between points of the curve."""
    seed: int = 0


ConvexCurves = dict[ConvexRun, tuple[Row, ...]]
_curves: RunCache[tuple[Row, ...]] = RunCache(list, tuple)


@lru_cache(maxsize=2)
def problem_of(dataset: str, clients: int, l2: float) -> Problem:
    """f_i(x) = mean log(1 + exp(-b a.x)) + l2/2 |x|^2 over client i's rows."""
    federation = data.load("libsvm", name=dataset, clients=clients)
    return Problem(federation, models.linear(bias=False), "logistic", l2)


def trace(run: ConvexRun) -> tuple[Row, ...]:
    """The run's curve, a row per point. Figures that show the same run compute it once."""
    return _curves.of(run, _trace)


def _trace(run: ConvexRun) -> tuple[Row, ...]:
    problem = problem_of(run.dataset, run.clients, run.l2)
    attained = _solve(problem, run)
    result = simulate_whole(
        problem,
        _algorithm(run),
        rounds=run.rounds,
        seed=run.seed,
        init="ones",
        eval_every=run.every,
        dtype="float64",
    )
    facts: Row = {"dataset": run.dataset, "clients": run.clients, "method": run.method, "alpha": run.alpha}
    if run.k is not None:
        facts["k"] = run.k
    return tuple(
        facts
        | ({} if attained else {"gap": row["objective"]})
        | {name: row[name] for name in COLUMNS if name in row}
        | {"bits": row["bits_up"] / run.clients}
        for row in result.rows
    )


def _solve(problem: Problem, run: ConvexRun) -> bool:
    """Whether a minimiser exists. Without a ridge there is none where a model fits all rows; the infimum is then 0."""
    try:
        problem.solve(run.alpha, plm_tolerance=_plm_tolerance(run))
    except PolyfedError:
        if run.l2 > 0:
            raise
        return False
    return True


def _algorithm(run: ConvexRun) -> Algorithm:
    """The method with the stepsizes that its theorem gives."""
    tolerance = _plm_tolerance(run)
    if run.method == "GD":
        return algorithms.FLIX(alpha=run.alpha, plm_tolerance=tolerance)
    if run.method == "Scafflix":
        return algorithms.Scafflix(alpha=run.alpha, plm_tolerance=tolerance)
    assert run.k is not None
    compressed = {"DCGD": algorithms.DCGD, "DIANA": algorithms.DIANA}[run.method]
    return compressed(alpha=run.alpha, plm_tolerance=tolerance, compressor=RandK(run.k))


def _plm_tolerance(run: ConvexRun) -> float:
    """Without a ridge, a client whose rows are separable has no minimiser: its x_i* is where the paper stops (1e-6)."""
    return 1e-12 if run.l2 > 0 else 1e-6


def trace_all(runs: Iterable[ConvexRun], progress: ExperimentProgress) -> ConvexCurves:
    """All the curves; `progress` hears which one is being computed."""
    runs = list(runs)
    curves = {}
    for done, run in enumerate(runs):
        k = f", k = {run.k}" if run.k is not None else ""
        progress(f"{run.dataset}: {run.method}, alpha = {run.alpha:g}{k}", done, len(runs))
        curves[run] = trace(run)
    progress("done", len(runs), len(runs))
    return curves


def spaced(dimension: int, count: int = 7) -> list[int]:
    """`count` numbers of coordinates, linearly spaced from 1 to the dimension. FLIX Sec. 4."""
    return sorted({int(k) for k in np.linspace(1, dimension, count).round()})


def summary(run: ConvexRun, rows: Sequence[Row], level: float, relative: bool = False) -> Row:
    """What claims are judged by: a run's start and end, and its cost to a level (or to a share of its start).

    A cost is missing where the level was not reached; `rounds_run` and `bits_run` are then what it exceeds.
    """
    goal = level * rows[0]["gap"] if relative else level
    costs = {f"{cost}_to": cost_to_reach(rows, goal, name) for cost, name in (("rounds", "round"), ("bits", "bits"))}
    return (
        {key: rows[0][key] for key in FACTS if key in rows[0]}
        | {"seed": run.seed, "level": level, "start": rows[0]["gap"], "end": rows[-1]["gap"]}
        | {"rounds_run": rows[-1]["round"], "bits_run": rows[-1]["bits"]}
        | {key: value for key, value in costs.items() if value is not None}
    )


def filled(runs: Sequence[Row], cost: str) -> np.ndarray:
    """The cost of every summed-up run; where a level was not reached, what was spent by then."""
    return np.array([run.get(f"{cost}_to", run[f"{cost}_run"]) for run in runs], float)


def thinned(rows: Sequence[Row], points: int = 100) -> list[Row]:
    """A curve for drawing: so many of its points, to six digits."""
    places = np.unique(np.linspace(0, len(rows) - 1, points).round().astype(int))
    return [
        {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in rows[place].items()}
        for place in places
    ]


def cost_to_reach(rows: Sequence[Row], level: float, cost: str = "round") -> float | None:
    """The cost (rounds, bits) of bringing f - f* to `level`; None where the curve does not get there."""
    return next((row[cost] for row in rows if row["gap"] <= level), None)


def cost_words(cost: float | None, unit: float = 1.0) -> str:
    """A cost for people, "not reached" for none."""
    if cost is None:
        return "not reached"
    return f"{cost:,.0f}" if unit == 1.0 else f"{cost / unit:.3g}"
