"""The claims of FLIX's convex figures, as numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from polyfed import theory
from polyfed.compress import RandK
from polyfed.core import trees
from polyfed.papers.shared import convex_runs
from polyfed.papers.shared.convex_runs import ConvexCurves, ConvexRun, column, cost_to_reach, cost_words
from polyfed.papers.shared.experiment import Claim, Row

Check = Callable[[str, ConvexCurves, list[ConvexRun]], list[Claim]]
"""(dataset, all curves, this dataset's runs) -> what they show."""
EXACT = 1e-8


def gradient_descent(dataset: str, curves: ConvexCurves, todo: list[ConvexRun]) -> list[Claim]:
    """Fig. 2: alpha moves the start but not the rate, which is at least Theorem 2's. `todo` is by descending alpha."""
    starts = [curves[run][0]["gap"] for run in todo]
    rates = [rate(curves[run]) for run in todo]
    constants = convex_runs.problem_of(todo[0].dataset, todo[0].clients, todo[0].l2).constants
    guaranteed = theory.gd_rate(constants.smoothness, constants.convexity, 1.0)  # the same for every equal alpha
    above = max(_over_bound(curves[run], guaranteed) for run in todo)
    return [
        Claim(
            f"{dataset}: the smaller alpha, the lower the start.",
            "f - f* at the start " + ", ".join(f"{start:.1e}" for start in starts),
            all(b < a for a, b in pairwise(starts)),
        ),
        Claim(
            f"{dataset}: the speed of linear convergence does not depend on alpha (within a factor of 2).",
            "f - f* falls per round by " + ", ".join(f"{r:.2%}" for r in rates),
            max(rates) <= 2 * min(rates),
        ),
        Claim(
            f"{dataset}: f - f* stays under (1 - mu/L)^t times its start (Theorem 2).",
            f"at most {above:.3g} times that",
            above <= 1 + 1e-9,
        ),
    ]


def _over_bound(rows: Sequence[Row], guaranteed: float) -> float:
    """The largest ratio of f - f* to (1 - rate)^t times its start, as far down as float64 can tell."""
    gap = column(rows, "gap")
    bound = gap[0] * (1 - guaranteed) ** column(rows, "round")
    return float(np.max((gap / bound)[bound > 1e-14]))


def diana(dataset: str, curves: ConvexCurves, todo: list[ConvexRun]) -> list[Claim]:
    """Fig. 3: more coordinates, fewer rounds; smaller alpha, lower start."""
    largest, smallest = max(run.alpha for run in todo), min(run.alpha for run in todo)
    at_largest, at_smallest = ([run for run in todo if run.alpha == a] for a in (largest, smallest))
    costs = [cost_to_reach(curves[run], EXACT) for run in at_largest]
    reached = [c for c in costs if c is not None]
    starts = [curves[group[0]][0]["gap"] for group in (at_largest, at_smallest)]
    return [
        Claim(
            f"{dataset}: the more coordinates travel, the fewer rounds to {EXACT:g} (within 5%).",
            ", ".join(f"{cost_words(c)} at k = {run.k}" for run, c in zip(at_largest, costs, strict=True)),
            len(reached) >= 2 and None not in costs[1:] and all(b <= 1.05 * a + 1 for a, b in pairwise(reached)),
        ),
        Claim(
            f"{dataset}: alpha = {smallest:g} starts lower than alpha = {largest:g}.",
            f"f - f* of {starts[1]:.1e} against {starts[0]:.1e}",
            starts[1] < starts[0],
        ),
    ]


def rounds_to(level: float, what: str, relative: bool = False) -> Check:
    """Counted in rounds, compression does not pay: no k gets to a level sooner than GD."""

    def check(dataset: str, curves: ConvexCurves, todo: list[ConvexRun]) -> list[Claim]:
        gd, others = _at_alpha_1(todo)
        goal = level * curves[gd][0]["gap"] if relative else level
        own = cost_to_reach(curves[gd], goal)
        best = min((c for run in others if (c := cost_to_reach(curves[run], goal)) is not None), default=None)
        text = f"{dataset}: to {what}, {others[0].method} needs at least GD's rounds whatever k is (alpha = 1)."
        holds = own is not None and (best is None or best >= own - gd.every)
        return [Claim(text, f"at best {cost_words(best)} rounds, GD {cost_words(own)}", holds)]

    return check


def bits_to(level: float, what: str, relative: bool = False) -> Check:
    """Counted in bits, it does: some k gets to a level with less traffic than GD."""

    def check(dataset: str, curves: ConvexCurves, todo: list[ConvexRun]) -> list[Claim]:
        gd, others = _at_alpha_1(todo)
        goal = level * curves[gd][0]["gap"] if relative else level
        own = cost_to_reach(curves[gd], goal, "bits")
        costs = [(c, run.k) for run in others if (c := cost_to_reach(curves[run], goal, "bits")) is not None]
        best, k = min(costs, default=(None, None))
        text = f"{dataset}: to {what}, {others[0].method} with a suitable k sends fewer bits than GD (alpha = 1)."
        measured = f"{cost_words(best)} bits per client at k = {k}, GD {cost_words(own)}"
        return [Claim(text, measured, own is not None and best is not None and best < own)]

    return check


def stepsize_note(curves: ConvexCurves, method: str, share: float) -> str:
    """What the small stepsizes of Theorems 6 and 7 cost, measured where nothing is compressed."""
    ratios = []
    for dataset in dict.fromkeys(run.dataset for run in curves):
        gd, others = _at_alpha_1([run for run in curves if run.dataset == dataset])
        costs = [cost_to_reach(curves[run], share * curves[run][0]["gap"]) for run in (others[-1], gd)]
        if costs[0] is not None and costs[1]:
            ratios.append(f"{costs[0] / costs[1]:.1f} on {dataset}")
    reached = ", ".join(ratios) or "reached on no dataset within the rounds"
    return (
        f"Without a ridge the theorem's stepsize is a quarter of what it is with one. At k = d, where nothing is "
        f"compressed, {method} therefore takes about four times GD's rounds to {share:.0%} of the starting gap (alpha "
        f"= 1: {reached}). Compression has to make up for that before it saves a bit."
    )


def neighbourhood(dataset: str, curves: ConvexCurves, todo: list[ConvexRun]) -> list[Claim]:
    """Fig. 10: DCGD stalls within the bound of Theorem 4, and the nearer the more coordinates travel."""
    _, others = _at_alpha_1(todo)
    noisy = others[:-1]  # with k = d nothing is lost
    floors = [float(np.median(column(_last(curves[run]), "gap"))) for run in noisy]
    shares = []
    for run in noisy:
        bound = distance_bound(run, curves[run])
        shares.append(float(np.mean(column(_last(curves[run]), "distance"))) / bound)
    return [
        Claim(
            f"{dataset}: DCGD ends nearer to the solution the more coordinates travel (alpha = 1).",
            ", ".join(f"{floor:.1e} at k = {run.k}" for run, floor in zip(noisy, floors, strict=True)),
            all(b < a for a, b in pairwise(floors)),
        ),
        Claim(
            f"{dataset}: DCGD's mean squared distance ends within the bound of Theorem 4 for every k (alpha = 1).",
            f"{min(shares):.1%} to {max(shares):.1%} of the bound",
            max(shares) <= 1,
        ),
    ]


def distance_bound(run: ConvexRun, rows: Sequence[Row]) -> float:
    """Theorem 4 for the last quarter of a run of DCGD, at the first of its rounds; all alpha_i are the same."""
    assert run.k is not None
    problem = convex_runs.problem_of(run.dataset, run.clients, run.l2)
    solution, constants = problem.solve(run.alpha), problem.constants
    gradients = []
    for client, name in enumerate(problem.federation.clients):
        deployed = solution.params
        if solution.local_models is not None:
            own = jax.tree.map(lambda leaf, i=client: leaf[i], solution.local_models.params)
            deployed = trees.mix(run.alpha, solution.params, own)
        gradients.append(np.asarray(ravel_pytree(problem.grad(deployed, name))[0]))
    omega = RandK(run.k).omega(problem.federation.feature_shape[0])
    stepsize = theory.dcgd_stepsize(constants.smoothness, run.alpha, omega)
    start = rows[0]["distance"] / run.alpha**2
    bound = theory.dcgd_distance_bound(
        _last(rows)[0]["round"], start, np.array(gradients), constants.convexity, run.alpha, omega, stepsize
    )
    return float(bound) * run.alpha**2


def rate(rows: Sequence[Row]) -> float:
    """By what share f - f* falls in a round, between 1e-3 and 1e-9 of its start."""
    rounds, gap = column(rows, "round"), column(rows, "gap")
    inside = (gap <= 1e-3 * gap[0]) & (gap >= max(1e-9 * gap[0], 1e-14))
    if inside.sum() < 3:
        return float("nan")
    return float(1 - np.exp(np.polyfit(rounds[inside], np.log(gap[inside]), 1)[0]))


def _last(rows: Sequence[Row]) -> Sequence[Row]:
    """The last quarter of a curve."""
    return rows[-max(1, len(rows) // 4) :]


def _at_alpha_1(todo: list[ConvexRun]) -> tuple[ConvexRun, list[ConvexRun]]:
    """(GD, the compressed runs by ascending k) at alpha = 1."""
    runs = [run for run in todo if run.alpha == 1.0]
    compressed = [run for run in runs if run.k is not None]
    return next(run for run in runs if run.k is None), sorted(compressed, key=lambda run: run.k or 0)
