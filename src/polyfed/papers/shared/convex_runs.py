"""The convex runs of the papers: logistic regression on LIBSVM files, in float64, against the exact solution."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from polyfed import algorithms, data, models
from polyfed.algorithms.contract import Algorithm
from polyfed.compress import RandK
from polyfed.core.errors import PolyfedError
from polyfed.engine.loop import PlannedRun
from polyfed.engine.result import Result
from polyfed.engine.simulate import simulate_all
from polyfed.papers.shared.experiment import ExperimentProgress, Row
from polyfed.papers.shared.rows import rounded
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
DATA_ONCE = DATA.replace("w7a, w8a,", "w7a,")
OTHER_DATA_ONCE = OTHER_DATA.replace("w7a and w8a stand in", "w7a stands in")
"""Where w7a alone takes the place of w6a."""
OTHER_REFERENCE = (
    "The reference value is solved for to machine precision by Newton's method, where the published code took a fixed "
    "number of gradient steps. mushrooms' labels 1 and 2 are mapped to -1 and +1."
)
WITHOUT_RIDGE = (
    "Without a ridge, a client whose rows are separable has no pure local model: x_i* is then the first iterate of "
    "Newton's method with a gradient norm below 1e-6, the paper's tolerance. Where no minimiser was found for the "
    "mixture either (every client fits its rows), f* is taken as 0. At alpha = 1, k = 1 has its own "
    "number of rounds. Where it is too small to reach the level that is compared, k = 1 may be ahead in bits there."
)
COLUMNS = ("round", "gap", "grad_norm2", "distance")
FACTS = ("dataset", "method", "alpha", "k")


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


def _run(runs: Sequence[ConvexRun]) -> None:
    """Compute the curves of runs that share the problem, the rounds and the points; k, alpha and the seed may differ.

    Runs of one shape are one program, whose gradients are products of two matrices.
    """
    first = runs[0]
    problem = problem_of(first.dataset, first.clients, first.l2)
    attained = {alpha: _solve(problem, first, alpha) for alpha in dict.fromkeys(run.alpha for run in runs)}

    def finished(place: int, result: Result) -> None:
        run = runs[place]
        facts: Row = {"dataset": run.dataset, "method": run.method, "alpha": run.alpha}
        if run.k is not None:
            facts["k"] = run.k
        curve = tuple(
            facts
            | ({} if attained[run.alpha] else {"gap": row["objective"]})
            | {name: row[name] for name in COLUMNS if name in row}
            | {"bits": row["bits_up"] / run.clients}
            for row in result.rows
        )
        _curves.put(run, curve)

    results = simulate_all(
        [PlannedRun(problem, _algorithm(run), seed=run.seed) for run in runs],
        rounds=first.rounds,
        init="ones",
        eval_every=first.every,
        dtype="float64",
        finished=finished,
    )
    if any(result.interrupted for result in results):
        raise KeyboardInterrupt


def _solve(problem: Problem, run: ConvexRun, alpha: float) -> bool:
    """Whether a minimiser exists. Without a ridge there is none where a model fits all rows; the infimum is then 0."""
    try:
        problem.solve(alpha, plm_tolerance=_plm_tolerance(run))
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
    assert run.k is not None  # as an array it is an input of the program, and not part of it
    compressed = {"DCGD": algorithms.DCGD, "DIANA": algorithms.DIANA}[run.method]
    return compressed(
        alpha=run.alpha, plm_tolerance=tolerance, compressor=RandK(np.asarray(run.k))
    )  # an array: k is an input of the program


def _plm_tolerance(run: ConvexRun) -> float:
    """Without a ridge, a client whose rows are separable has no minimiser: its x_i* is where the paper stops (1e-6)."""
    return 1e-12 if run.l2 > 0 else 1e-6


def trace_all(runs: Iterable[ConvexRun], progress: ExperimentProgress) -> ConvexCurves:
    """All the curves; `progress` hears which are being computed. Figures that show the same run compute it once."""
    runs = list(dict.fromkeys(runs))
    together: dict[ConvexRun, list[ConvexRun]] = {}
    for run in runs:
        together.setdefault(replace(run, alpha=1.0, k=None, seed=0), []).append(run)
    done = 0
    for like, group in together.items():
        progress(f"{like.dataset}: {like.method}, {len(group)} runs", done, len(runs))
        missing = [run for run in group if _curves.get(run) is None]
        if missing:
            _run(missing)
        done += len(group)
    progress("done", len(runs), len(runs))
    return {run: _curves[run] for run in runs}


def spaced(dimension: int, count: int = 7) -> list[int]:
    """`count` numbers of coordinates, linearly spaced from 1 to the dimension. FLIX Sec. 4."""
    return sorted({int(k) for k in np.linspace(1, dimension, count).round()})


def summary(run: ConvexRun, rows: Sequence[Row], level: float, relative: bool = False) -> Row:
    """What claims are judged by: a run's start and end, and its cost to a level (or to a share of its start).

    A cost is missing where the level was not reached; `rounds_run` and `bits_run` are then what it exceeds. It is known
    to `every` so many rounds.
    """
    goal = level * rows[0]["gap"] if relative else level
    costs = {f"{cost}_to": cost_to_reach(rows, goal, name) for cost, name in (("rounds", "round"), ("bits", "bits"))}
    return (
        {key: rows[0][key] for key in FACTS if key in rows[0]}
        | {"seed": run.seed, "level": level, "every": run.every, "start": rows[0]["gap"], "end": rows[-1]["gap"]}
        | {"rounds_run": rows[-1]["round"], "bits_run": rows[-1]["bits"]}
        | {key: value for key, value in costs.items() if value is not None}
    )


def filled(runs: Sequence[Row], cost: str) -> np.ndarray:
    """The cost of every summed-up run; where a level was not reached, what was spent by then."""
    return np.array([run.get(f"{cost}_to", run[f"{cost}_run"]) for run in runs], float)


def thinned(rows: Sequence[Row], points: int = 40, without: Container[str] = ()) -> list[Row]:
    """A curve for drawing: so many of its points at most, half of them evenly spaced, half denser to the start.

    They have six digits, and not the columns `without`.
    """
    last, half = len(rows) - 1, points // 2
    places = np.unique(np.concatenate([np.linspace(0, last, half), np.geomspace(1, last, half)]).round().astype(int))
    return [rounded({key: v for key, v in rows[place].items() if key not in without}) for place in places]


def cost_to_reach(rows: Sequence[Row], level: float, cost: str = "round", quantity: str = "gap") -> float | None:
    """The cost (rounds, bits) of bringing f - f*, or another quantity, to `level`; None where it does not get there."""
    return next((row[cost] for row in rows if row[quantity] <= level), None)


def cost_words(cost: float | None, unit: float = 1.0) -> str:
    """A cost for people, "not reached" for none."""
    if cost is None:
        return "not reached"
    return f"{cost:,.0f}" if unit == 1.0 else f"{cost / unit:.3g}"
